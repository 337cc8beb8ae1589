#include "worker/node_readiness.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/log.h"
#include "common/status_util.h"
#include "common/unique_fd.h"

namespace cohort::worker {
namespace {

// A full disk keeps new work off within this time, and one with room again does
// not for longer.
constexpr absl::Duration kPeriod = absl::Seconds(1);
// The longest that a fault counts of which no look finds the cause.
constexpr absl::Duration kBackOffMax = absl::Minutes(1);

// Takes `bytes` of the file's disk; 0 or the error.
int TakeSpace(int fd, int64_t bytes) {
  while (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, bytes) != 0) {
    if (errno == EINTR) continue;
    // Not there can only be told by writing, and little is enough to see a disk
    // that is full.
    if (errno != EOPNOTSUPP) return errno;
    const std::string block(4096, '\0');
    return pwrite(fd, block.data(), block.size(), 0) < 0 ? errno : 0;
  }
  return 0;
}

}  // namespace

absl::Status CheckRoom(const std::string& directory, int64_t bytes) {
  const std::string path = absl::StrCat(directory, "/room");
  const UniqueFd fd(
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd) return ErrnoStatus(errno, absl::StrCat("create ", path));
  // At once: a process that dies now leaves nothing behind.
  unlink(path.c_str());
  const int error = TakeSpace(fd.get(), bytes);
  if (error == 0) return absl::OkStatus();
  // Not how much: it differs between looks, and would be news each time.
  return ErrnoStatus(error, absl::StrCat("write in ", directory));
}

NodeReadiness::NodeReadiness(NodeReadinessOptions options, Executor& strand,
                             Executor& disk, Trial trial, Listener on_change)
    : options_(std::move(options)),
      strand_(strand),
      disk_(disk),
      trial_(std::move(trial)),
      on_change_(std::move(on_change)) {}

void NodeReadiness::Start(absl::AnyInvocable<void() &&> looked) {
  Look(std::move(looked));
}

void NodeReadiness::NoteFault(const absl::Status& why) {
  ++faults_;
  // Several that fail together are one fault.
  if (fault_.empty()) {
    back_off_ = std::clamp(2 * back_off_, kPeriod, kBackOffMax);
    left_ = back_off_;
    cause_seen_ = false;
  }
  fault_ = absl::StrCat(why.message(), "; work is tried again ",
                        absl::FormatDuration(back_off_), " after");
  Set(fault_);
}

void NodeReadiness::Look(absl::AnyInvocable<void() &&> looked) {
  const int64_t times = not_ready_.empty() ? 1 : 2;
  disk_.Post(
      [this, times, faults = faults_, looked = std::move(looked)]() mutable {
        strand_.Post([this, faults, found = LookAtDisk(times),
                      looked = std::move(looked)]() mutable {
          Try(faults, std::move(found), std::move(looked));
        });
      });
}

NodeReadiness::Found NodeReadiness::LookAtDisk(int64_t times) const {
  Found found;
  if (options_.renew != nullptr) {
    const absl::StatusOr<bool> renewed = options_.renew();
    found.status.Update(renewed.status());
    found.mended = renewed.value_or(false);
  }
  for (const NeededRoom& room : options_.rooms) {
    if (room.make && mkdir(room.directory.c_str(), 0700) == 0) {
      COHORT_LOG(kWarning, "directory_made_again",
                 {"directory", room.directory});
      found.mended = true;
    }
    found.status.Update(CheckRoom(room.directory, times * room.bytes));
  }
  for (const std::string& program : options_.programs) {
    if (access(program.c_str(), X_OK) == 0) continue;
    found.status.Update(ErrnoStatus(errno, absl::StrCat("execute ", program)));
  }
  return found;
}

void NodeReadiness::Try(uint64_t faults, Found found,
                        absl::AnyInvocable<void() &&> looked) {
  auto conclude = [this, faults, found, looked = std::move(looked)](
                      const absl::Status& tried) mutable {
    found.status.Update(tried);
    Conclude(faults, found);
    if (looked) std::move(looked)();
    strand_.PostAfter(kPeriod, [this] { Look(nullptr); });
  };
  if (fault_.empty() || trial_ == nullptr || !found.status.ok()) {
    return conclude(absl::OkStatus());
  }
  trial_(std::move(conclude));
}

void NodeReadiness::Conclude(uint64_t faults, const Found& found) {
  if (faults != faults_) return;  // what it found was before the last fault
  left_ = std::max(left_ - kPeriod, absl::ZeroDuration());
  if (!found.status.ok()) {
    cause_seen_ = true;
    // Not how often it was seen: it would be news each time.
    Set(absl::StrCat(found.status.message(), "; looked at again each ",
                     absl::FormatDuration(kPeriod)));
    return;
  }
  const bool gone =
      cause_seen_ || found.mended || left_ == absl::ZeroDuration();
  if (gone) fault_.clear();
  Set(fault_);
}

void NodeReadiness::Set(std::string not_ready) {
  if (not_ready == not_ready_) return;
  not_ready_ = std::move(not_ready);
  on_change_(not_ready_);
}

}  // namespace cohort::worker

#include "worker/fitness.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/status_util.h"
#include "common/unique_fd.h"

namespace cohort::worker {
namespace {

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
  // At once: whoever dies now leaves nothing behind.
  unlink(path.c_str());
  const int error = TakeSpace(fd.get(), bytes);
  if (error == 0) return absl::OkStatus();
  // Not how much: it differs between looks, and would be news each time.
  return ErrnoStatus(error, absl::StrCat("write in ", directory));
}

Fitness::Fitness(FitnessOptions options, Executor& strand, Executor& disk,
                 Listener on_change)
    : options_(std::move(options)),
      strand_(strand),
      disk_(disk),
      on_change_(std::move(on_change)) {}

void Fitness::Start(absl::AnyInvocable<void() &&> looked) {
  Look(std::move(looked));
}

void Fitness::NoteFault(const absl::Status& why) {
  ++faults_;
  Set(std::string(why.message()));
}

void Fitness::Look(absl::AnyInvocable<void() &&> looked) {
  const int64_t times = unfit_.empty() ? 1 : 2;
  disk_.Post(
      [this, times, faults = faults_, looked = std::move(looked)]() mutable {
        absl::Status found;
        for (const NeededRoom& room : options_.rooms) {
          found.Update(CheckRoom(room.directory, times * room.bytes));
        }
        strand_.Post([this, faults, found = std::move(found),
                      looked = std::move(looked)]() mutable {
          if (faults == faults_) Set(std::string(found.message()));
          if (looked) std::move(looked)();
          strand_.PostAfter(options_.period, [this] { Look(nullptr); });
        });
      });
}

void Fitness::Set(std::string unfit) {
  if (unfit == unfit_) return;
  unfit_ = std::move(unfit);
  on_change_(unfit_);
}

}  // namespace cohort::worker

#include "shm/arena.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/round_up.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/unique_fd.h"
#include "shm/futex.h"

namespace cohort::shm {
namespace {

// Small allocations share a region.
constexpr size_t kRegionBytesMin = size_t{1} << 20;
constexpr size_t kAlignment = 64;

std::string ControlPath(const std::string& directory) {
  return absl::StrCat(directory, "/arena");
}

// One byte per place of the control file, past anything it will hold: locks may
// lie beyond the end of a file.
struct flock PlaceLock(int local_rank, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = (off_t{1} << 40) + local_rank;
  lock.l_len = 1;
  return lock;
}

absl::StatusOr<UniqueFd> OpenControlFile(const std::string& directory) {
  const std::string path = ControlPath(directory);
  UniqueFd file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file) {
    return ErrnoStatus(errno, absl::StrCat("opening ", path));
  }
  return file;
}

absl::Status CheckControl(const Segment& segment) {
  const auto& control =
      *reinterpret_cast<const layout::Control*>(segment.bytes().data());
  const bool fits =
      segment.bytes().size() >= sizeof(layout::Control) &&
      control.local_world >= 1 &&
      control.local_world <= uint32_t{kLocalRanksMax} &&
      control.slot_bytes == layout::kSlotBytes &&
      segment.bytes().size() ==
          sizeof(layout::Control) + control.local_world * layout::kSlotBytes &&
      memchr(control.attempt, 0, sizeof(control.attempt)) != nullptr;
  if (fits) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(segment.path(), ": the arena's header is damaged"));
}

}  // namespace

Arena::Arena(std::string directory, std::unique_ptr<Segment> segment,
             UniqueFd lock_file)
    : directory_(std::move(directory)),
      segment_(std::move(segment)),
      lock_file_(std::move(lock_file)) {}

absl::StatusOr<std::unique_ptr<Arena>> Arena::Create(
    const std::string& directory, const ArenaOptions& options) {
  if (options.local_world < 1 || options.local_world > kLocalRanksMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("an arena for ", options.local_world,
                     " local ranks: from 1 to ", kLocalRanksMax, " can be"));
  }
  if (options.attempt.empty() ||
      options.attempt.size() >= sizeof(layout::Control::attempt)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an attempt's name has 1 to 63 bytes, not ", options.attempt.size()));
  }
  const size_t body_bytes = sizeof(layout::Control) - sizeof(SegmentHeader) +
                            options.local_world * layout::kSlotBytes;
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<Segment> segment,
                          Segment::Create(ControlPath(directory),
                                          layout::kControlType, body_bytes));
  auto& control = *reinterpret_cast<layout::Control*>(segment->bytes().data());
  std::memcpy(control.attempt, options.attempt.data(), options.attempt.size());
  control.epoch = options.epoch;
  control.slot_bytes = static_cast<uint32_t>(layout::kSlotBytes);
  control.local_world = static_cast<uint32_t>(options.local_world);
  COHORT_ASSIGN_OR_RETURN(UniqueFd file, OpenControlFile(directory));
  return std::unique_ptr<Arena>(
      new Arena(directory, std::move(segment), std::move(file)));
}

absl::StatusOr<std::unique_ptr<Arena>> Arena::Open(
    const std::string& directory) {
  COHORT_ASSIGN_OR_RETURN(
      std::unique_ptr<Segment> segment,
      Segment::Open(ControlPath(directory), layout::kControlType));
  COHORT_RETURN_IF_ERROR(CheckControl(*segment));
  COHORT_ASSIGN_OR_RETURN(UniqueFd file, OpenControlFile(directory));
  return std::unique_ptr<Arena>(
      new Arena(directory, std::move(segment), std::move(file)));
}

bool Arena::IsWhole() const {
  struct stat info = {};
  return fstat(lock_file_.get(), &info) == 0 &&
         static_cast<uint64_t>(info.st_size) >= segment_->bytes().size();
}

layout::Control& Arena::control() const {
  return *reinterpret_cast<layout::Control*>(segment_->bytes().data());
}

layout::Slot& Arena::slot(int local_rank) const {
  COHORT_CHECK(local_rank >= 0 && local_rank < local_world());
  return *reinterpret_cast<layout::Slot*>(
      segment_->bytes().data() + sizeof(layout::Control) +
      static_cast<size_t>(local_rank) * layout::kSlotBytes);
}

absl::string_view Arena::attempt() const { return control().attempt; }

void Arena::Revoke(uint64_t epoch) {
  std::atomic<uint64_t>& word = control().revoked_epoch;
  uint64_t revoked = word.load();
  while (revoked < epoch && !word.compare_exchange_weak(revoked, epoch)) {
  }
  for (int rank = 0; rank < local_world(); ++rank) {
    std::atomic<uint32_t>& doorbell = slot(rank).doorbell;
    doorbell.fetch_add(1);
    FutexWakeAll(doorbell);
  }
}

uint64_t Arena::revoked_epoch() const { return control().revoked_epoch.load(); }

int32_t Arena::pid(int local_rank) const {
  return slot(local_rank).pid.load(std::memory_order_acquire);
}

bool Arena::IsHeld(int local_rank) const {
  COHORT_CHECK(local_rank >= 0 && local_rank < local_world());
  struct flock lock = PlaceLock(local_rank, F_WRLCK);
  // Cannot tell: believe that it lives; deadlines and the daemon will say.
  if (fcntl(lock_file_.get(), F_OFD_GETLK, &lock) != 0) return true;
  return lock.l_type != F_UNLCK;
}

MetricsCell Arena::metrics(int local_rank) const {
  return MetricsCell(slot(local_rank).metrics);
}

layout::Posted& Arena::posted(int local_rank, uint64_t round) const {
  return slot(local_rank).posted[round % 2];
}

ArenaPlace::ArenaPlace(std::unique_ptr<Arena> arena, int local_rank,
                       UniqueFd claim)
    : arena_(std::move(arena)),
      local_rank_(local_rank),
      claim_(std::move(claim)),
      peers_(arena_->local_world()) {}

absl::StatusOr<std::unique_ptr<ArenaPlace>> ArenaPlace::Claim(
    const std::string& directory, int local_rank) {
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<Arena> arena, Arena::Open(directory));
  if (local_rank < 0 || local_rank >= arena->local_world()) {
    return absl::InvalidArgumentError(
        absl::StrCat("local rank ", local_rank, " of an arena for ",
                     arena->local_world(), " in ", directory));
  }
  COHORT_ASSIGN_OR_RETURN(UniqueFd claim, OpenControlFile(directory));
  // Of the open file, not of the process: released when the last copy of the
  // descriptor is gone, which the kernel does for a killed process too.
  struct flock lock = PlaceLock(local_rank, F_WRLCK);
  if (fcntl(claim.get(), F_OFD_SETLK, &lock) != 0) {
    if (errno != EAGAIN && errno != EACCES) {
      return ErrnoStatus(errno,
                         absl::StrCat("locking ", ControlPath(directory)));
    }
    return absl::AlreadyExistsError(
        absl::StrCat("local rank ", local_rank, " in ", directory,
                     " is held by process ", arena->pid(local_rank)));
  }
  arena->slot(local_rank).pid.store(getpid(), std::memory_order_release);
  return std::unique_ptr<ArenaPlace>(
      new ArenaPlace(std::move(arena), local_rank, std::move(claim)));
}

std::string ArenaPlace::RegionPath(int rank, uint32_t region) const {
  return absl::StrCat(arena_->directory(), "/rank-", rank, ".", region);
}

absl::StatusOr<std::span<std::byte>> ArenaPlace::Allocate(size_t bytes) {
  const size_t padded = RoundUp(std::max(bytes, size_t{1}), kAlignment);
  if (padded < bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory of ", bytes, " bytes"));
  }
  if (regions_.empty() ||
      regions_.back().segment->body().size() - regions_.back().used_bytes <
          padded) {
    std::atomic<uint32_t>& count = arena_->slot(local_rank_).regions;
    const uint32_t index = count.load(std::memory_order_relaxed);
    if (index >= kRegionsMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat("local rank ", local_rank_, " took all of its ",
                       kRegionsMax, " regions in ", arena_->directory(),
                       "; allocate fewer, larger buffers"));
    }
    const std::string path = RegionPath(local_rank_, index);
    // A predecessor may have died before it counted this one; nobody knows it.
    unlink(path.c_str());
    COHORT_ASSIGN_OR_RETURN(std::unique_ptr<Segment> segment,
                            Segment::Create(path, layout::kDataType,
                                            std::max(padded, kRegionBytesMin)));
    regions_.push_back(Region{.index = index, .segment = std::move(segment)});
    count.store(index + 1, std::memory_order_release);
  }
  Region& region = regions_.back();
  const std::span<std::byte> taken =
      region.segment->body().subspan(region.used_bytes, bytes);
  region.used_bytes += padded;
  return taken;
}

std::optional<ArenaLocation> ArenaPlace::Locate(const void* data,
                                                size_t bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  for (const Region& region : regions_) {
    const std::span<std::byte> body = region.segment->body();
    const auto first = reinterpret_cast<uintptr_t>(body.data());
    if (begin < first || begin - first > body.size()) continue;
    if (bytes > body.size() - (begin - first)) continue;
    return ArenaLocation{region.index, begin - first};
  }
  return std::nullopt;
}

absl::StatusOr<std::byte*> ArenaPlace::MapPeer(int peer, ArenaLocation location,
                                               size_t bytes) {
  std::vector<std::unique_ptr<Segment>>& mapped = peers_[peer];
  if (location.region >= kRegionsMax) {
    return absl::DataLossError(absl::StrCat(
        "local rank ", peer, " names its region ", location.region));
  }
  if (mapped.size() <= location.region) mapped.resize(location.region + 1);
  std::unique_ptr<Segment>& segment = mapped[location.region];
  if (segment == nullptr) {
    COHORT_ASSIGN_OR_RETURN(
        segment,
        Segment::Open(RegionPath(peer, location.region), layout::kDataType));
  }
  const std::span<std::byte> body = segment->body();
  if (location.offset > body.size() || bytes > body.size() - location.offset) {
    return absl::DataLossError(
        absl::StrCat("local rank ", peer, " names bytes ", location.offset,
                     " to ", location.offset + bytes, " of ", segment->path(),
                     ", which has ", body.size()));
  }
  return body.data() + location.offset;
}

}  // namespace cohort::shm

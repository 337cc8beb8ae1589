#include "shm/ring_pair.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::shm {

struct RingPair::Layout {
  char token[kTokenBytes];  // with the layout's version as the first
  std::atomic<uint32_t> is_shared;
  RingHead heads[2];  // to who opened it, and back
  alignas(4096) std::byte data[2][kCapacity];
};

namespace {

constexpr char kVersion = 1;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Of a file that is not opened yet, since to open a device may do something.
absl::Status CheckFile(int file, size_t size_bytes) {
  struct stat info = {};
  if (fstat(file, &info) != 0) return ErrnoStatus(errno, "reading a ring");
  if (S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
      static_cast<size_t>(info.st_size) == size_bytes) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      "the other process's ring is another file");
}

}  // namespace

RingPair::RingPair(UniqueFd file, Layout* layout, bool is_creator)
    : file_(std::move(file)),
      layout_(layout),
      writer_({&layout->heads[is_creator ? 0 : 1],
               layout->data[is_creator ? 0 : 1], kCapacity}),
      reader_({&layout->heads[is_creator ? 1 : 0],
               layout->data[is_creator ? 1 : 0], kCapacity}) {}

RingPair::~RingPair() { munmap(layout_, sizeof(Layout)); }

absl::StatusOr<RingPair::Layout*> RingPair::Map(int file) {
  void* const base = mmap(nullptr, sizeof(Layout), PROT_READ | PROT_WRITE,
                          MAP_SHARED, file, 0);
  if (base == MAP_FAILED) return ErrnoStatus(errno, "mapping a ring");
  return static_cast<Layout*>(base);
}

absl::StatusOr<std::unique_ptr<RingPair>> RingPair::Create() {
  UniqueFd file(memfd_create("cohort-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return ErrnoStatus(errno, "creating a ring");
  // Its size is for good, so that no access can fail.
  if (ftruncate(file.get(), sizeof(Layout)) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    return ErrnoStatus(errno, "making room for a ring");
  }
  COHORT_ASSIGN_OR_RETURN(Layout* const layout, Map(file.get()));
  std::unique_ptr<RingPair> pair(
      new RingPair(std::move(file), layout, /*is_creator=*/true));
  if (getrandom(layout->token, kTokenBytes, 0) != kTokenBytes) {
    return ErrnoStatus(errno, "naming a ring");
  }
  layout->token[0] = kVersion;
  return pair;
}

absl::StatusOr<std::unique_ptr<RingPair>> RingPair::Open(
    const RingPlace& place) {
  const std::string path = absl::StrCat("/proc/", place.pid, "/fd/", place.fd);
  const UniqueFd found(open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!found) return ErrnoStatus(errno, absl::StrCat("opening ", path));
  COHORT_RETURN_IF_ERROR(CheckFile(found.get(), sizeof(Layout)));
  const UniqueFd file(open(absl::StrCat("/proc/self/fd/", found.get()).c_str(),
                           O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) return ErrnoStatus(errno, absl::StrCat("opening ", path));
  char token[kTokenBytes] = {};
  const bool is_it = (fcntl(file.get(), F_GET_SEALS) & kSeals) == kSeals &&
                     pread(file.get(), token, kTokenBytes, 0) == kTokenBytes &&
                     token[0] == kVersion &&
                     absl::string_view(token, kTokenBytes) == place.token;
  if (!is_it) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is not the ring that was offered"));
  }
  COHORT_ASSIGN_OR_RETURN(Layout* const layout, Map(file.get()));
  layout->is_shared.store(1, std::memory_order_release);
  return std::unique_ptr<RingPair>(
      new RingPair(UniqueFd(), layout, /*is_creator=*/false));
}

RingPlace RingPair::place() const {
  return {.pid = static_cast<uint32_t>(getpid()),
          .fd = static_cast<uint32_t>(file_.get()),
          .token = std::string(layout_->token, kTokenBytes)};
}

bool RingPair::IsShared() const {
  return layout_->is_shared.load(std::memory_order_acquire) != 0;
}

}  // namespace cohort::shm

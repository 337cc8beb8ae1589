#include "shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "common/status_util.h"
#include "common/unique_fd.h"

namespace cohort::shm {
namespace {

absl::Status NoRoom(const std::string& path, size_t needed_bytes) {
  const std::string directory =
      std::filesystem::path(path).parent_path().string();
  struct statvfs fs = {};
  const bool known = statvfs(directory.c_str(), &fs) == 0;
  return absl::ResourceExhaustedError(absl::StrCat(
      "no room for ", path, ": ", directory, " needs ", needed_bytes,
      " bytes and has ",
      known ? absl::StrCat(uint64_t{fs.f_bavail} * fs.f_frsize)
            : std::string("an unknown number of"),
      " free; free shared memory or give its file system more (size= of the "
      "mount, --shm-size of the container)"));
}

absl::Status TakeSpace(int fd, const std::string& path, size_t size_bytes) {
  int error = 0;
  do {
    error = posix_fallocate(fd, 0, static_cast<off_t>(size_bytes));
  } while (error == EINTR);
  if (error == 0) return absl::OkStatus();
  if (error == ENOSPC || error == EDQUOT || error == EFBIG || error == EINVAL ||
      error == ENOMEM) {
    return NoRoom(path, size_bytes);
  }
  return ErrnoStatus(error, absl::StrCat("taking space for ", path));
}

absl::StatusOr<std::byte*> Map(int fd, const std::string& path,
                               size_t size_bytes) {
  // Populated: page faults cost more than the copies that come later.
  void* const base = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_POPULATE, fd, 0);
  if (base == MAP_FAILED) {
    return ErrnoStatus(
        errno, absl::StrCat("mapping ", size_bytes, " bytes of ", path));
  }
  return static_cast<std::byte*>(base);
}

absl::Status CheckHeader(const SegmentHeader& header, const std::string& path,
                         SegmentType type, size_t file_bytes) {
  if (header.kind != static_cast<uint32_t>(type.kind)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is a segment of kind ", header.kind,
                     ", expected kind ", static_cast<uint32_t>(type.kind)));
  }
  if (header.layout_version != type.layout_version) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " has layout version ", header.layout_version, ", ",
        header.layout_version > type.layout_version ? "newer" : "older",
        " than the ", type.layout_version,
        " this build speaks; run worker and rank from one build"));
  }
  if (header.size_bytes != file_bytes) {
    return absl::DataLossError(absl::StrCat(path, " is ", file_bytes,
                                            " bytes long, its header says ",
                                            header.size_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Segment>> Segment::Create(
    const std::string& path, SegmentType type, size_t body_bytes) {
  const size_t size_bytes = sizeof(SegmentHeader) + body_bytes;
  const UniqueFd file(
      open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) {
    return ErrnoStatus(errno, absl::StrCat("creating ", path));
  }
  absl::Cleanup remove = [&path] { unlink(path.c_str()); };
  if (absl::Status taken = TakeSpace(file.get(), path, size_bytes);
      !taken.ok()) {
    return taken;
  }
  absl::StatusOr<std::byte*> base = Map(file.get(), path, size_bytes);
  if (!base.ok()) return base.status();

  auto& header = *reinterpret_cast<SegmentHeader*>(*base);
  header.layout_version = type.layout_version;
  header.kind = static_cast<uint32_t>(type.kind);
  header.size_bytes = size_bytes;
  std::atomic_ref(header.magic).store(kSegmentMagic, std::memory_order_release);
  std::move(remove).Cancel();
  return std::unique_ptr<Segment>(new Segment(path, *base, size_bytes));
}

absl::StatusOr<std::unique_ptr<Segment>> Segment::Open(const std::string& path,
                                                       SegmentType type) {
  const UniqueFd file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file) {
    return ErrnoStatus(errno, absl::StrCat("opening ", path));
  }
  struct stat info = {};
  if (fstat(file.get(), &info) != 0) {
    return ErrnoStatus(errno, absl::StrCat("reading ", path));
  }
  SegmentHeader header = {};
  const ssize_t got = pread(file.get(), &header, sizeof(header), 0);
  if (got != sizeof(header) || header.magic != kSegmentMagic) {
    return absl::DataLossError(
        absl::StrCat(path, " is not a cohort segment, or not a whole one"));
  }
  const size_t size_bytes = static_cast<size_t>(info.st_size);
  if (absl::Status checked = CheckHeader(header, path, type, size_bytes);
      !checked.ok()) {
    return checked;
  }
  absl::StatusOr<std::byte*> base = Map(file.get(), path, size_bytes);
  if (!base.ok()) return base.status();
  return std::unique_ptr<Segment>(new Segment(path, *base, size_bytes));
}

Segment::~Segment() { munmap(base_, size_bytes_); }

}  // namespace cohort::shm

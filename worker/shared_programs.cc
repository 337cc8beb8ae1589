#include "worker/shared_programs.h"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"

#include "common/file.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::worker {
namespace {

constexpr mode_t kProgramMode = 0555;
// Of the last change, as far as anybody may know.
constexpr timespec kProgramTime = {.tv_sec = 1, .tv_nsec = 0};

absl::Status CopyProgram(const std::string& from, const UniqueFd& place,
                         const std::string& name) {
  const UniqueFd source(open(from.c_str(), O_RDONLY | O_CLOEXEC));
  if (!source) return ErrnoStatus(errno, absl::StrCat("open ", from));
  const UniqueFd copy(openat(place.get(), name.c_str(),
                             O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755));
  if (!copy) return ErrnoStatus(errno, absl::StrCat("create ", name));
  for (;;) {
    const ssize_t n =
        sendfile(copy.get(), source.get(), nullptr, size_t{1} << 30);
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("copy ", from));
    if (n == 0) return absl::OkStatus();
  }
}

// SX-1.
absl::Status FinishProgram(int file, const std::string& part,
                           const std::string& path) {
  const timespec times[] = {kProgramTime, kProgramTime};
  if (fchmod(file, kProgramMode) != 0 || futimens(file, times) != 0 ||
      fsync(file) != 0 || rename(part.c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("keep ", path));
  }
  return absl::OkStatus();
}

}  // namespace

std::string SharedPrograms::Path(int number) const {
  return absl::StrCat(directory_, "/", number);
}

bool SharedPrograms::IsOne(const struct stat& file) {
  return (file.st_mode & 07777) == kProgramMode && IsUnwritten(file);
}

bool SharedPrograms::IsUnwritten(const struct stat& file) {
  return S_ISREG(file.st_mode) && file.st_mtim.tv_sec == kProgramTime.tv_sec &&
         file.st_mtim.tv_nsec == kProgramTime.tv_nsec;
}

bool SharedPrograms::Has(int number, int64_t size_bytes) const {
  struct stat file;
  return lstat(Path(number).c_str(), &file) == 0 && IsOne(file) &&
         file.st_size == size_bytes;
}

absl::Status SharedPrograms::Add(
    int number, absl::FunctionRef<absl::Status(int file)> write) {
  COHORT_RETURN_IF_ERROR(MakeDirectories(directory_, 0700));
  const std::string part = Path(number) + ".part";
  unlink(part.c_str());  // from a daemon that died
  const UniqueFd file(
      open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700));
  if (!file) return ErrnoStatus(errno, absl::StrCat("create ", part));
  absl::Status status = write(file.get());
  if (status.ok()) status = FinishProgram(file.get(), part, Path(number));
  // It may be what filled the disk.
  if (!status.ok()) unlink(part.c_str());
  return status;
}

absl::Status SharedPrograms::Give(int number, const UniqueFd& place,
                                  const std::string& name) const {
  const std::string path = Path(number);
  if (linkat(AT_FDCWD, path.c_str(), place.get(), name.c_str(), 0) == 0) {
    return absl::OkStatus();
  }
  // Another file system, one without links, or as many as a file may have.
  if (errno != EEXIST) return CopyProgram(path, place, name);
  return ErrnoStatus(errno, absl::StrCat("link ", name));
}

}  // namespace cohort::worker

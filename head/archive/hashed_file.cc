#include "head/archive/hashed_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/file.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/unique_fd.h"

namespace cohort::head {
namespace {

constexpr size_t kPieceBytes = 1 << 20;

absl::Status Failed(absl::string_view action, const std::string& path) {
  const int error = errno;
  if (error != ENOSPC && error != EDQUOT) {
    return ErrnoStatus(error, absl::StrCat(action, " ", path));
  }
  return ErrnoStatus(
      error, absl::StrCat("the disk under ", ParentDirectory(path),
                          " has no room for ", path, ": free space on it"));
}

absl::Status WriteAll(int fd, const std::string& path,
                      absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("write", path);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<HashedFile> CopyAndHash(const std::string& from,
                                       const std::string& to, mode_t mode) {
  const UniqueFd in(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
  if (!in) return Failed("open", from);
  UniqueFd out(
      ::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!out) return Failed("create", to);
  if (::fchmod(out.get(), mode) != 0) return Failed("chmod", to);
  HashedFile file;
  Sha256 hash;
  std::vector<char> piece(kPieceBytes);
  while (true) {
    const ssize_t n = ::read(in.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("read", from);
    if (n == 0) break;
    const absl::string_view bytes(piece.data(), static_cast<size_t>(n));
    hash.Update(bytes);
    file.size_bytes += n;
    COHORT_RETURN_IF_ERROR(WriteAll(out.get(), to, bytes));
  }
  file.hash = hash.Finish();
  if (::fsync(out.get()) != 0) return Failed("sync", to);
  // Some file systems report a full disk only here.
  if (::close(out.Release()) != 0) return Failed("close", to);
  return file;
}

}  // namespace cohort::head

#include "head/archive/hashed_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/status_util.h"
#include "common/unique_fd.h"

namespace cohort::head {

absl::StatusOr<BackupManifest::File> CopyAndHash(const std::string& from,
                                                 const std::string& directory,
                                                 const std::string& name) {
  const std::string to = absl::StrCat(directory, "/", name);
  const auto failed = [&from, &to](int error) {
    return ErrnoStatus(error, absl::StrCat("copy ", from, " to ", to));
  };
  std::error_code error;
  std::filesystem::copy_file(from, to, error);
  if (error) return failed(error.value());
  UniqueFd copy(::open(to.c_str(), O_RDONLY | O_CLOEXEC));
  if (!copy || ::fchmod(copy.get(), 0600) != 0) return failed(errno);
  BackupManifest::File file{.name = name, .size_bytes = 0, .hash = {}};
  Sha256 hash;
  std::vector<char> piece(1 << 20);
  while (const ssize_t n = ::read(copy.get(), piece.data(), piece.size())) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(errno);
    hash.Update(absl::string_view(piece.data(), static_cast<size_t>(n)));
    file.size_bytes += n;
  }
  file.hash = hash.Finish();
  if (::fsync(copy.get()) != 0) return failed(errno);
  // Some file systems report a full disk only here.
  if (::close(copy.Release()) != 0) return failed(errno);
  return file;
}

}  // namespace cohort::head

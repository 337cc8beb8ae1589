#include "trainer/durable_file.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/file.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/unique_fd.h"

namespace cohort::trainer {
namespace {

// A write(2) of more than 2 GiB is cut by the kernel anyway.
constexpr size_t kWriteBytesMax = size_t{1} << 30;

absl::Status FileError(int error, absl::string_view what,
                       const std::string& path) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  absl::Status status = ErrnoStatus(error, absl::StrCat(what, " ", path));
  if (!full) return status;
  return absl::ResourceExhaustedError(absl::StrCat(
      status.message(), ": make room there or choose another --storage-path"));
}

struct DigestDeleter {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

}  // namespace

struct DurableFile::Hash {
  Hash() : context(EVP_MD_CTX_new()) {
    COHORT_CHECK(context != nullptr &&
                 EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1);
  }
  void Update(std::span<const std::byte> bytes) {
    COHORT_CHECK(EVP_DigestUpdate(context.get(), bytes.data(), bytes.size()) ==
                 1);
  }
  std::string Hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    COHORT_CHECK(EVP_DigestFinal_ex(context.get(), digest, &size) == 1);
    return absl::BytesToHexString(
        absl::string_view(reinterpret_cast<char*>(digest), size));
  }
  std::unique_ptr<EVP_MD_CTX, DigestDeleter> context;
};

absl::StatusOr<DurableFile> DurableFile::Create(const std::string& path) {
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return FileError(errno, "create", path);
  return DurableFile(path, fd);
}

DurableFile::DurableFile(std::string path, int fd)
    : path_(std::move(path)), fd_(fd), hash_(std::make_unique<Hash>()) {}

DurableFile::DurableFile(DurableFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      hash_(std::move(other.hash_)),
      sha256_(std::move(other.sha256_)) {}

DurableFile& DurableFile::operator=(DurableFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(hash_, other.hash_);
  std::swap(sha256_, other.sha256_);
  return *this;
}

DurableFile::~DurableFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status DurableFile::Append(std::span<const std::byte> bytes) {
  hash_->Update(bytes);
  while (!bytes.empty()) {
    const ssize_t n =
        write(fd_, bytes.data(), std::min(bytes.size(), kWriteBytesMax));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(errno, "write", path_);
    size_ += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status DurableFile::Finish() {
  if (fsync(fd_) != 0) return FileError(errno, "sync", path_);
  if (close(std::exchange(fd_, -1)) != 0) {
    return FileError(errno, "close", path_);
  }
  sha256_ = hash_->Hex();
  return absl::OkStatus();
}

absl::Status MakeDurableDirectories(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return absl::OkStatus();
  const std::string parent = ParentDirectory(path);
  // Each has a shorter path than the one before.
  if (parent.size() < path.size()) {
    COHORT_RETURN_IF_ERROR(MakeDurableDirectories(parent));
  }
  COHORT_RETURN_IF_ERROR(MakeDirectories(path, 0755));
  return SyncDirectory(parent);
}

absl::Status RenameInto(const std::string& from, const std::string& to) {
  // NOREPLACE: an empty directory of that name would silently be replaced.
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(),
                RENAME_NOREPLACE) == 0) {
    return absl::OkStatus();
  }
  // Some network file systems do not know the flag.
  if (errno == EINVAL && rename(from.c_str(), to.c_str()) == 0) {
    return absl::OkStatus();
  }
  return FileError(errno, "rename to", to);
}

absl::StatusOr<std::vector<std::byte>> ReadWholeFile(const std::string& path,
                                                     size_t bytes_max) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return FileError(errno, "open", path);
  struct stat facts {};
  if (fstat(file.get(), &facts) != 0) return FileError(errno, "stat", path);
  if (!S_ISREG(facts.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a file"));
  }
  const auto size = static_cast<size_t>(facts.st_size);
  if (size > bytes_max) {
    return absl::OutOfRangeError(absl::StrCat(path, " has ", size,
                                              " bytes, more than the ",
                                              bytes_max, " that are read"));
  }
  std::vector<std::byte> bytes(size);
  size_t done = 0;
  while (done < size) {
    const ssize_t n = read(file.get(), bytes.data() + done,
                           std::min(size - done, kWriteBytesMax));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(errno, "read", path);
    if (n == 0) break;  // cut meanwhile; the checksum tells
    done += static_cast<size_t>(n);
  }
  bytes.resize(done);
  return bytes;
}

std::string Sha256Hex(std::span<const std::byte> bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  COHORT_CHECK(EVP_Digest(bytes.data(), bytes.size(), digest, &size,
                          EVP_sha256(), nullptr) == 1);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<char*>(digest), size));
}

}  // namespace cohort::trainer

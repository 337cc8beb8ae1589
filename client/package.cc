#include "client/package.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

#include "client/tar_writer.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort {
namespace {

constexpr size_t kReadBytes = 256 << 10;

absl::StatusOr<UniqueFd> UnnamedFile(const std::string& wanted) {
  std::string directory = wanted;
  if (directory.empty()) {
    const char* variable = std::getenv("TMPDIR");
    directory =
        variable == nullptr || *variable == '\0' ? "/var/tmp" : variable;
  }
  UniqueFd file(open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file) return file;
  // Some file systems have no unnamed files.
  std::string name = directory + "/cohort-package-XXXXXX";
  file.Reset(mkostemp(name.data(), O_CLOEXEC));
  if (!file) {
    return ErrnoStatus(errno,
                       absl::StrCat("make a temporary file in ", directory,
                                    " (TMPDIR names another directory)"));
  }
  unlink(name.c_str());
  return file;
}

// Whether it is the same file with the same content: what is written meanwhile
// shows in size or time.
bool IsUnchanged(const struct stat& before, const struct stat& now) {
  return before.st_dev == now.st_dev && before.st_ino == now.st_ino &&
         before.st_mode == now.st_mode && before.st_size == now.st_size &&
         before.st_mtim.tv_sec == now.st_mtim.tv_sec &&
         before.st_mtim.tv_nsec == now.st_mtim.tv_nsec;
}

// Packs one archive.
class Packer {
 public:
  Packer(UniqueFd file, const PackageOptions& options)
      : options_(options),
        writer_(std::move(file), options.size_bytes_max),
        buffer_(kReadBytes, '\0') {}

  absl::Status Add(const PackageFiles::Entry& entry) {
    if (entry.is_directory()) return writer_.AddDirectory(entry.name);
    if (!entry.link.empty()) return writer_.AddLink(entry.name, entry.link);
    // Since it was listed it may have become a link, or a pipe, which opening
    // would wait for.
    const UniqueFd file(
        open(entry.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!file) return CannotPack(entry.path, errno);
    COHORT_RETURN_IF_ERROR(
        writer_.AddFile(entry.name, entry.size_bytes(), entry.is_executable()));
    COHORT_RETURN_IF_ERROR(CopyBytes(entry, file.get()));
    return writer_.EndFile();
  }

  absl::Status Finish() { return writer_.Finish(); }
  client::TarWriter& writer() { return writer_; }

 private:
  absl::Status CopyBytes(const PackageFiles::Entry& entry, int file) {
    int64_t left = entry.size_bytes();
    do {
      // One byte more than was listed: then it shows when there are more.
      const size_t wanted = static_cast<size_t>(
          std::min(left + 1, static_cast<int64_t>(buffer_.size())));
      const ssize_t n = read(file, buffer_.data(), wanted);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return CannotPack(entry.path, errno);
      if (n > left || (n == 0 && left > 0)) return Changed(entry);
      COHORT_RETURN_IF_ERROR(writer_.AddBytes(
          absl::string_view(buffer_).substr(0, static_cast<size_t>(n))));
      left -= n;
      packed_ += n;
      if (options_.on_progress) options_.on_progress(packed_);
    } while (left > 0);
    struct stat now;
    if (fstat(file, &now) != 0) return CannotPack(entry.path, errno);
    return IsUnchanged(entry.info, now) ? absl::OkStatus() : Changed(entry);
  }

  static absl::Status Changed(const PackageFiles::Entry& entry) {
    return CannotPack(entry.path,
                      "it changed while it was packed; submit again, or leave "
                      "it out with --exclude");
  }

  const PackageOptions& options_;
  client::TarWriter writer_;
  std::string buffer_;
  int64_t packed_ = 0;
};

}  // namespace

Package::Package(UniqueFd file, Digest hash, int64_t size_bytes)
    : file_(std::move(file)), hash_(hash), size_bytes_(size_bytes) {}

absl::StatusOr<Package> Package::Pack(const PackageFiles& files,
                                      const PackageOptions& options) {
  // Known before much is read.
  COHORT_RETURN_IF_ERROR(
      client::CheckArchiveSize(files.size_bytes(), options.size_bytes_max));
  COHORT_ASSIGN_OR_RETURN(UniqueFd file,
                          UnnamedFile(options.temporary_directory));
  Packer packer(std::move(file), options);
  for (const PackageFiles::Entry& entry : files.entries) {
    COHORT_RETURN_IF_ERROR(packer.Add(entry));
  }
  COHORT_RETURN_IF_ERROR(packer.Finish());
  client::TarWriter& archive = packer.writer();
  return Package(archive.TakeFile(), archive.TakeHash(), archive.size_bytes());
}

absl::StatusOr<std::string> Package::Read(int64_t offset,
                                          size_t bytes_max) const {
  const int64_t wanted =
      std::min(static_cast<int64_t>(bytes_max), size_bytes_ - offset);
  if (offset < 0 || wanted <= 0) return std::string();
  std::string bytes(static_cast<size_t>(wanted), '\0');
  size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t n =
        pread(file_.get(), bytes.data() + have, bytes.size() - have,
              offset + static_cast<int64_t>(have));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "read the package's temporary file");
    if (n == 0) {
      return absl::DataLossError("the package's temporary file became shorter");
    }
    have += static_cast<size_t>(n);
  }
  return bytes;
}

}  // namespace cohort

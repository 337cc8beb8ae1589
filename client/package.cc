#include "client/package.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "client/tar_writer.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort {
namespace {

constexpr size_t kReadBytes = 256 << 10;

// What cannot be packed, why, and what to do: the user's to fix.
absl::Status Refuse(absl::string_view path, absl::string_view why) {
  return SetReason(absl::InvalidArgumentError(absl::StrCat(
                       "cannot pack ", absl::Utf8SafeCEscape(path), ": ", why)),
                   "cannot_pack");
}

absl::Status RefuseErrno(int error, absl::string_view path) {
  return Refuse(path, absl::StrCat(std::strerror(error),
                                   error == ENOENT
                                       ? "; check the name"
                                       : "; make it readable or leave it out"));
}

absl::string_view KindOf(mode_t mode) {
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

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

absl::StatusOr<std::vector<std::string>> SortedNames(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(path.c_str()),
                                                      &closedir);
  if (directory == nullptr) return RefuseErrno(errno, path);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(directory.get());
    if (entry == nullptr) break;
    const absl::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return RefuseErrno(errno, path);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

// Packs one archive.
class Packer {
 public:
  static absl::StatusOr<Packer> Create(const PackageOptions& options) {
    COHORT_ASSIGN_OR_RETURN(UniqueFd file,
                            UnnamedFile(options.temporary_directory));
    return Packer(std::move(file), options);
  }

  // What lies in `path`, below `prefix` ("" or "a/b/").
  absl::Status AddTree(const std::string& path, const std::string& prefix) {
    COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                            SortedNames(path));
    for (const std::string& name : names) {
      const std::string below = absl::StrCat(path, "/", name);
      struct stat info;
      if (lstat(below.c_str(), &info) != 0) return RefuseErrno(errno, below);
      if (!S_ISDIR(info.st_mode)) {
        COHORT_RETURN_IF_ERROR(AddFile(below, prefix + name));
        continue;
      }
      COHORT_RETURN_IF_ERROR(CountEntry(below));
      COHORT_RETURN_IF_ERROR(writer_.AddDirectory(prefix + name));
      COHORT_RETURN_IF_ERROR(AddTree(below, absl::StrCat(prefix, name, "/")));
    }
    return absl::OkStatus();
  }

  absl::Status AddFile(const std::string& path, const std::string& name) {
    COHORT_RETURN_IF_ERROR(CountEntry(path));
    // O_NONBLOCK: opening a pipe would wait for a writer.
    const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW |
                                               O_NONBLOCK | O_NOCTTY));
    const int open_error = errno;
    struct stat info;
    if (lstat(path.c_str(), &info) != 0) return RefuseErrno(errno, path);
    COHORT_RETURN_IF_ERROR(CheckKind(path, info));
    if (!file) return RefuseErrno(open_error, path);
    if (fstat(file.get(), &info) != 0) return RefuseErrno(errno, path);
    COHORT_RETURN_IF_ERROR(CheckKind(path, info));
    COHORT_RETURN_IF_ERROR(
        writer_.AddFile(name, info.st_size, (info.st_mode & S_IXUSR) != 0));
    COHORT_RETURN_IF_ERROR(CopyBytes(path, file.get(), info.st_size));
    return writer_.EndFile();
  }

  absl::StatusOr<Package> Finish() && {
    COHORT_RETURN_IF_ERROR(writer_.Finish());
    const int64_t size_bytes = writer_.size_bytes();
    return Package(writer_.TakeFile(), writer_.TakeHash(), size_bytes);
  }

 private:
  Packer(UniqueFd file, const PackageOptions& options)
      : entries_max_(options.entries_max),
        writer_(std::move(file), options.size_bytes_max) {}

  absl::Status CountEntry(const std::string& path) {
    if (++entries_ <= entries_max_) return absl::OkStatus();
    return Refuse(path, absl::StrCat("there are more than ", entries_max_,
                                     " files and directories; pack them into "
                                     "one file or share the directory"));
  }

  absl::Status CheckKind(const std::string& path, const struct stat& info) {
    if (S_ISLNK(info.st_mode)) {
      return Refuse(path,
                    "it is a symbolic link; put the file that it names in its "
                    "place (cp -L) or leave it out");
    }
    if (S_ISDIR(info.st_mode)) {
      return Refuse(path, "it is a directory; pack it with --working-dir");
    }
    if (!S_ISREG(info.st_mode)) {
      return Refuse(path, absl::StrCat("it is ", KindOf(info.st_mode),
                                       "; only plain files and directories "
                                       "can be packed"));
    }
    if (info.st_nlink < 2) return absl::OkStatus();
    const auto [other, is_first] =
        names_.try_emplace({info.st_dev, info.st_ino}, path);
    if (is_first || other->second == path) return absl::OkStatus();
    return Refuse(path, absl::StrCat("it is a hard link to ", other->second,
                                     "; make it a file of its own (cp) or "
                                     "leave it out"));
  }

  absl::Status CopyBytes(const std::string& path, int file, int64_t size) {
    std::string buffer(kReadBytes, '\0');
    int64_t copied = 0;
    for (;;) {
      const ssize_t n = read(file, buffer.data(), buffer.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return RefuseErrno(errno, path);
      copied += n;
      if (copied > size || (n == 0 && copied < size)) {
        return Refuse(path, "it changed while it was packed; try again");
      }
      if (n == 0) return absl::OkStatus();
      COHORT_RETURN_IF_ERROR(writer_.AddBytes(
          absl::string_view(buffer).substr(0, static_cast<size_t>(n))));
    }
  }

  const int entries_max_;
  int entries_ = 0;
  client::TarWriter writer_;
  // Files that have more than one name somewhere: the first one met.
  std::map<std::pair<dev_t, ino_t>, std::string> names_;
};

Package::Package(UniqueFd file, Digest hash, int64_t size_bytes)
    : file_(std::move(file)), hash_(hash), size_bytes_(size_bytes) {}

absl::StatusOr<Package> Package::FromDirectory(const std::string& directory,
                                               PackageOptions options) {
  struct stat info;
  if (stat(directory.c_str(), &info) != 0) {
    return Refuse(directory, absl::StrCat(std::strerror(errno),
                                          "; give a directory that is there"));
  }
  if (!S_ISDIR(info.st_mode)) {
    return Refuse(directory, "it is not a directory; pack a file with --file");
  }
  COHORT_ASSIGN_OR_RETURN(Packer packer, Packer::Create(options));
  COHORT_RETURN_IF_ERROR(packer.AddTree(directory, ""));
  return std::move(packer).Finish();
}

absl::StatusOr<Package> Package::FromFiles(
    const std::vector<std::string>& files, PackageOptions options) {
  std::map<std::string, std::string> by_name;
  for (const std::string& file : files) {
    const std::string name = file.substr(file.rfind('/') + 1);
    if (name.empty() || name == "." || name == "..") {
      return Refuse(file,
                    "it names no file; pack a directory with "
                    "--working-dir");
    }
    const auto [other, is_new] = by_name.try_emplace(name, file);
    if (!is_new) {
      return Refuse(file, absl::StrCat(other->second, " has the same name, ",
                                       name, "; rename one of them"));
    }
  }
  COHORT_ASSIGN_OR_RETURN(Packer packer, Packer::Create(options));
  for (const auto& [name, file] : by_name) {
    COHORT_RETURN_IF_ERROR(packer.AddFile(file, name));
  }
  return std::move(packer).Finish();
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

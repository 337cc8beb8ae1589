#include "worker/keeper/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace cohort::keeper {
namespace {

// 0 or errno.
int WriteAll(int fd, const std::string& bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t n = pwrite(fd, bytes.data() + at, bytes.size() - at,
                             static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    at += static_cast<size_t>(n);
  }
  return 0;
}

// All bytes of a file that was just opened, or errno when it was not.
std::optional<std::string> ReadAll(const UniqueFd& fd, size_t bytes_max,
                                   int* error_number) {
  if (!fd) {
    *error_number = errno;
    return std::nullopt;
  }
  std::string bytes;
  char buffer[16384];
  while (true) {
    const ssize_t n = read(fd.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) *error_number = errno;
    if (n < 0) return std::nullopt;
    if (n == 0) return bytes;
    bytes.append(buffer, static_cast<size_t>(n));
    if (bytes.size() > bytes_max) {
      *error_number = EFBIG;
      return std::nullopt;
    }
  }
}

std::string SyncDirectory(const Directory& dir) {
  if (fsync(dir.fd()) != 0) return ErrnoText("sync", dir.path(), errno);
  return "";
}

// What a file is called until it is whole.
std::string HiddenName(const std::string& name) { return "." + name; }

std::string PathIn(const Directory& dir, const std::string& name) {
  return dir.path() + "/" + name;
}

UniqueFd CreateHidden(const Directory& dir, const std::string& name) {
  return UniqueFd(openat(dir.fd(), HiddenName(name).c_str(),
                         O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
}

void RemoveHidden(const Directory& dir, const std::string& name) {
  unlinkat(dir.fd(), HiddenName(name).c_str(), 0);
}

// Gives the written file `fd` its name.
std::string Publish(int fd, const Directory& dir, const std::string& name,
                    Durability durability) {
  const std::string hidden = HiddenName(name);
  const bool sync = durability == Durability::kPowerLoss;
  if (sync && fsync(fd) != 0) {
    return ErrnoText("sync", PathIn(dir, hidden), errno);
  }
  if (renameat(dir.fd(), hidden.c_str(), dir.fd(), name.c_str()) != 0) {
    return ErrnoText("rename to", PathIn(dir, name), errno);
  }
  return sync ? SyncDirectory(dir) : "";
}

}  // namespace

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    Reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void UniqueFd::Reset() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

Directory::Directory(std::string path)
    : path_(std::move(path)),
      fd_(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (!fd_) error_ = ErrnoText("open", path_, errno);
}

std::string ErrnoText(const std::string& what, const std::string& path,
                      int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  return what + " " + path + ": " + std::strerror(error) +
         (full ? ": free space there" : "");
}

std::optional<std::string> ReadWhole(const std::string& path, size_t bytes_max,
                                     int* error_number) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return ReadAll(fd, bytes_max, error_number);
}

std::optional<std::string> ReadWhole(const Directory& dir,
                                     const std::string& name, size_t bytes_max,
                                     int* error_number) {
  const UniqueFd fd(openat(dir.fd(), name.c_str(), O_RDONLY | O_CLOEXEC));
  return ReadAll(fd, bytes_max, error_number);
}

std::string WriteByRename(const Directory& dir, const std::string& name,
                          const std::string& bytes, Durability durability) {
  const std::string hidden = PathIn(dir, HiddenName(name));
  const UniqueFd fd = CreateHidden(dir, name);
  if (!fd) return ErrnoText("create", hidden, errno);
  std::string error;
  if (const int failed = WriteAll(fd.get(), bytes); failed != 0) {
    error = ErrnoText("write", hidden, failed);
  } else {
    error = Publish(fd.get(), dir, name, durability);
  }
  if (!error.empty()) RemoveHidden(dir, name);
  return error;
}

std::string WriteByRename(const std::string& dir, const std::string& name,
                          const std::string& bytes, Durability durability) {
  const Directory directory(dir);
  if (!directory.error().empty()) return directory.error();
  return WriteByRename(directory, name, bytes, durability);
}

std::string ReservedFile::Reserve(const Directory& dir, const std::string& name,
                                  size_t bytes_max) {
  dir_ = &dir;
  name_ = name;
  const std::string hidden = PathIn(dir, HiddenName(name));
  file_ = CreateHidden(dir, name);
  if (!file_) return ErrnoText("create", hidden, errno);
  const int failed =
      posix_fallocate(file_.get(), 0, static_cast<off_t>(bytes_max));
  if (failed == 0) return "";
  Discard();
  return ErrnoText("take disk space for", hidden, failed);
}

std::string ReservedFile::Commit(const std::string& bytes) {
  const std::string hidden = PathIn(*dir_, HiddenName(name_));
  if (const int failed = WriteAll(file_.get(), bytes); failed != 0) {
    return ErrnoText("write", hidden, failed);
  }
  if (ftruncate(file_.get(), static_cast<off_t>(bytes.size())) != 0) {
    return ErrnoText("truncate", hidden, errno);
  }
  return Publish(file_.get(), *dir_, name_, Durability::kCrash);
}

std::string ReservedFile::Sync() {
  if (fsync(file_.get()) != 0) {
    return ErrnoText("sync", PathIn(*dir_, name_), errno);
  }
  file_.Reset();
  return SyncDirectory(*dir_);
}

void ReservedFile::Discard() {
  if (!file_) return;
  RemoveHidden(*dir_, name_);
  file_.Reset();
}

std::vector<std::string> ListDirectory(const std::string& dir,
                                       int* error_number) {
  std::vector<std::string> names;
  DIR* const stream = opendir(dir.c_str());
  *error_number = stream == nullptr ? errno : 0;
  if (stream == nullptr) return names;
  while (const dirent* entry = readdir(stream)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  closedir(stream);
  return names;
}

std::string MakeDirectories(const std::string& path) {
  int error = mkdir(path.c_str(), 0700) == 0 ? 0 : errno;
  const size_t slash = path.rfind('/');
  if (error == ENOENT && slash != std::string::npos && slash > 0) {
    const std::string failed = MakeDirectories(path.substr(0, slash));
    if (!failed.empty()) return failed;
    error = mkdir(path.c_str(), 0700) == 0 ? 0 : errno;
  }
  return error == 0 || error == EEXIST
             ? ""
             : ErrnoText("make directory", path, error);
}

}  // namespace cohort::keeper

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

std::string SyncDirectory(const std::string& dir) {
  const UniqueFd fd(open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || fsync(fd.get()) != 0) return ErrnoText("sync", dir, errno);
  return "";
}

std::string HiddenPath(const std::string& dir, const std::string& name) {
  return dir + "/." + name;
}

// Gives the written file `fd` its name.
std::string Publish(int fd, const std::string& dir, const std::string& name,
                    Durability durability) {
  const std::string hidden = HiddenPath(dir, name);
  const bool sync = durability == Durability::kPowerLoss;
  if (sync && fsync(fd) != 0) return ErrnoText("sync", hidden, errno);
  const std::string path = dir + "/" + name;
  if (rename(hidden.c_str(), path.c_str()) != 0) {
    return ErrnoText("rename to", path, errno);
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

std::string ErrnoText(const std::string& what, const std::string& path,
                      int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  return what + " " + path + ": " + std::strerror(error) +
         (full ? ": free space there" : "");
}

std::optional<std::string> ReadWhole(const std::string& path, size_t bytes_max,
                                     int* error_number) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
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

std::string WriteByRename(const std::string& dir, const std::string& name,
                          const std::string& bytes, Durability durability) {
  const std::string hidden = HiddenPath(dir, name);
  const UniqueFd fd(
      open(hidden.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd) return ErrnoText("create", hidden, errno);
  std::string error;
  if (const int failed = WriteAll(fd.get(), bytes); failed != 0) {
    error = ErrnoText("write", hidden, failed);
  } else {
    error = Publish(fd.get(), dir, name, durability);
  }
  if (!error.empty()) unlink(hidden.c_str());
  return error;
}

std::string ReservedFile::Reserve(const std::string& dir,
                                  const std::string& name, size_t bytes_max) {
  dir_ = dir;
  name_ = name;
  const std::string hidden = HiddenPath(dir, name);
  file_ = UniqueFd(
      open(hidden.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file_) return ErrnoText("create", hidden, errno);
  const int failed =
      posix_fallocate(file_.get(), 0, static_cast<off_t>(bytes_max));
  if (failed == 0) return "";
  Discard();
  return ErrnoText("take disk space for", hidden, failed);
}

std::string ReservedFile::Commit(const std::string& bytes) {
  const std::string hidden = HiddenPath(dir_, name_);
  if (const int failed = WriteAll(file_.get(), bytes); failed != 0) {
    return ErrnoText("write", hidden, failed);
  }
  if (ftruncate(file_.get(), static_cast<off_t>(bytes.size())) != 0) {
    return ErrnoText("truncate", hidden, errno);
  }
  return Publish(file_.get(), dir_, name_, Durability::kCrash);
}

std::string ReservedFile::Sync() {
  if (fsync(file_.get()) != 0) {
    return ErrnoText("sync", dir_ + "/" + name_, errno);
  }
  file_.Reset();
  return SyncDirectory(dir_);
}

void ReservedFile::Discard() {
  if (!file_) return;
  unlink(HiddenPath(dir_, name_).c_str());
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
  for (size_t slash = path.find('/', 1); true;
       slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      return ErrnoText("make directory", part, errno);
    }
    if (slash == std::string::npos) return "";
  }
}

}  // namespace cohort::keeper

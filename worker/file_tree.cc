#include "worker/file_tree.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/file.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "worker/shared_programs.h"

namespace cohort::worker {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFoundMax = 1'000'000;
// Of directories: a descriptor is open for each while it is looked through.
constexpr int kLevelsMax = 256;

// Removes what is in the way of a file at `root`/`path`: a file where one of
// its directories is to be, a directory where it is.
absl::Status MakeRoom(const std::string& root, const std::string& path) {
  struct stat info;
  for (size_t end = path.find('/'); end != std::string::npos;
       end = path.find('/', end + 1)) {
    const std::string parent = absl::StrCat(root, "/", path.substr(0, end));
    if (lstat(parent.c_str(), &info) != 0) return absl::OkStatus();
    if (!S_ISDIR(info.st_mode)) return RemoveTree(parent);
  }
  const std::string whole = absl::StrCat(root, "/", path);
  const bool in_the_way =
      lstat(whole.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  return in_the_way ? RemoveTree(whole) : absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<FoundFile>> FilesBelow(const std::string& root) {
  std::vector<FoundFile> found;
  std::error_code error;
  fs::recursive_directory_iterator each(
      root, fs::directory_options::skip_permission_denied, error);
  if (error == std::errc::no_such_file_or_directory) return found;
  for (; !error && each != fs::recursive_directory_iterator() &&
         found.size() < kFoundMax;
       each.increment(error)) {
    FoundFile file;
    if (lstat(each->path().c_str(), &file.info) != 0) continue;  // just gone
    if (S_ISDIR(file.info.st_mode)) {
      if (each->path().filename() == "__pycache__" ||
          each.depth() + 1 >= kLevelsMax) {
        each.disable_recursion_pending();
      }
      continue;
    }
    if (!S_ISREG(file.info.st_mode) && !S_ISLNK(file.info.st_mode)) continue;
    file.path = each->path().lexically_relative(root).string();
    found.push_back(std::move(file));
  }
  if (error) return ErrnoStatus(error.value(), absl::StrCat("list ", root));
  return found;
}

int64_t BytesBelow(const std::string& root) {
  int64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator each(
           root, fs::directory_options::skip_permission_denied, error);
       !error && each != fs::recursive_directory_iterator();
       each.increment(error)) {
    struct stat info;
    if (each.depth() + 1 >= kLevelsMax) each.disable_recursion_pending();
    if (lstat(each->path().c_str(), &info) != 0) continue;  // just gone
    if (!S_ISDIR(info.st_mode)) bytes += info.st_size;
  }
  return bytes;
}

std::string LinkTarget(const std::string& root, const std::string& path) {
  std::error_code error;
  const fs::path target =
      fs::read_symlink(absl::StrCat(root, "/", path), error);
  if (!target.is_absolute()) return target;
  for (const fs::path& base : {fs::path(root), fs::canonical(root, error)}) {
    const fs::path inside = target.lexically_relative(base);
    if (inside.empty() || *inside.begin() == "..") continue;
    return target.lexically_relative((base / path).parent_path());
  }
  return target;
}

absl::Status MoveFile(const std::string& from_root, const std::string& to_root,
                      const std::string& path) {
  const std::string from = absl::StrCat(from_root, "/", path);
  const std::string to = absl::StrCat(to_root, "/", path);
  std::error_code ignored;
  COHORT_RETURN_IF_ERROR(MakeRoom(to_root, path));
  COHORT_RETURN_IF_ERROR(MakeDirectories(ParentDirectory(to), 0700));
  if (fs::is_symlink(from, ignored)) {
    const std::string target = LinkTarget(from_root, path);
    unlink(to.c_str());
    if (symlink(target.c_str(), to.c_str()) != 0) {
      return ErrnoStatus(errno, absl::StrCat("link ", to));
    }
    unlink(from.c_str());
    return absl::OkStatus();
  }
  if (rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  if (errno != EXDEV) return ErrnoStatus(errno, absl::StrCat("move to ", to));
  std::error_code error;
  fs::copy(from, to, fs::copy_options::overwrite_existing, error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("copy to ", to));
  // Scripts look for their newest snapshot by its time.
  struct stat info;
  if (lstat(from.c_str(), &info) == 0) {
    const timespec times[] = {info.st_atim, info.st_mtim};
    utimensat(AT_FDCWD, to.c_str(), times, 0);
  }
  fs::remove(from, error);
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> OpenBelow(const std::string& root,
                                   const std::string& path,
                                   const std::optional<OsAccount>& owner) {
  const ActingAs acting(owner);
  const UniqueFd directory(
      open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory) return ErrnoStatus(errno, absl::StrCat("open ", path));
  open_how how = {};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  UniqueFd file(static_cast<int>(
      syscall(SYS_openat2, directory.get(), path.c_str(), &how, sizeof(how))));
  struct stat info;
  if (!file || fstat(file.get(), &info) != 0) {
    return ErrnoStatus(errno, absl::StrCat("open ", path));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a file"));
  }
  return file;
}

absl::Status GiveBelow(const OsAccount& account, const std::string& root) {
  std::error_code error;
  for (fs::recursive_directory_iterator each(root, error);
       !error && each != fs::recursive_directory_iterator();
       each.increment(error)) {
    struct stat info;
    if (lstat(each->path().c_str(), &info) != 0)
      error.assign(errno, std::generic_category());
    if (error || SharedPrograms::IsOne(info)) continue;
    COHORT_RETURN_IF_ERROR(GiveTo(account, each->path()));
  }
  if (error) return ErrnoStatus(error.value(), absl::StrCat("give ", root));
  return absl::OkStatus();
}

}  // namespace cohort::worker

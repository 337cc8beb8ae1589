#include "worker/work_directory.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

#include "common/file.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "worker/package_cache.h"
#include "worker/process_host.h"

namespace cohort::worker {
namespace {

namespace fs = std::filesystem;

constexpr char kMadeSuffix[] = ".made";
// Looked at, so that the time and memory for it have a bound.
constexpr size_t kFoundMax = 1'000'000;
// Of one list.
constexpr size_t kListedMax = 100'000;
// Named in the list of what was not kept.
constexpr size_t kNotKeptNamedMax = 1'000;

struct FoundFile {
  std::string path;  // below where it was looked for
  struct stat info = {};
};

int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Files and links below `root`, at most kFoundMax; what changed before
// `since_ns` left out.  What Python compiles beside its sources is nobody's
// work.
absl::StatusOr<std::vector<FoundFile>> FilesBelow(const std::string& root,
                                                  int64_t since_ns) {
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
      if (each->path().filename() == "__pycache__") {
        each.disable_recursion_pending();
      }
      continue;
    }
    if (!S_ISREG(file.info.st_mode) && !S_ISLNK(file.info.st_mode)) continue;
    if (Nanoseconds(file.info.st_ctim) < since_ns) continue;
    file.path = each->path().lexically_relative(root).string();
    found.push_back(std::move(file));
  }
  if (error) return ErrnoStatus(error.value(), absl::StrCat("list ", root));
  return found;
}

std::string GenerationPath(const std::string& storage) {
  return storage + "/.generation";
}

// Not synced: it matters to what ranks write, who come after it.
absl::Status Write(const std::string& path, const std::string& bytes) {
  const UniqueFd file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file || write(file.get(), bytes.data(), bytes.size()) !=
                   static_cast<ssize_t>(bytes.size())) {
    return ErrnoStatus(errno, absl::StrCat("write ", path));
  }
  return absl::OkStatus();
}

// From one file system to another where it has to be.
absl::Status MoveFile(const std::string& from, const std::string& to) {
  COHORT_RETURN_IF_ERROR(MakeDirectories(ParentDirectory(to), 0700));
  if (rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  if (errno != EXDEV) return ErrnoStatus(errno, absl::StrCat("move to ", to));
  std::error_code error;
  fs::copy(
      from, to,
      fs::copy_options::overwrite_existing | fs::copy_options::copy_symlinks,
      error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("copy to ", to));
  fs::remove(from, error);
  return absl::OkStatus();
}

v1::RunFile ToWire(std::string path, const FoundFile& file,
                   const std::string& full_path) {
  v1::RunFile wire;
  wire.set_path(std::move(path));
  wire.set_size_bytes(file.info.st_size);
  wire.set_modified_us(Nanoseconds(file.info.st_mtim) / 1000);
  wire.set_is_executable((file.info.st_mode & S_IXUSR) != 0);
  if (S_ISLNK(file.info.st_mode)) {
    std::error_code error;
    wire.set_link(fs::read_symlink(full_path, error).string());
  }
  return wire;
}

// Touches `path` until its time is younger than that of all that was written
// before: file times move every few milliseconds.
absl::Status MakeYounger(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat first = {};
  struct stat now = {};
  if (!file || fstat(file.get(), &first) != 0) return ErrnoStatus(errno, path);
  do {
    if (futimens(file.get(), nullptr) != 0 || fstat(file.get(), &now) != 0) {
      return ErrnoStatus(errno, absl::StrCat("touch ", path));
    }
  } while (Nanoseconds(now.st_mtim) == Nanoseconds(first.st_mtim));
  return absl::OkStatus();
}

// Below it, and through no link that leads elsewhere.
absl::StatusOr<UniqueFd> OpenBelow(const std::string& root,
                                   const std::string& path) {
  const UniqueFd directory(
      open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
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

}  // namespace

std::string WorkDirectories::MarkPath(const AttemptId& attempt) const {
  return absl::StrCat(directories_.Work(attempt), kMadeSuffix);
}

// A node's name is for people and may have a slash.
std::string WorkDirectories::SavedPath(const v1::DesiredPlace& place) const {
  return absl::StrCat("work-", place.number(), "/",
                      absl::StrReplaceAll(node_name_, {{"/", "_"}}));
}

absl::Status WorkDirectories::Make(const v1::DesiredPlace& place,
                                   const std::string& archive,
                                   const std::string& generation) {
  COHORT_ASSIGN_OR_RETURN(const AttemptId attempt,
                          AttemptId::FromBytes(place.attempt_id()));
  const absl::Status run =
      MakeDirectories(directories_.RunDirectory(place), 0700);
  if (!run.ok()) {
    // Where the job says what it shall be, no other node may know better.
    return place.storage_path().empty() ? NodeFault(run)
                                        : Annotate(run, "storage path");
  }
  if (place.storage_path().empty()) {
    COHORT_RETURN_IF_ERROR(NodeFault(
        Write(GenerationPath(directories_.Storage(place)), generation)));
  }
  if (!place.launch().working_directory().empty()) {
    return NodeFault(WriteMark(place, /*has_package=*/false));
  }
  const std::string work = directories_.Work(attempt);
  COHORT_RETURN_IF_ERROR(NodeFault(RemoveTree(work)));
  COHORT_RETURN_IF_ERROR(NodeFault(MakeDirectories(work, 0700)));
  if (!archive.empty()) {
    COHORT_RETURN_IF_ERROR(UnpackPackage(archive, work));
  }
  COHORT_RETURN_IF_ERROR(NodeFault(WriteMark(place, !archive.empty())));
  return place.keep_work() ? NodeFault(BringBack(place)) : absl::OkStatus();
}

absl::Status WorkDirectories::WriteMark(const v1::DesiredPlace& place,
                                        bool has_package) const {
  v1::DesiredPlace marked;
  marked.set_attempt_id(place.attempt_id());
  marked.set_job_id(place.job_id());
  marked.set_number(place.number());
  marked.set_storage_path(place.storage_path());
  COHORT_ASSIGN_OR_RETURN(const AttemptId attempt,
                          AttemptId::FromBytes(place.attempt_id()));
  const std::string path = MarkPath(attempt);
  COHORT_RETURN_IF_ERROR(Write(path, marked.SerializeAsString()));
  return has_package ? MakeYounger(path) : absl::OkStatus();
}

absl::StatusOr<WorkDirectories::Mark> WorkDirectories::ReadMark(
    const std::string& path) const {
  Mark mark;
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return ErrnoStatus(errno, path);
  mark.made_ns = Nanoseconds(info.st_mtim);
  COHORT_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  if (!mark.place.ParseFromString(bytes)) {
    return absl::DataLossError(absl::StrCat(path, " is damaged"));
  }
  return mark;
}

std::vector<WorkDirectories::Mark> WorkDirectories::MarksOf(
    const std::string& job_id) const {
  std::vector<Mark> marks;
  std::error_code error;
  for (fs::directory_iterator each(directories_.AllWork(), error);
       !error && each != fs::directory_iterator(); each.increment(error)) {
    if (each->path().extension() != kMadeSuffix) continue;
    absl::StatusOr<Mark> mark = ReadMark(each->path());
    if (mark.ok() && mark->place.job_id() == job_id) {
      marks.push_back(*std::move(mark));
    }
  }
  return marks;
}

absl::Status WorkDirectories::BringBack(const v1::DesiredPlace& place) {
  // The former attempt is over, but its directory may still be waiting to go.
  for (const Mark& mark : MarksOf(place.job_id())) {
    if (mark.place.number() >= place.number()) continue;
    COHORT_ASSIGN_OR_RETURN(const AttemptId former,
                            AttemptId::FromBytes(mark.place.attempt_id()));
    COHORT_RETURN_IF_ERROR(Remove(former));
  }
  v1::DesiredPlace former = place;
  std::string saved;
  for (int number = place.number() - 1; number > 0; --number) {
    former.set_number(number);
    saved =
        absl::StrCat(directories_.RunDirectory(place), "/", SavedPath(former));
    if (access(saved.c_str(), F_OK) == 0) break;
  }
  COHORT_ASSIGN_OR_RETURN(const std::vector<FoundFile> files,
                          FilesBelow(saved, 0));
  COHORT_ASSIGN_OR_RETURN(const AttemptId attempt,
                          AttemptId::FromBytes(place.attempt_id()));
  for (const FoundFile& file : files) {
    COHORT_RETURN_IF_ERROR(
        MoveFile(absl::StrCat(saved, "/", file.path),
                 absl::StrCat(directories_.Work(attempt), "/", file.path)));
  }
  COHORT_RETURN_IF_ERROR(RemoveTree(saved));
  rmdir(ParentDirectory(saved).c_str());  // unless another node's is there
  return absl::OkStatus();
}

absl::Status WorkDirectories::Remove(const AttemptId& attempt) {
  const std::string path = MarkPath(attempt);
  const absl::StatusOr<Mark> mark = ReadMark(path);
  if (mark.ok()) COHORT_RETURN_IF_ERROR(SaveFiles(*mark));
  COHORT_RETURN_IF_ERROR(RemoveTree(directories_.Work(attempt)));
  // Last: until it is gone all of it is tried again.
  COHORT_RETURN_IF_ERROR(RemoveTree(path));
  if (mark.ok()) RemoveEmptyRunDirectory(mark->place);
  return absl::OkStatus();
}

absl::Status WorkDirectories::SaveFiles(const Mark& mark) const {
  COHORT_ASSIGN_OR_RETURN(const AttemptId attempt,
                          AttemptId::FromBytes(mark.place.attempt_id()));
  const std::string work = directories_.Work(attempt);
  COHORT_ASSIGN_OR_RETURN(std::vector<FoundFile> files,
                          FilesBelow(work, mark.made_ns));
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) {
    return Nanoseconds(a.info.st_mtim) > Nanoseconds(b.info.st_mtim);
  });
  const std::string saved = absl::StrCat(directories_.RunDirectory(mark.place),
                                         "/", SavedPath(mark.place));
  std::vector<std::string> not_kept;
  int64_t bytes = 0;
  size_t count = 0;
  for (const FoundFile& file : files) {
    if (++count > limits_.files || bytes + file.info.st_size > limits_.bytes) {
      not_kept.push_back(file.path);
      continue;
    }
    bytes += file.info.st_size;
    COHORT_RETURN_IF_ERROR(MoveFile(absl::StrCat(work, "/", file.path),
                                    absl::StrCat(saved, "/", file.path)));
  }
  if (not_kept.empty()) return absl::OkStatus();
  COHORT_LOG(kWarning, "work_not_kept", {"attempt", attempt},
             {"files", not_kept.size()}, {"first", not_kept.front()});
  const size_t named = std::min(not_kept.size(), kNotKeptNamedMax);
  return WriteFileAtomically(
      saved + ".not-kept.txt",
      absl::StrCat(
          not_kept.size(), " files of attempt ", mark.place.number(),
          " were not kept: an attempt may leave ", limits_.bytes, " bytes in ",
          limits_.files,
          " files in its working directory (write to "
          "COHORT_STORAGE_DIR what is to stay)\n",
          absl::StrJoin(not_kept.begin(), not_kept.begin() + named, "\n"),
          "\n"),
      0600);
}

void WorkDirectories::RemoveEmptyRunDirectory(
    const v1::DesiredPlace& place) const {
  if (!place.storage_path().empty() || !MarksOf(place.job_id()).empty()) return;
  // Each fails where it is not empty; checkpoints lie beside the run directory.
  const std::string storage = directories_.Storage(place);
  std::error_code error;
  if (rmdir(directories_.RunDirectory(place).c_str()) != 0 ||
      std::distance(fs::directory_iterator(storage, error),
                    fs::directory_iterator()) != 1) {
    return;
  }
  unlink(GenerationPath(storage).c_str());
  rmdir(storage.c_str());
}

bool WorkDirectories::MayBeForgotten(const JobId& job,
                                     const std::string& generation) const {
  const absl::StatusOr<std::string> made = ReadFile(
      GenerationPath(absl::StrCat(directories_.Results(), "/", job.ToText())),
      generation.size());
  return made.ok() && *made == generation &&
         MarksOf(std::string(job.bytes())).empty();
}

absl::StatusOr<std::vector<v1::RunFile>> WorkDirectories::List(
    const v1::DesiredPlace& job) const {
  std::vector<v1::RunFile> listed;
  const auto add = [&listed](const std::string& root, int64_t since_ns,
                             const std::string& prefix) -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(const std::vector<FoundFile> files,
                            FilesBelow(root, since_ns));
    if (listed.size() + files.size() > kListedMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat("more than ", kListedMax, " files below ", root,
                       " (look at them on the node)"));
    }
    for (const FoundFile& file : files) {
      listed.push_back(ToWire(absl::StrCat(prefix, file.path), file,
                              absl::StrCat(root, "/", file.path)));
    }
    return absl::OkStatus();
  };
  COHORT_RETURN_IF_ERROR(add(directories_.RunDirectory(job), 0, ""));
  for (const Mark& mark : MarksOf(job.job_id())) {
    COHORT_ASSIGN_OR_RETURN(const AttemptId attempt,
                            AttemptId::FromBytes(mark.place.attempt_id()));
    COHORT_RETURN_IF_ERROR(add(directories_.Work(attempt), mark.made_ns,
                               absl::StrCat(SavedPath(mark.place), "/")));
  }
  std::sort(listed.begin(), listed.end(),
            [](const auto& a, const auto& b) { return a.path() < b.path(); });
  return listed;
}

absl::StatusOr<UniqueFd> WorkDirectories::Open(const v1::DesiredPlace& job,
                                               const std::string& path) const {
  absl::StatusOr<UniqueFd> file =
      OpenBelow(directories_.RunDirectory(job), path);
  if (!absl::IsNotFound(file.status())) return file;
  for (const Mark& mark : MarksOf(job.job_id())) {
    const std::string prefix = absl::StrCat(SavedPath(mark.place), "/");
    COHORT_ASSIGN_OR_RETURN(const AttemptId attempt,
                            AttemptId::FromBytes(mark.place.attempt_id()));
    if (absl::StartsWith(path, prefix)) {
      return OpenBelow(directories_.Work(attempt), path.substr(prefix.size()));
    }
  }
  return file;
}

}  // namespace cohort::worker

#include "worker/work_directory.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <limits>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

#include "common/checkpoint_path.h"
#include "common/file.h"
#include "common/log.h"
#include "common/size_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "worker/file_tree.h"
#include "worker/package_cache.h"
#include "worker/process_host.h"
#include "worker/shared_programs.h"

namespace cohort::worker {

namespace {

namespace fs = std::filesystem;

constexpr char kMadeSuffix[] = ".made";
constexpr char kPackageSuffix[] = ".package";
constexpr char kGoneSuffix[] = ".gone";
// Of the list of a package's files: a million of them with long names.
constexpr size_t kPackageListBytesMax = size_t{512} << 20;
// A job's checkpoints lie beside its run directory:
// <storage>/attempt-<n>.<epoch>/ step-<k>.  They are listed by their manifests,
// and read by their path, as
// ".checkpoints/attempt-1.1/step-5/manifest.json".
constexpr char kAttemptPrefix[] = "attempt-";
// Of one list.
constexpr size_t kListedMax = 500'000;
// Named in the list of what was not kept.
constexpr size_t kNotKeptNamedMax = 1'000;
// A file within this part of what an attempt may leave is small.
constexpr int64_t kSmallShare = 1024;

int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// What changes with a file's bytes, and which a script cannot set.  A shared
// program has its inode there, below 0: its ctime changes with each place that
// links to it.
int64_t MarkOf(const struct stat& file) {
  return SharedPrograms::IsOne(file) ? -static_cast<int64_t>(file.st_ino)
                                     : Nanoseconds(file.st_ctim) / 1000;
}

bool IsUnchanged(const FoundFile& file,
                 const v1::PackageFiles::File& packaged) {
  if (file.info.st_size != packaged.size_bytes()) return false;
  if (packaged.changed_us() >= 0) {
    return MarkOf(file.info) == packaged.changed_us();
  }
  return -static_cast<int64_t>(file.info.st_ino) == packaged.changed_us() &&
         SharedPrograms::IsUnwritten(file.info);
}

std::string GenerationPath(const std::string& storage) {
  return storage + "/.generation";
}

// Not synced: it matters to what ranks write, who come after it.  Never one
// that is there: ranks may have put anything in its place.
absl::Status Write(const std::string& path, const std::string& bytes) {
  unlink(path.c_str());
  const UniqueFd file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return ErrnoStatus(errno, absl::StrCat("write ", path));
  return WriteAll(file.get(), path, bytes);
}

// A new directory of that account's at `path`, or the one that it has there.
absl::Status MakeOwn(const std::string& path,
                     const std::optional<OsAccount>& account) {
  COHORT_RETURN_IF_ERROR(NodeFault(MakeDirectories(path, 0700)));
  struct stat info;
  if (!account.has_value() || lstat(path.c_str(), &info) != 0 ||
      info.st_uid == account->uid) {
    return absl::OkStatus();
  }
  // New, or with nothing in it, it is given.
  if (rmdir(path.c_str()) == 0 && mkdir(path.c_str(), 0700) == 0) {
    return NodeFault(GiveTo(*account, path));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      path, " has files of user ", info.st_uid, ", and this job now runs as ",
      account->uid,
      ": --run-as of this worker has changed (give that "
      "directory to the user, or fetch and remove the job's files)"));
}

v1::RunFile ToWire(std::string path, const FoundFile& file,
                   const std::string& root) {
  v1::RunFile wire;
  wire.set_path(std::move(path));
  wire.set_size_bytes(file.info.st_size);
  wire.set_modified_us(Nanoseconds(file.info.st_mtim) / 1000);
  wire.set_is_executable((file.info.st_mode & S_IXUSR) != 0);
  if (S_ISLNK(file.info.st_mode)) {
    wire.set_link(LinkTarget(root, file.path));
  }
  return wire;
}

// Names of the directories in it that begin so.
std::vector<std::string> DirectoriesIn(const std::string& directory,
                                       absl::string_view prefix) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator each(directory, error), end;
       !error && each != end; each.increment(error)) {
    std::error_code ignored;
    std::string name = each->path().filename().string();
    if (absl::StartsWith(name, prefix) && each->is_directory(ignored)) {
      names.push_back(std::move(name));
    }
  }
  return names;
}

// Those of the checkpoints in a job's storage, and there may be none.
std::vector<FoundFile> ManifestsBelow(const std::string& storage) {
  std::vector<FoundFile> found;
  for (const auto& attempt : DirectoriesIn(storage, kAttemptPrefix)) {
    const std::string root = absl::StrCat(storage, "/", attempt);
    for (const auto& step : DirectoriesIn(root, "step-")) {
      FoundFile file;
      file.path = absl::StrCat(attempt, "/", step, "/manifest.json");
      const std::string path = absl::StrCat(storage, "/", file.path);
      if (lstat(path.c_str(), &file.info) == 0)
        found.push_back(std::move(file));
    }
  }
  return found;
}

// Whether a place starts with what another node left: on shared storage, and
// with one node it is clear whose work that was.
bool MayTakeOthers(const v1::DesiredPlace& place) {
  return !place.storage_path().empty() && place.node_count() == 1;
}

// A file without a name that has this text.
absl::StatusOr<UniqueFd> InMemory(const std::string& text) {
  UniqueFd file(memfd_create("cohort-text", MFD_CLOEXEC));
  if (!file) return ErrnoStatus(errno, "make a file in memory");
  COHORT_RETURN_IF_ERROR(WriteAll(file.get(), "a file in memory", text));
  if (lseek(file.get(), 0, SEEK_SET) != 0) {
    return ErrnoStatus(errno, "read a file in memory");
  }
  return file;
}

}  // namespace

// Newest first.
struct WorkDirectories::Choice {
  std::vector<FoundFile> kept;
  std::vector<std::string> not_kept;
  int64_t room = 0;  // that results had for both
};

std::string WorkDirectories::GonePath(const AttemptId& attempt) const {
  return directories_.Work(attempt) + kGoneSuffix;
}

std::string WorkDirectories::MarkPath(const AttemptId& attempt) const {
  return absl::StrCat(directories_.Work(attempt), kMadeSuffix);
}

// A node's name is for people: it may have a slash, and others may have it too.
std::string WorkDirectories::NamedPath(const v1::DesiredPlace& place,
                                       absl::string_view prefix) const {
  const std::string name = absl::StrReplaceAll(node_name_, {{"/", "_"}});
  const bool is_shared = !place.storage_path().empty();
  return absl::StrCat("work-", place.number(), "/", prefix, name,
                      is_shared ? absl::StrCat(".", node_id_) : "");
}

absl::Status WorkDirectories::Make(const v1::DesiredPlace& place,
                                   const std::string& archive,
                                   const std::string& generation) {
  COHORT_RETURN_IF_ERROR(Begin(place, generation));
  COHORT_RETURN_IF_ERROR(Unpack(place, archive));
  return Finish(place);
}

absl::Status WorkDirectories::Begin(const v1::DesiredPlace& place,
                                    const std::string& generation) {
  COHORT_ASSIGN_OR_RETURN(const AttemptId attempt,
                          AttemptId::FromBytes(place.attempt_id()));
  COHORT_ASSIGN_OR_RETURN(const std::optional<OsAccount> account,
                          run_as_.AccountOf(place.user()));
  COHORT_RETURN_IF_ERROR(MakeStorage(place, generation, account));
  if (!place.launch().working_directory().empty()) return absl::OkStatus();
  const std::string work = directories_.Work(attempt);
  COHORT_RETURN_IF_ERROR(NodeFault(RemoveTree(work)));
  return NodeFault(MakeDirectories(work, 0700));
}

absl::Status WorkDirectories::MakeStorage(
    const v1::DesiredPlace& place, const std::string& generation,
    const std::optional<OsAccount>& account) const {
  const bool is_ours = place.storage_path().empty();
  if (is_ours && account.has_value()) {
    COHORT_RETURN_IF_ERROR(MakeOwn(directories_.Storage(place), account));
  }
  const ActingAs acting(account);
  const absl::Status run =
      MakeDirectories(directories_.RunDirectory(place), 0700);
  // Where the job says what it shall be, no other node may know better.
  if (!is_ours) return Annotate(run, "storage path");
  COHORT_RETURN_IF_ERROR(NodeFault(run));
  return NodeFault(
      Write(GenerationPath(directories_.Storage(place)), generation));
}

std::optional<OsAccount> WorkDirectories::OwnerOfStorage(
    const v1::DesiredPlace& job) const {
  if (!run_as_.is_on()) return std::nullopt;
  constexpr uid_t kNobody = 65534;
  std::optional<OsAccount> owner = OwnerOf(directories_.Storage(job));
  // Under a path of the user's choice it is not ours, whatever it seems to be.
  if (!owner.has_value() && !job.storage_path().empty()) {
    owner = OsAccount{.uid = kNobody, .gid = kNobody};
  }
  return owner;
}

std::optional<OsAccount> WorkDirectories::OwnerOfWork(
    const AttemptId& attempt) const {
  return run_as_.is_on() ? OwnerOf(directories_.Work(attempt)) : std::nullopt;
}

absl::Status WorkDirectories::Unpack(const v1::DesiredPlace& place,
                                     const std::string& archive) const {
  if (archive.empty()) return absl::OkStatus();
  COHORT_ASSIGN_OR_RETURN(const AttemptId attempt,
                          AttemptId::FromBytes(place.attempt_id()));
  const std::string work = directories_.Work(attempt);
  COHORT_RETURN_IF_ERROR(UnpackPackage(archive, work));
  COHORT_ASSIGN_OR_RETURN(const std::optional<OsAccount> account,
                          run_as_.AccountOf(place.user()));
  if (account.has_value()) {
    COHORT_RETURN_IF_ERROR(NodeFault(GiveBelow(*account, work)));
  }
  return NodeFault(WritePackageList(attempt));
}

absl::Status WorkDirectories::Finish(const v1::DesiredPlace& place) {
  COHORT_ASSIGN_OR_RETURN(const AttemptId attempt,
                          AttemptId::FromBytes(place.attempt_id()));
  COHORT_ASSIGN_OR_RETURN(const std::optional<OsAccount> account,
                          run_as_.AccountOf(place.user()));
  const bool is_ours = place.launch().working_directory().empty();
  if (is_ours && account.has_value()) {
    COHORT_RETURN_IF_ERROR(
        NodeFault(GiveTo(*account, directories_.Work(attempt))));
  }
  COHORT_RETURN_IF_ERROR(NodeFault(WriteMark(place)));
  if (!is_ours || !place.keep_work()) return absl::OkStatus();
  COHORT_RETURN_IF_ERROR(NodeFault(BringBack(place)));
  if (!MayTakeOthers(place)) return absl::OkStatus();
  const ActingAs acting(account);
  // So that the next attempt, on another node, knows that there will be some.
  return NodeFault(MakeDirectories(
      absl::StrCat(directories_.RunDirectory(place), "/", StagedPath(place)),
      0700));
}

bool WorkDirectories::AwaitsFormer(const v1::DesiredPlace& place) const {
  if (!place.keep_work() || !MayTakeOthers(place)) return false;
  v1::DesiredPlace former = place;
  const ActingAs acting(OwnerOfStorage(place));
  for (int number = place.number() - 1; number > 0; --number) {
    former.set_number(number);
    const std::string own =
        absl::StrCat(directories_.RunDirectory(place), "/", StagedPath(former));
    const std::vector<std::string> staged =
        DirectoriesIn(ParentDirectory(own), ".");
    if (staged.size() > (access(own.c_str(), F_OK) == 0 ? 1u : 0u)) return true;
    if (!DirectoriesIn(ParentDirectory(own), "").empty()) return false;
  }
  return false;
}

absl::Status WorkDirectories::WritePackageList(const AttemptId& attempt) const {
  const std::string work = directories_.Work(attempt);
  COHORT_ASSIGN_OR_RETURN(const std::vector<FoundFile> files, FilesBelow(work));
  v1::PackageFiles list;
  for (const FoundFile& file : files) {
    v1::PackageFiles::File& packaged = *list.add_files();
    packaged.set_path(file.path);
    packaged.set_size_bytes(file.info.st_size);
    packaged.set_changed_us(MarkOf(file.info));
  }
  return Write(work + kPackageSuffix, list.SerializeAsString());
}

// Without what the package brought and nobody changed.
absl::StatusOr<std::vector<FoundFile>> WorkDirectories::RanksFiles(
    const AttemptId& attempt) const {
  const std::string work = directories_.Work(attempt);
  std::vector<FoundFile> files;
  {
    const ActingAs acting(OwnerOfWork(attempt));
    COHORT_ASSIGN_OR_RETURN(files, FilesBelow(work));
  }
  const absl::StatusOr<std::string> bytes =
      ReadFile(work + kPackageSuffix, kPackageListBytesMax);
  v1::PackageFiles list;
  // One that cannot be read keeps too much, and loses nothing.
  if (!bytes.ok() || !list.ParseFromString(*bytes)) return files;
  std::map<absl::string_view, const v1::PackageFiles::File*> packaged;
  for (const v1::PackageFiles::File& file : list.files())
    packaged[file.path()] = &file;
  std::erase_if(files, [&packaged](const FoundFile& file) {
    const auto found = packaged.find(file.path);
    return found != packaged.end() && IsUnchanged(file, *found->second);
  });
  return files;
}

absl::Status WorkDirectories::WriteMark(const v1::DesiredPlace& place) {
  v1::DesiredPlace marked;
  marked.set_attempt_id(place.attempt_id());
  marked.set_job_id(place.job_id());
  marked.set_number(place.number());
  marked.set_storage_path(place.storage_path());
  COHORT_ASSIGN_OR_RETURN(const AttemptId attempt,
                          AttemptId::FromBytes(place.attempt_id()));
  COHORT_RETURN_IF_ERROR(Write(MarkPath(attempt), marked.SerializeAsString()));
  marks();
  marks_->insert_or_assign(attempt, std::move(marked));
  return absl::OkStatus();
}

const WorkDirectories::Marks& WorkDirectories::marks() const {
  if (marks_.has_value()) return *marks_;
  marks_.emplace();
  std::error_code error;
  for (fs::directory_iterator each(directories_.AllWork(), error);
       !error && each != fs::directory_iterator(); each.increment(error)) {
    if (each->path().extension() != kMadeSuffix) continue;
    const absl::StatusOr<std::string> bytes = ReadFile(each->path());
    v1::DesiredPlace place;
    if (!bytes.ok() || !place.ParseFromString(*bytes)) continue;  // torn
    const auto attempt = AttemptId::FromBytes(place.attempt_id());
    if (attempt.ok()) marks_->insert_or_assign(*attempt, std::move(place));
  }
  return *marks_;
}

std::vector<v1::DesiredPlace> WorkDirectories::Here() const {
  std::vector<v1::DesiredPlace> here;
  for (const auto& [attempt, place] : marks()) here.push_back(place);
  return here;
}

std::vector<v1::DesiredPlace> WorkDirectories::MarksOf(
    const std::string& job_id) const {
  std::vector<v1::DesiredPlace> of_job;
  for (const auto& [attempt, place] : marks()) {
    if (place.job_id() == job_id) of_job.push_back(place);
  }
  return of_job;
}

absl::Status WorkDirectories::BringBack(const v1::DesiredPlace& place) {
  // The former attempt is over, but its directory may still be waiting to go.
  for (const v1::DesiredPlace& mark : MarksOf(place.job_id())) {
    if (mark.number() >= place.number()) continue;
    COHORT_ASSIGN_OR_RETURN(const AttemptId former,
                            AttemptId::FromBytes(mark.attempt_id()));
    COHORT_RETURN_IF_ERROR(Remove(former));
  }
  if (place.number() <= 1) return absl::OkStatus();
  const ActingAs acting(OwnerOfStorage(place));
  const int number = ClaimFormer(place);
  const std::string who =
      absl::StrCat("attempt ", place.number(), " on ", node_name_);
  if (number == 0) {
    warnings_.push_back(absl::StrCat(
        who,
        " found no files of an earlier attempt there for --keep-work: "
        "what an attempt leaves in its working directory stays on its node "
        "(COHORT_STORAGE_DIR below a --storage-path that all nodes see is the "
        "same for all)"));
    return absl::OkStatus();
  }
  if (number < place.number() - 1) {
    warnings_.push_back(absl::StrCat(
        who, " starts with what attempt ", number, " left there: attempt ",
        place.number() - 1, " left nothing on this node"));
  }
  v1::DesiredPlace former = place;
  former.set_number(number);
  const std::string saved =
      absl::StrCat(directories_.RunDirectory(place), "/", SavedPath(former));
  COHORT_ASSIGN_OR_RETURN(const std::vector<FoundFile> files,
                          FilesBelow(saved));
  COHORT_ASSIGN_OR_RETURN(const AttemptId attempt,
                          AttemptId::FromBytes(place.attempt_id()));
  for (const FoundFile& file : files) {
    COHORT_RETURN_IF_ERROR(
        MoveFile(saved, directories_.Work(attempt), file.path));
  }
  COHORT_RETURN_IF_ERROR(RemoveTree(saved));
  rmdir(ParentDirectory(saved).c_str());  // unless another node's is there
  return absl::OkStatus();
}

int WorkDirectories::ClaimFormer(const v1::DesiredPlace& place) {
  const std::string run = directories_.RunDirectory(place);
  v1::DesiredPlace former = place;
  for (int number = place.number() - 1; number > 0; --number) {
    former.set_number(number);
    const std::string saved = absl::StrCat(run, "/", SavedPath(former));
    if (access(saved.c_str(), F_OK) == 0) return number;
    if (!MayTakeOthers(place)) continue;
    const std::string all = ParentDirectory(saved);
    const std::vector<std::string> nodes = DirectoriesIn(all, "");
    if (nodes.size() == 1 && nodes.front().front() != '.' &&
        rename(absl::StrCat(all, "/", nodes.front()).c_str(), saved.c_str()) ==
            0) {
      return number;
    }
  }
  return 0;
}

absl::Status WorkDirectories::Remove(const AttemptId& attempt) {
  const auto mark = marks().find(attempt);
  const bool is_marked = mark != marks().end();
  if (is_marked) COHORT_RETURN_IF_ERROR(SaveFiles(mark->second));
  const std::string work = directories_.Work(attempt);
  const std::string gone = GonePath(attempt);
  if (access((work + kPackageSuffix).c_str(), F_OK) != 0 ||
      rename(work.c_str(), gone.c_str()) != 0) {
    COHORT_RETURN_IF_ERROR(RemoveTree(work));
  }
  COHORT_RETURN_IF_ERROR(RemoveTree(work + kPackageSuffix));
  // Last: until it is gone all of it is tried again.
  COHORT_RETURN_IF_ERROR(RemoveTree(MarkPath(attempt)));
  if (!is_marked) return absl::OkStatus();
  const v1::DesiredPlace place = mark->second;
  marks_->erase(attempt);
  RemoveEmptyRunDirectory(place);
  return absl::OkStatus();
}

int64_t WorkDirectories::Room(const v1::DesiredPlace& place) const {
  const bool is_ours = place.storage_path().empty();
  if (!is_ours || !limits_.results_bytes.has_value()) {
    return std::numeric_limits<int64_t>::max();
  }
  return std::max(*limits_.results_bytes - BytesBelow(directories_.Results()),
                  int64_t{0});
}

absl::StatusOr<WorkDirectories::Choice> WorkDirectories::Choose(
    const v1::DesiredPlace& mark, const AttemptId& attempt) const {
  COHORT_ASSIGN_OR_RETURN(std::vector<FoundFile> files, RanksFiles(attempt));
  Choice choice;
  if (files.empty()) return choice;
  // The small ones come first: a script that finds its large snapshot without
  // the few bytes beside it starts wrong.
  const auto is_large = [this](const FoundFile& file) {
    return file.info.st_size > limits_.bytes / kSmallShare;
  };
  std::sort(files.begin(), files.end(), [&](const auto& a, const auto& b) {
    return std::pair(is_large(a), -Nanoseconds(a.info.st_mtim)) <
           std::pair(is_large(b), -Nanoseconds(b.info.st_mtim));
  });
  choice.room = Room(mark);
  int64_t bytes = 0;
  size_t count = 0;
  bool has_large = false;
  for (FoundFile& file : files) {
    // The newest however large it is: it is what a script goes on from.
    const int64_t with_it = bytes + file.info.st_size;
    const bool is_newest_large = is_large(file) && !has_large;
    const bool fits = is_newest_large || with_it <= limits_.bytes;
    has_large = has_large || is_large(file);
    if (++count > limits_.files || !fits || with_it > choice.room) {
      choice.not_kept.push_back(std::move(file.path));
      continue;
    }
    bytes = with_it;
    choice.kept.push_back(std::move(file));
  }
  return choice;
}

absl::Status WorkDirectories::SaveFiles(const v1::DesiredPlace& mark) {
  COHORT_ASSIGN_OR_RETURN(const AttemptId attempt,
                          AttemptId::FromBytes(mark.attempt_id()));
  COHORT_ASSIGN_OR_RETURN(const Choice choice, Choose(mark, attempt));
  const ActingAs acting(OwnerOfWork(attempt));
  const std::string run = directories_.RunDirectory(mark);
  const bool is_shared = !mark.storage_path().empty();
  const std::string saved = absl::StrCat(run, "/", SavedPath(mark));
  const std::string target =
      is_shared ? absl::StrCat(run, "/", StagedPath(mark)) : saved;
  for (const FoundFile& file : choice.kept) {
    COHORT_RETURN_IF_ERROR(
        MoveFile(directories_.Work(attempt), target, file.path));
  }
  if (is_shared && rmdir(target.c_str()) != 0 && errno == ENOTEMPTY &&
      rename(target.c_str(), saved.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("move to ", saved));
  }
  if (is_shared) rmdir(ParentDirectory(target).c_str());  // with nothing in it
  if (choice.not_kept.empty()) return absl::OkStatus();
  COHORT_LOG(
      kWarning, "work_not_kept", {"attempt", attempt},
      {"files", choice.not_kept.size()}, {"first", choice.not_kept.front()},
      {"room_for_results",
       limits_.results_bytes.has_value() ? absl::StrCat(choice.room) : "any"});
  const std::string path = absl::StrCat(run, "/", NotKeptPath(mark));
  COHORT_RETURN_IF_ERROR(MakeDirectories(ParentDirectory(path), 0700));
  COHORT_RETURN_IF_ERROR(
      WriteFileAtomically(path, NotKeptText(mark, choice), 0600));
  warnings_.push_back(absl::StrCat(WhyNotKept(mark, choice), "; ",
                                   NotKeptPath(mark),
                                   " of `cohort jobs files` names them"));
  return absl::OkStatus();
}

std::string WorkDirectories::NotKeptPath(const v1::DesiredPlace& mark) const {
  return SavedPath(mark) + ".not-kept.txt";
}

std::string WorkDirectories::WhyNotKept(const v1::DesiredPlace& mark,
                                        const Choice& choice) const {
  const std::string limit =
      choice.room < limits_.bytes
          ? absl::StrCat("results had ", choice.room, " bytes left of the ",
                         *limits_.results_bytes,
                         " that their worker keeps (--keep-results; `cohort "
                         "jobs remove` makes room)")
          : absl::StrCat("an attempt may leave ", SizeToText(limits_.bytes),
                         " in ", limits_.files,
                         " files in its working directory (write to "
                         "COHORT_STORAGE_DIR what is to stay)");
  const size_t count = choice.not_kept.size();
  return absl::StrCat(count, count == 1 ? " file" : " files", " of attempt ",
                      mark.number(), " on ", node_name_,
                      count == 1 ? " was" : " were", " not kept: ", limit);
}

std::string WorkDirectories::NotKeptText(const v1::DesiredPlace& mark,
                                         const Choice& choice) const {
  const std::vector<std::string>& files = choice.not_kept;
  const auto named =
      static_cast<ptrdiff_t>(std::min(files.size(), kNotKeptNamedMax));
  return absl::StrCat(WhyNotKept(mark, choice), "\n",
                      absl::StrJoin(files.begin(), files.begin() + named, "\n"),
                      "\n");
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
  v1::DesiredPlace place;
  place.set_job_id(std::string(job.bytes()));
  const ActingAs acting(OwnerOfStorage(place));
  const absl::StatusOr<std::string> made = ReadRegularFile(
      GenerationPath(directories_.Storage(place)), generation.size());
  return made.ok() && *made == generation &&
         MarksOf(std::string(job.bytes())).empty();
}

absl::StatusOr<std::vector<v1::RunFile>> WorkDirectories::List(
    const v1::DesiredPlace& job) const {
  std::vector<v1::RunFile> listed;
  const auto add = [&listed](const std::string& root, const std::string& prefix,
                             const std::vector<FoundFile>& files) {
    for (const FoundFile& file : files) {
      listed.push_back(ToWire(absl::StrCat(prefix, file.path), file, root));
    }
  };
  {
    const ActingAs acting(OwnerOfStorage(job));
    const std::string run = directories_.RunDirectory(job);
    COHORT_ASSIGN_OR_RETURN(const std::vector<FoundFile> kept, FilesBelow(run));
    add(run, "", kept);
    const std::string storage = directories_.Storage(job);
    add(storage, kCheckpointsPrefix, ManifestsBelow(storage));
  }
  for (const v1::DesiredPlace& mark : MarksOf(job.job_id())) {
    COHORT_ASSIGN_OR_RETURN(const AttemptId attempt,
                            AttemptId::FromBytes(mark.attempt_id()));
    COHORT_ASSIGN_OR_RETURN(const Choice choice, Choose(mark, attempt));
    const ActingAs acting(OwnerOfWork(attempt));  // for where links lead
    add(directories_.Work(attempt), SavedPath(mark) + "/", choice.kept);
    if (choice.not_kept.empty()) continue;
    v1::RunFile& list = listed.emplace_back();
    list.set_path(NotKeptPath(mark));
    list.set_size_bytes(static_cast<int64_t>(NotKeptText(mark, choice).size()));
  }
  if (listed.size() > kListedMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(listed.size(), " files are too many to list, ", kListedMax,
                     " at most: look at them on the node, in ",
                     directories_.RunDirectory(job)));
  }
  std::sort(listed.begin(), listed.end(),
            [](const auto& a, const auto& b) { return a.path() < b.path(); });
  return listed;
}

absl::StatusOr<UniqueFd> WorkDirectories::Open(const v1::DesiredPlace& job,
                                               const std::string& path) const {
  const std::optional<OsAccount> owner = OwnerOfStorage(job);
  absl::StatusOr<UniqueFd> file =
      OpenBelow(directories_.RunDirectory(job), path, owner);
  if (!absl::IsNotFound(file.status())) return file;
  absl::string_view below = path;
  if (absl::ConsumePrefix(&below, kCheckpointsPrefix) &&
      absl::StartsWith(below, kAttemptPrefix) &&
      !absl::StrContains(below, "..")) {
    return OpenBelow(directories_.Storage(job), std::string(below), owner);
  }
  for (const v1::DesiredPlace& mark : MarksOf(job.job_id())) {
    const std::string prefix = absl::StrCat(SavedPath(mark), "/");
    COHORT_ASSIGN_OR_RETURN(const AttemptId attempt,
                            AttemptId::FromBytes(mark.attempt_id()));
    if (path == NotKeptPath(mark)) {
      COHORT_ASSIGN_OR_RETURN(const Choice choice, Choose(mark, attempt));
      return InMemory(NotKeptText(mark, choice));
    }
    if (absl::StartsWith(path, prefix)) {
      return OpenBelow(directories_.Work(attempt), path.substr(prefix.size()),
                       OwnerOfWork(attempt));
    }
  }
  return file;
}

}  // namespace cohort::worker

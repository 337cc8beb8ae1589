#include "head/archive/disk_backups.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "common/file.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/archive/hashed_file.h"
#include "head/state/job_table.h"
#include "head/store/records_codec.h"
#include "head/store/rocksdb_store.h"

namespace cohort::head {
namespace {

namespace fs = std::filesystem;

absl::Status BadDirectory(const std::string& directory, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "cannot back up to ", absl::CHexEscape(directory), ": ", why));
}

// Where `path` is once links are followed; itself where that cannot be told.
std::string Resolved(const std::string& path) {
  std::error_code error;
  const fs::path resolved = fs::weakly_canonical(path, error);
  return error ? path : resolved.string();
}

absl::Status CheckName(const std::string& directory,
                       const std::string& state_dir) {
  if (directory.empty() || directory.front() != '/' ||
      directory.size() > 4000) {
    return BadDirectory(directory,
                        "give an absolute path of the head's "
                        "machine, at most 4,000 bytes long");
  }
  for (const absl::string_view part : absl::StrSplit(directory, '/')) {
    if (part != "." && part != "..") continue;
    return BadDirectory(directory, "give a path without . and ..");
  }
  if (directory.back() == '/' || absl::StrContains(directory, '\0')) {
    return BadDirectory(directory, "that is not a name for a new directory");
  }
  if (absl::StartsWith(Resolved(directory), Resolved(state_dir) + "/")) {
    return BadDirectory(directory,
                        absl::StrCat("it lies in the head's own state "
                                     "directory ",
                                     state_dir, ": name one outside"));
  }
  return absl::OkStatus();
}

absl::Status CheckParent(const std::string& directory) {
  const std::string parent = ParentDirectory(directory);
  struct stat info;
  if (stat(parent.c_str(), &info) != 0) {
    return BadDirectory(directory, ErrnoStatus(errno, parent).message());
  }
  if (S_ISDIR(info.st_mode)) return absl::OkStatus();
  return BadDirectory(directory, absl::StrCat(parent, " is not a directory"));
}

absl::Status CheckRoom(const std::string& directory, int64_t bytes) {
  struct statvfs info;
  const std::string parent = ParentDirectory(directory);
  // Where this cannot be told, writes tell.
  if (statvfs(parent.c_str(), &info) != 0) return absl::OkStatus();
  const int64_t free =
      static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
  if (free >= bytes) return absl::OkStatus();
  return SetReason(
      absl::ResourceExhaustedError(absl::StrCat(
          "the disk under ", parent, " has no room for a backup: ", free >> 20,
          " MiB are free, ", (bytes >> 20) + 1, " MiB are needed")),
      "disk_full");
}

absl::StatusOr<std::vector<std::string>> ListFiles(
    const std::string& directory) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) return ErrnoStatus(error.value(), "list " + directory);
  std::sort(names.begin(), names.end());
  return names;
}

int64_t SizeOf(const std::string& path) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(size);
}

absl::Status RenameToNew(const std::string& from, const std::string& to) {
  int renamed =
      renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE);
  // Not every file system has it; rename takes the place of empty directories
  // only.
  if (renamed != 0 && (errno == EINVAL || errno == ENOSYS)) {
    renamed = rename(from.c_str(), to.c_str());
  }
  if (renamed == 0) return SyncDirectory(ParentDirectory(to));
  return ErrnoStatus(errno, absl::StrCat("rename ", from, " to ", to));
}

// Reads the copy as a head would.
absl::StatusOr<Rows> ReadBack(const std::string& store) {
  COHORT_ASSIGN_OR_RETURN(
      const std::unique_ptr<RocksdbStore> copy,
      RocksdbStore::Open({.path = store, .access = StoreAccess::kInspect}));
  return LoadRows(*copy);
}

// Of jobs that have not ended, in hex.
std::set<std::string> NeededPackages(const Rows& rows) {
  std::set<std::string> needed;
  for (const JobRecord& job : rows.jobs) {
    if (HasEnded(job.row.state())) continue;
    const std::string& hash = job.spec->launch().package_hash();
    if (!hash.empty()) needed.insert(absl::BytesToHexString(hash));
  }
  return needed;
}

}  // namespace

DiskBackups::DiskBackups(DiskBackupsOptions options, Executor& strand,
                         Executor& store_executor, Executor& disk)
    : options_(std::move(options)),
      strand_(strand),
      store_executor_(store_executor),
      disk_(disk) {}

void DiskBackups::Answer(Done done, absl::StatusOr<BackupManifest> result) {
  strand_.Post([result = std::move(result), done = std::move(done)]() mutable {
    std::move(done)(std::move(result));
  });
}

void DiskBackups::Write(Store& store, BackupRequest request, Done done) {
  store_executor_.Post([this, &store, request = std::move(request),
                        done = std::move(done)]() mutable {
    absl::StatusOr<std::optional<BackupManifest>> made = Check(request);
    if (!made.ok()) return Answer(std::move(done), made.status());
    if (made->has_value()) return Answer(std::move(done), **std::move(made));
    const absl::Status status = Snapshot(store);
    if (!status.ok()) return Answer(std::move(done), status);
    disk_.Post(
        [this, request = std::move(request), done = std::move(done)]() mutable {
          Answer(std::move(done), Finish(request));
        });
  });
}

absl::StatusOr<std::optional<BackupManifest>> DiskBackups::Check(
    const BackupRequest& request) const {
  const std::string& directory = request.directory;
  COHORT_RETURN_IF_ERROR(CheckName(directory, options_.state_dir));
  COHORT_RETURN_IF_ERROR(CheckParent(directory));
  struct stat info;
  if (lstat(directory.c_str(), &info) != 0) {
    if (errno == ENOENT) return std::nullopt;
    return BadDirectory(directory, ErrnoStatus(errno, directory).message());
  }
  if (const auto text = ReadFile(directory + "/" + kBackupManifestName);
      text.ok()) {
    absl::StatusOr<BackupManifest> there = ParseBackupManifest(*text);
    if (there.ok() && there->request_id == request.request_id) {
      return std::optional<BackupManifest>(*std::move(there));
    }
  }
  return SetReason(
      absl::AlreadyExistsError(absl::StrCat(
          directory,
          " is there already: a backup goes to a new directory, name another "
          "one; nothing was written")),
      "directory_exists");
}

absl::Status DiskBackups::Snapshot(Store& store) const {
  COHORT_RETURN_IF_ERROR(RemoveTree(StagingPath()));
  absl::Status status = MakeDirectories(StagingPath(), 0700);
  if (status.ok()) status = store.Checkpoint(StagingPath() + "/store");
  // What is left could fill the disk.
  if (!status.ok()) (void)RemoveTree(StagingPath());
  return status;
}

absl::StatusOr<BackupManifest> DiskBackups::Finish(
    const BackupRequest& request) const {
  const std::string partial =
      absl::StrCat(request.directory, ".partial-",
                   Sha256::Of(request.request_id).ToHex().substr(0, 16));
  BackupManifest manifest;
  manifest.at = request.at;
  manifest.request_id = request.request_id;
  absl::Status status = RemoveTree(partial);
  if (status.ok()) status = Fill(partial, manifest);
  if (status.ok()) status = RenameToNew(partial, request.directory);
  for (const std::string& path : {StagingPath(), partial}) {
    if (const absl::Status removed = RemoveTree(path); !removed.ok()) {
      COHORT_LOG(kWarning, "backup_not_cleaned", {"path", path},
                 {"why", removed});
    }
  }
  if (!status.ok()) return Annotate(status, "nothing was backed up");
  return manifest;
}

absl::Status DiskBackups::Fill(const std::string& partial,
                               BackupManifest& manifest) const {
  // Not its parents: a disk that is not mounted is not made up for.
  if (mkdir(partial.c_str(), 0700) != 0) {
    return ErrnoStatus(errno, absl::StrCat("make directory ", partial));
  }
  for (const char* part : {"/store", "/packages"}) {
    COHORT_RETURN_IF_ERROR(MakeDirectories(partial + part, 0700));
  }
  COHORT_RETURN_IF_ERROR(CopyStore(partial, manifest));
  for (const std::string name : {"/credential", "/ca.key"}) {
    // A head with --insecure has no key.
    if (access((options_.state_dir + name).c_str(), F_OK) != 0) continue;
    COHORT_RETURN_IF_ERROR(
        CopyFile(options_.state_dir + name, partial, name.substr(1), manifest));
  }
  COHORT_ASSIGN_OR_RETURN(const Rows rows, ReadBack(partial + "/store"));
  if (!rows.cluster.has_value()) {
    return absl::DataLossError("the copy of the store is empty");
  }
  manifest.cluster = IdOf<ClusterId>(rows.cluster->cluster_id());
  manifest.generation = IdOf<GenerationId>(rows.cluster->generation());
  manifest.term = rows.cluster->term();
  manifest.schema = kSchemaVersion;
  COHORT_RETURN_IF_ERROR(CopyPackages(rows, partial, manifest));
  for (const char* part : {"/store", "/packages"}) {
    COHORT_RETURN_IF_ERROR(SyncDirectory(partial + part));
  }
  return WriteFileAtomically(partial + "/" + kBackupManifestName,
                             ToText(manifest), 0600);
}

absl::Status DiskBackups::CopyFile(const std::string& from,
                                   const std::string& partial,
                                   const std::string& name,
                                   BackupManifest& manifest) const {
  COHORT_ASSIGN_OR_RETURN(manifest.files.emplace_back(),
                          CopyAndHash(from, partial, name));
  return absl::OkStatus();
}

absl::Status DiskBackups::CopyStore(const std::string& partial,
                                    BackupManifest& manifest) const {
  const std::string store = StagingPath() + "/store";
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                          ListFiles(store));
  int64_t bytes = options_.bytes_kept_free;
  for (const std::string& file : files) bytes += SizeOf(store + "/" + file);
  COHORT_RETURN_IF_ERROR(CheckRoom(partial, bytes));
  for (const std::string& file : files) {
    COHORT_RETURN_IF_ERROR(CopyFile(absl::StrCat(store, "/", file), partial,
                                    absl::StrCat("store/", file), manifest));
  }
  return CopyFile(store + ".mark", partial, "store.mark", manifest);
}

absl::Status DiskBackups::CopyPackages(const Rows& rows,
                                       const std::string& partial,
                                       BackupManifest& manifest) const {
  const std::set<std::string> needed = NeededPackages(rows);
  int64_t bytes = options_.bytes_kept_free;
  for (const std::string& hash : needed) {
    bytes += SizeOf(absl::StrCat(options_.state_dir, "/packages/", hash));
  }
  COHORT_RETURN_IF_ERROR(CheckRoom(partial, bytes));
  for (const std::string& hash : needed) {
    const std::string name = absl::StrCat("packages/", hash);
    absl::StatusOr<BackupManifest::File> copied =
        CopyAndHash(absl::StrCat(options_.state_dir, "/", name), partial, name);
    if (copied.ok() && copied->hash.ToHex() == hash) {
      manifest.files.push_back(*std::move(copied));
      continue;
    }
    // The rest is worth having; the caller gets the reason.
    if (absl::IsResourceExhausted(copied.status())) return copied.status();
    COHORT_LOG(kWarning, "package_not_backed_up", {"package", hash},
               {"why", copied.ok() ? absl::DataLossError("it is damaged")
                                   : copied.status()});
    COHORT_RETURN_IF_ERROR(RemoveTree(absl::StrCat(partial, "/", name)));
    manifest.missing_packages.push_back(hash);
  }
  return absl::OkStatus();
}

}  // namespace cohort::head

#include "head/archive/restore.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/file.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/archive/backup_manifest.h"
#include "head/archive/hashed_file.h"
#include "head/state/job_table.h"
#include "head/store/migration.h"
#include "head/store/records_codec.h"
#include "head/store/rocksdb_store.h"
#include "rpc/certificate.h"
#include "rpc/credential.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

// Terms of one generation before they reach the next one's: a head takes one
// each time that it starts.
constexpr uint64_t kTermsOfGeneration = 1 << 16;
constexpr int64_t kEpochStep = 1'000'000;
constexpr uint64_t kIncarnationStep = 1'000'000;

absl::Status DamagedBackup(absl::string_view what) {
  return SetReason(
      absl::DataLossError(absl::StrCat(
          what,
          "; nothing was restored: take another copy of this backup, or "
          "an older one")),
      "backup_damaged");
}

absl::StatusOr<BackupManifest> ReadManifest(const std::string& backup) {
  if (backup.empty()) {
    return absl::InvalidArgumentError(
        "DIR is empty: name a directory that `cohort head backup` made");
  }
  const std::string path = absl::StrCat(backup, "/", kBackupManifestName);
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (absl::IsNotFound(text.status())) {
    return absl::InvalidArgumentError(absl::StrCat(
        backup,
        " is not a backup, or one that was not finished: it has no file ",
        kBackupManifestName,
        "; name a directory that `cohort head backup` made"));
  }
  if (!text.ok()) return text.status();
  absl::StatusOr<BackupManifest> manifest = ParseBackupManifest(*text);
  if (manifest.ok()) return manifest;
  if (absl::IsFailedPrecondition(manifest.status())) {
    return Annotate(manifest.status(), path);
  }
  return DamagedBackup(absl::StrCat(path, ": ", manifest.status().message()));
}

absl::Status CheckTarget(const std::string& state_dir) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(state_dir, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    return absl::OkStatus();
  }
  std::string why;
  if (status.type() == std::filesystem::file_type::symlink) {
    const auto to = std::filesystem::read_symlink(state_dir, error);
    why = absl::StrCat("is a symbolic link to ", to.string(),
                       ", and a restore makes a directory of its own");
  } else if (status.type() != std::filesystem::file_type::directory) {
    why = "is there and not a directory";
  } else if (!std::filesystem::is_empty(state_dir, error) || error) {
    why = "is not empty";
  }
  if (why.empty()) return absl::OkStatus();
  return SetReason(
      absl::InvalidArgumentError(absl::StrCat(
          "--state-dir ", state_dir, " ", why,
          ": a restore never touches a store that is there; name a new "
          "directory (nothing was changed)")),
      "directory_exists");
}

// Whether `path` is `directory` or below it, through links too.
bool LiesIn(const std::filesystem::path& path,
            const std::filesystem::path& directory) {
  std::error_code error;
  const auto inner = std::filesystem::weakly_canonical(path, error);
  if (error) return false;
  const auto outer = std::filesystem::weakly_canonical(directory, error);
  if (error) return false;
  const auto ends =
      std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  return ends.first == outer.end() || ends.first->empty();
}

// Directories that were made for a restore that failed.
void RemoveMade(std::filesystem::path from, const std::filesystem::path& last) {
  std::error_code error;
  for (; from != last && from.has_relative_path(); from = from.parent_path()) {
    if (!std::filesystem::remove(from, error) || error) return;
  }
}

// The nearest directory above `path` that is there.
std::filesystem::path ExistingParent(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::path parent = path.parent_path();
  while (!std::filesystem::exists(parent, error) &&
         parent.has_relative_path()) {
    parent = parent.parent_path();
  }
  return parent;
}

absl::Status CopyFiles(const std::string& backup,
                       const BackupManifest& manifest, const std::string& to) {
  for (const char* part : {"/store", "/packages"}) {
    COHORT_RETURN_IF_ERROR(MakeDirectories(to + part, 0700));
  }
  for (const BackupManifest::File& file : manifest.files) {
    const std::string from = absl::StrCat(backup, "/", file.name);
    const absl::StatusOr<BackupManifest::File> copied =
        CopyAndHash(from, to, file.name);
    std::string wrong;
    if (absl::IsNotFound(copied.status())) {
      wrong = "it is missing";
    } else if (!copied.ok()) {
      return copied.status();
    } else if (copied->size_bytes != file.size_bytes) {
      wrong = absl::StrCat("it has ", copied->size_bytes, " bytes, it had ",
                           file.size_bytes);
    } else if (copied->hash != file.hash) {
      wrong = "its checksum is wrong";
    }
    if (!wrong.empty()) {
      return DamagedBackup(absl::StrCat(from, " is damaged: ", wrong));
    }
  }
  for (const char* part : {"/store", "/packages"}) {
    COHORT_RETURN_IF_ERROR(SyncDirectory(to + part));
  }
  return absl::OkStatus();
}

absl::Status TakeKeys(const std::string& from, const std::string& to) {
  constexpr size_t kKeyBytesMax = 64 << 20;
  bool found = false;
  for (const char* const name :
       {"/credential", "/ca.key", "/secrets.key", "/revoked"}) {
    const absl::StatusOr<std::string> text =
        ReadFile(from + name, kKeyBytesMax);
    if (absl::IsNotFound(text.status())) continue;
    if (!text.ok()) return Annotate(text.status(), "--keys");
    COHORT_RETURN_IF_ERROR(WriteFileAtomically(to + name, *text, 0600));
    found = true;
  }
  if (found) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--keys ", from,
      " has none of a head's keys: name the state directory of the head that "
      "ran, or a directory with copies of its credential, ca.key, secrets.key "
      "and revoked"));
}

absl::StatusOr<RestoreReport> Rewrite(const std::string& directory,
                                      const BackupManifest& manifest,
                                      const std::string& principal,
                                      const Clock& clock, Random& random) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<RocksdbStore> store,
                          RocksdbStore::Open({.path = directory + "/store"}));
  COHORT_RETURN_IF_ERROR(MigrateStore(*store));
  COHORT_ASSIGN_OR_RETURN(Rows rows, LoadRows(*store));
  if (!rows.cluster.has_value()) {
    return absl::DataLossError("the backup's store has no cluster row");
  }
  const uint64_t term_before = rows.cluster->term();
  const Batch changes = ChangeGeneration(rows, principal, clock.Wall(), random);
  COHORT_RETURN_IF_ERROR(store->Append(term_before, changes));
  RestoreReport report{
      .cluster = IdOf<ClusterId>(rows.cluster->cluster_id()),
      .generation = IdOf<GenerationId>(rows.cluster->generation()),
      .term = rows.cluster->term(),
      .backed_up_at = manifest.at,
      .missing_packages = manifest.missing_packages};
  for (const JobRecord& job : rows.jobs) {
    report.jobs += !HasEnded(job.row.state());
  }
  for (const AttemptRecord& attempt : rows.attempts) {
    report.orphans += attempt.orphaned();
  }
  return report;
}

// A head may be serving the directory above.
absl::Status CheckOutsideOfStores(const std::filesystem::path& target) {
  for (std::filesystem::path above = target.parent_path();;
       above = above.parent_path()) {
    std::error_code ignored;
    if (std::filesystem::exists(above / "store.mark", ignored) ||
        std::filesystem::exists(above / "CURRENT", ignored)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--state-dir ", target.string(), " lies in ", above.string(),
          ", which is a head's own: name a directory outside (nothing was "
          "changed)"));
    }
    if (above == above.parent_path()) return absl::OkStatus();
  }
}

// When a store was restored, in units so short that no two restores fall into
// one, and so long that terms are whole numbers in JSON (below 2^53) until
// 2065.
uint64_t MomentOf(absl::Time now) {
  constexpr int64_t k2025 = 1'735'689'600;  // seconds since 1970
  const absl::Duration since = now - absl::FromUnixSeconds(k2025);
  return static_cast<uint64_t>(
      std::max<int64_t>(0, since / absl::Milliseconds(10)));
}

}  // namespace

Batch ChangeGeneration(Rows& rows, const std::string& principal, absl::Time now,
                       Random& random) {
  ClusterRecord& cluster = *rows.cluster;
  const GenerationId generation = GenerationId::New(random);
  cluster.set_generation(IdBytes(generation));
  cluster.set_term(
      kTermsOfGeneration *
      std::max(cluster.term() / kTermsOfGeneration + 1, MomentOf(now)));
  // A follower of the new generation followed a life of its heads.
  cluster.clear_lives();
  cluster.set_settling(true);
  Batch batch;
  for (JobRecord& job : rows.jobs) {
    if (HasEnded(job.row.state())) continue;
    job.row.set_epoch(job.row.epoch() + kEpochStep);
    job.row.set_incarnations(job.row.incarnations() + kIncarnationStep);
    batch.push_back(ToWrite(job));
  }
  for (AttemptRecord& attempt : rows.attempts) {
    // An orphan since an earlier restore: that is when nobody knew any more.
    if (attempt.state == v1::ATTEMPT_STATE_ENDED || attempt.orphaned())
      continue;
    if (attempt.cause == v1::ATTEMPT_CAUSE_ORPHAN)
      continue;  // a person has spoken
    attempt.orphaned_since = now;
    batch.push_back(ToWrite(attempt));
  }
  EventRecord event;
  event.set_number(cluster.next_event());
  cluster.set_next_event(event.number() + 1);
  *event.mutable_at() = rpc::ToWire(now);
  event.set_kind("store_restored");
  event.set_namespace_("default");
  event.set_principal(principal);
  event.set_text(absl::StrCat("generation ", generation.ToHex()));
  batch.push_back(ToWrite(event));
  batch.push_back(ToWrite(cluster));
  return batch;
}

absl::StatusOr<RestoreReport> RestoreBackup(const std::string& backup,
                                            const std::string& state_dir,
                                            const std::string& keys,
                                            const std::string& principal,
                                            const Clock& clock,
                                            Random& random) {
  if (state_dir.empty()) {
    return absl::InvalidArgumentError(
        "--state-dir is empty: name a new directory");
  }
  COHORT_ASSIGN_OR_RETURN(const BackupManifest manifest, ReadManifest(backup));
  COHORT_RETURN_IF_ERROR(Annotate(
      CheckSchema({.schema_version = manifest.schema, .term = manifest.term}),
      backup));
  std::string target = std::filesystem::absolute(state_dir).lexically_normal();
  while (target.size() > 1 && target.back() == '/') target.pop_back();
  COHORT_RETURN_IF_ERROR(CheckTarget(target));
  if (LiesIn(target, backup)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--state-dir ", state_dir, " lies in the backup ", backup,
        ", which a restore does not change: name a directory outside "
        "(nothing was changed)"));
  }

  COHORT_RETURN_IF_ERROR(CheckOutsideOfStores(target));

  const std::filesystem::path parent = ExistingParent(target);
  const std::string partial = target + ".restoring";
  COHORT_RETURN_IF_ERROR(MakeDirectories(partial, 0700));
  COHORT_ASSIGN_OR_RETURN(const FileLock lock,
                          FileLock::Acquire(partial, "cohort-head restore"));
  absl::Cleanup remove = [&partial, &parent] {
    (void)RemoveTree(partial);
    RemoveMade(std::filesystem::path(partial).parent_path(), parent);
  };
  for (const char* part :
       {"/store", "/store.mark", "/credential", "/credential.sha256", "/ca.key",
        "/secrets.key", "/revoked", "/packages"}) {
    COHORT_RETURN_IF_ERROR(RemoveTree(partial + part));
  }
  COHORT_RETURN_IF_ERROR(CopyFiles(backup, manifest, partial));
  if (!keys.empty()) COHORT_RETURN_IF_ERROR(TakeKeys(keys, partial));
  COHORT_ASSIGN_OR_RETURN(RestoreReport report,
                          Rewrite(partial, manifest, principal, clock, random));
  // One that cannot be read is named by the head's start.
  if (const auto credential = rpc::Credential::Load(partial + "/credential");
      credential.ok()) {
    report.authority = rpc::FingerprintOf(credential->authority()).value_or("");
  }
  COHORT_RETURN_IF_ERROR(SyncDirectory(partial));
  // Takes the place of an empty directory, of nothing else.
  if (rename(partial.c_str(), target.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename ", partial, " to ", target));
  }
  std::move(remove).Cancel();
  COHORT_RETURN_IF_ERROR(SyncDirectory(ParentDirectory(target)));
  return report;
}

}  // namespace cohort::head

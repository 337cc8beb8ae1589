#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/executor.h"
#include "head/archive/backups.h"
#include "head/state/rows.h"

namespace cohort::head {

struct DiskBackupsOptions {
  // The head's, absolute: whose credential and packages a backup has, and where
  // its store is linked to while it is copied (`backup.tmp/`).
  std::string state_dir;
  // Left free on the disk that a backup goes to, which may be the store's own.
  int64_t bytes_kept_free = int64_t{64} << 20;
};

// Backups as directories on disks of this machine.
//
// The store's executor makes hard links and copies the log, which takes
// milliseconds; all else happens on `disk`, beside the head's work.  A backup
// is made as `DIR.partial-<16 digits>`, read back as a store, and takes its
// name last.  Lives as long as Head.
//
//   BK-1: what is at DIR is a whole backup, durable with its name, or nothing.
//   BK-2: a backup that failed leaves nothing; of one whose head was killed
//         `DIR.partial-<16 digits>` is left, which the same request removes.
class DiskBackups final : public Backups {
 public:
  // All outlive this and what it posted.
  DiskBackups(DiskBackupsOptions options, Executor& strand,
              Executor& store_executor, Executor& disk);

  void Write(Store& store, BackupRequest request, Done done) override;

 private:
  void Answer(Done done, absl::StatusOr<BackupManifest> result);
  // Everything that can be said without writing.  Gives the manifest when this
  // very request was done before.
  absl::StatusOr<std::optional<BackupManifest>> Check(
      const BackupRequest& request) const;
  absl::Status Snapshot(Store& store) const;
  absl::StatusOr<BackupManifest> Finish(const BackupRequest& request) const;
  absl::Status Fill(const std::string& partial, BackupManifest& manifest) const;
  absl::Status CopyFile(const std::string& from, const std::string& partial,
                        const std::string& name,
                        BackupManifest& manifest) const;
  absl::Status CopyStore(const std::string& partial,
                         BackupManifest& manifest) const;
  absl::Status CopyPackages(const Rows& rows, const std::string& partial,
                            BackupManifest& manifest) const;

  std::string StagingPath() const { return options_.state_dir + "/backup.tmp"; }

  const DiskBackupsOptions options_;
  Executor& strand_;
  Executor& store_executor_;
  Executor& disk_;
};

}  // namespace cohort::head

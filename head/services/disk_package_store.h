#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "common/clock.h"
#include "common/executor.h"
#include "head/services/package_store.h"

namespace cohort::head {

struct DiskPackageStoreOptions {
  std::string directory;
  // Of one package; what a cluster of plain disks fetches in minutes.
  int64_t package_bytes_max = int64_t{4} << 30;
  // Left free for the control store, which must never wait for a package.
  int64_t bytes_kept_free = int64_t{256} << 20;
  // How long an upload can be resumed after its last byte; less long where its
  // room is wanted.
  absl::Duration part_kept = absl::Hours(24);
  absl::Duration part_kept_without_room = absl::Minutes(10);
};

// Packages as files: `<hash>` is whole, `<hash>.part` is being uploaded.
//
// Disk work goes to `disk`, one piece at a time, so that the operations on one
// package are in order.  Lives as long as Head.
//
// PK-1: a file without `.part` has the hash that is its name, and was synced
//       with its directory before anyone heard of it.
// PK-2: no byte of it is given before the file was read and had its hash, once
//       in this store's life and again when somebody wrote to it; a file that
//       has not is removed.
class DiskPackageStore final : public PackageStore {
 public:
  // All outlive the store and what it posted.  REQUIRES: the directory exists.
  DiskPackageStore(DiskPackageStoreOptions options, Executor& strand,
                   Executor& disk, const Clock& clock);

  void Begin(const std::string& hash, int64_t size_bytes,
             Done<absl::StatusOr<int64_t>> done) override;
  void Upload(const std::string& hash, int64_t offset, std::string data,
              Done<absl::StatusOr<int64_t>> done) override;
  void Finish(const std::string& hash, int64_t size_bytes,
              Done<absl::Status> done) override;
  void Look(const std::string& hash, int64_t size_bytes,
            Done<absl::Status> done) override;
  void Fetch(const std::string& hash, int64_t offset,
             Done<absl::StatusOr<PackageChunk>> done) override;
  void Remove(const std::string& hash) override;
  void KeepOnly(std::vector<std::string> known) override;

 private:
  absl::StatusOr<int64_t> BeginNow(const std::string& hash, int64_t size);
  absl::StatusOr<int64_t> UploadNow(const std::string& hash, int64_t offset,
                                    const std::string& data) const;
  // ResourceExhausted when `bytes` more do not fit.
  absl::Status CheckRoom(int64_t bytes) const;
  // Uploads that nobody has gone on with for that long.
  void RemoveOldParts(absl::Duration age) const;
  absl::Status FinishNow(const std::string& hash, int64_t size);
  // Notes that the file open as `fd` has its hash.
  void NoteChecked(const std::string& hash, int fd);
  // NotFound: there is no file; DataLoss: there was a damaged one.
  absl::Status CheckNow(const std::string& hash);
  absl::Status LookNow(const std::string& hash, int64_t size) const;
  absl::StatusOr<PackageChunk> FetchNow(const std::string& hash,
                                        int64_t offset);

  std::string Path(const std::string& hash) const;
  std::string PartPath(const std::string& hash) const;

  // Runs `work` on the disk and its result through `done` on the strand.
  template <typename Work, typename Result>
  void OnDisk(Work work, Done<Result> done);

  const DiskPackageStoreOptions options_;
  Executor& strand_;
  Executor& disk_;
  const Clock& clock_;
  // disk_'s: hashes that were read and held, and when their files were written.
  std::map<std::string, absl::Time> checked_;
};

}  // namespace cohort::head

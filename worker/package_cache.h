#pragma once

#include <sys/stat.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/executor.h"
#include "common/hash.h"
#include "common/mutex.h"
#include "rpc/channel.h"

namespace cohort::worker {

// Packages by content hash, fetched from the head once and kept.
//
// Fetching is resumed where it stopped, also after a restart; a package is used
// only when it is whole and has its hash.  Strand-bound to the node strand;
// disk work goes to `disk`.  Lives as long as Worker.
class PackageCache {
 public:
  // An archive's path.  It stays here as long as somebody has this.
  using Archive = std::shared_ptr<const std::string>;
  using Done = absl::AnyInvocable<void(absl::StatusOr<Archive>) &&>;

  // Archives kept in `directory` for the next attempt, and beside each its
  // programs, once they were unpacked; of those that nobody has, the ones
  // unused longest go.  A job's attempts on this node share one, so a handful
  // of live jobs is plenty.
  static constexpr size_t kArchivesMax = 32;

  // All outlive the cache and what it posted.
  PackageCache(std::string directory, rpc::Channel& head, Executor& strand,
               Executor& disk);

  // `done` gets the archive, once the head is there: that it is away is not a
  // failure of a job.  NotFound or DataLoss, with the reason kPackageLost,
  // when it does not have the package or what it has is damaged; with the
  // reason kNodeFault when it could not be kept here.  What came and does not
  // have the hash, or has lost it since, is dropped and fetched once more.
  // Calls for one hash share one fetch.
  void Fetch(const Digest& hash, Done done);

 private:
  struct Transfer {
    int64_t offset = 0;
    bool is_second = false;  // the first one brought another hash
    std::vector<Done> waiting;
  };

  // What changes with an archive's bytes: inode, size and time.
  using Version = std::array<int64_t, 4>;

  static Version VersionOf(const struct stat& archive);
  // Whether the archive is there and has its hash; one that has not is removed.
  bool IsWhole(const Digest& hash);
  std::string Path(const Digest& hash) const;
  std::string PartPath(const Digest& hash) const;
  void FetchNext(const Digest& hash);
  void Append(const Digest& hash, std::string data, int64_t size);
  void Finish(const Digest& hash);
  void End(const Digest& hash, absl::StatusOr<std::string> result);
  Archive Hold(const Digest& hash);
  bool IsHeld(const Digest& hash) const;
  // But `newest`, which its waiters get next.
  void Evict(const Digest& newest);

  const std::string directory_;
  rpc::Channel& head_;
  Executor& strand_;
  Executor& disk_;
  std::map<Digest, Transfer> transfers_;
  // The disk executor's: archives that had their hash when it was computed
  // last.  It is code, so it is read again once it may have changed.
  std::map<Digest, Version> whole_;
  mutable Mutex mutex_;
  std::map<Digest, std::weak_ptr<const std::string>> held_
      ABSL_GUARDED_BY(mutex_);
};

// Unpacks a package into `directory`, which exists; its programs are links to
// those beside the archive (SharedPrograms).  Refuses, with
// InvalidArgument naming the entry, what could reach outside of it or has no
// place in a package: absolute names, "..", links that lead out, hard links,
// devices; AlreadyExists or FailedPrecondition when two entries are in each
// other's way, as one below a link.  Whatever else fails is this node's disk,
// and has the reason kNodeFault.  Blocks.
absl::Status UnpackPackage(const std::string& archive,
                           const std::string& directory);

}  // namespace cohort::worker

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/clock.h"
#include "common/random.h"
#include "common/strong_id.h"
#include "head/state/rows.h"
#include "head/store/store.h"

namespace cohort::head {

struct RestoreReport {
  ClusterId cluster;
  GenerationId generation;  // the new one
  uint64_t term = 0;
  absl::Time backed_up_at;
  int64_t jobs = 0;     // that have not ended
  int64_t orphans = 0;  // attempts
  // Hex hashes of packages that jobs need and the backup does not have.
  std::vector<std::string> missing_packages;
  // By which clients know the restored head, a fingerprint; empty: none does.
  std::string authority;
};

// Makes `state_dir` (which must not exist, or be empty) the state directory of
// a head that goes on from the backup at `backup`; starts none.  Blocks.
//
// The store becomes another generation of the same cluster:
//
//   RT-1: whatever attempt had not ended is an orphan, so that no rank ends and
//         none starts a second time before a person says so.
//   RT-2: its term is higher than that of any head before (the seconds since
//         1970, or the backup's and a million): workers follow the store that
//         was restored last, and an older one is refused.
//   RT-3: no checkpoint directory of the time after the backup gets a second
//         owner: the epochs of jobs that had not ended go on a million higher.
//
// InvalidArgument: `backup` is none, or `state_dir` is there and not empty;
// DataLoss, naming the file: the backup is damaged; FailedPrecondition: a newer
// cohort wrote it; else what the file system said.  On an error nothing is left
// at `state_dir`; of a restore that was killed, `<state_dir>.restoring` is.
// `keys`: unless empty, the state directory of the head whose place this one
// takes, or a copy of its keys: what it has of `credential`, `ca.key`,
// `secrets.key` and `revoked` is taken in place of the backup's, and one of
// these at least.
// `principal`: who asked, for the event that tells of it.
absl::StatusOr<RestoreReport> RestoreBackup(const std::string& backup,
                                            const std::string& state_dir,
                                            const std::string& keys,
                                            const std::string& principal,
                                            const Clock& clock, Random& random);

// What a restore changes in a store that has `rows`; sets them so.
// REQUIRES: there is a cluster row.
Batch ChangeGeneration(Rows& rows, const std::string& principal, absl::Time now,
                       Random& random);

}  // namespace cohort::head

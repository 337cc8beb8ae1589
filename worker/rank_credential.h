#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

#include "common/process_id.h"
#include "rpc/credential.h"

// What a rank shows, in a file of its attempt's runtime directory
// (NodeDirectories::RankCredential).
namespace cohort::worker {

// Signed by `signer`, the node's.  Not synced, as it is in memory; one that is
// there is replaced at once, for its rank may be reading it.
// FailedPrecondition when the job has put a directory there.
absl::Status WriteRankCredential(const std::string& path,
                                 const rpc::Credential& signer,
                                 const ProcessId& process);

// The ranks that have one below `runtime`, the node's runtime directory.
std::vector<ProcessId> RanksWithCredential(const std::string& runtime);

}  // namespace cohort::worker

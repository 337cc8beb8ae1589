#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/random.h"
#include "rpc/credential.h"
#include "worker/options.h"

namespace cohort::worker {

// Of the node in that state directory, made when it joined.
std::string NodeCredentialFile(const std::string& state_dir);

// By which this worker speaks: the file that is named; else the node's own, if
// it has one; else, or with another join token than the one by which it was
// got, the node joins and what it gets is kept.  Blocks.
//
// InvalidArgument: there is none of these, or what is named is none; for a
// token that is not let in what the head, or FetchAuthority, says.
absl::StatusOr<rpc::Credential> LoadOrJoin(const WorkerOptions& options,
                                           const NodeId& node, Random& random);

}  // namespace cohort::worker

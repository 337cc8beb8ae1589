#pragma once

#include "absl/status/statusor.h"

#include "common/random.h"
#include "head/options.h"
#include "rpc/credential.h"

namespace cohort::head {

// The credential in the state directory.  With a new store a new one is made;
// beside a store that is there none is, unless one is missing and
// options.new_credential asks for it: all workers and clients would be refused,
// nodes declared dead and their work given up.
//
// FailedPrecondition (no_credential), with nothing changed, when it is missing,
// damaged, a rank's, or another than before by its hash in credential.sha256.
// Errors of the disk, and of a file that others may read.
absl::StatusOr<rpc::Credential> LoadHeadCredential(const HeadOptions& options,
                                                   Random& random);

}  // namespace cohort::head

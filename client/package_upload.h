#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "client/head_client.h"
#include "client/package.h"

namespace cohort::client {

// Gives the head `package` in parts, from where it already has them, starting
// over from the head's word when the two disagree.  `deadline` is for each
// part.  Errors as Cluster::UploadPackage.  Blocks.
absl::Status UploadPackage(HeadClient& head, const Package& package,
                           absl::Duration deadline);

}  // namespace cohort::client

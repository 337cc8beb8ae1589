#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "client/head_client.h"
#include "client/package.h"

namespace cohort::client {

// Gives the head `package` in parts, from where it already has them, starting
// over from the head's word when the two disagree.  `deadline` is for each
// part; `on_progress`, unless it is empty, gets how many bytes the head has.
// Errors as Cluster::UploadPackage.  Blocks.
absl::Status UploadPackage(HeadClient& head, const Package& package,
                           absl::Duration deadline,
                           const std::function<void(int64_t)>& on_progress);

}  // namespace cohort::client

#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "client/cluster.h"
#include "client/head_client.h"
#include "client/log_follower.h"
#include "common/job_id.h"

namespace cohort::client {

// Where the lines begin that `options.tail` and `options.since` leave of the
// logs at `places`, or where these end when there are none.  Reads growing
// parts from their ends, on the calling thread.  `timeout` and errors as
// LogFollower's.
absl::StatusOr<std::vector<LogPlace>> FindLogTail(
    HeadClient& head, const JobId& job, const LogOptions& options,
    absl::Duration timeout, const std::vector<LogPlace>& places);

}  // namespace cohort::client

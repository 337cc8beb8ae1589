#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"

#include "client/head_client.h"
#include "cohort/v1/cluster.pb.h"

namespace cohort::client {

// Reads a file of a job, or the list of its files, from `request`'s offset to
// the end, on the calling thread, going on where it was when the head went
// away.  An error of `sink` ends it.  Unavailable: the node is away (reason
// "node_away"), or the head was for all of `timeout`, which is how long it
// waits for each piece.
absl::Status ReadRunFile(
    HeadClient& head, v1::ReadRunFileRequest request, absl::Duration timeout,
    absl::FunctionRef<absl::Status(const v1::ReadRunFileResponse&)> sink);

}  // namespace cohort::client

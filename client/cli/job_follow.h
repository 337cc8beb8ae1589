#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "client/cluster.h"

namespace cohort::cli {

// Prints what the ranks write, each stream to its own, until the job has ended:
// with the rank before each line when there are several.  Pieces for which
// `shows` gives false are left out; without it all are printed.  Ends a line
// that the ranks have left open on stderr.  Errors as Cluster::Logs.
absl::Status FollowOutput(
    const Cluster& cluster, const JobId& id, int num_workers,
    std::function<absl::StatusOr<bool>(const LogChunk&)> shows = nullptr);

// Why it does not fit the nodes, not even if they were idle: lines.  Nothing
// when it may.
std::optional<std::string> WhyItNeverFits(const Cluster& cluster,
                                          const JobId& id);
// Says so on stderr, so that nobody waits for what cannot come.
void SayWhenItNeverFits(const Cluster& cluster, const JobId& id);
// Says so on stderr when what the job leaves on a node may go with it, since
// the cluster ends idle nodes.
void SayWhenResultsMayGo(const Cluster& cluster, const JobSpec& spec);

}  // namespace cohort::cli

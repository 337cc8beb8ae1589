#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "client/event.h"
#include "client/job.h"
#include "client/node.h"
#include "common/build_info.h"

// Text for programs: the shapes of `--json`, which the head's /v1 answers too.
// Every key is always there, null when unknown; times are RFC 3339 UTC with
// milliseconds; memory is in bytes.  Golden-tested: keys are added, never
// renamed or dropped.
namespace cohort {

std::string JobJson(const Job& job);
// Without ranks.
std::string JobsJson(const std::vector<Job>& jobs);
std::string NodeJson(const Node& node);
// With what it has.
std::string NodeDetailsJson(const NodeDetails& details);
std::string NodesJson(const std::vector<Node>& nodes);
// One GPU, and the node that it is of; all of some nodes.
std::string GpuJson(const Node& node, const Device& device);
std::string GpusJson(const std::vector<Node>& nodes);
std::string ResourcesJson(const ClusterResources& resources);
std::string StatusJson(const ClusterStatus& status);
std::string BackupJson(const std::string& directory,
                       const BackupSummary& summary);
std::string VersionJson(const BuildInfo& build);

// On one line each.
std::string EventJson(const Event& event);
std::string IdJson(const JobId& job);
// {"id": "...", "lost_nodes": [...]}
std::string AdoptionJson(const Adoption& adoption);
std::string ErrorJson(absl::string_view code, absl::string_view reason,
                      absl::string_view message);
std::string LogLineJson(int attempt, int rank, absl::string_view stream,
                        absl::string_view line);

// "2026-11-21T10:00:00.123Z".
std::string TimeText(absl::Time time);

}  // namespace cohort

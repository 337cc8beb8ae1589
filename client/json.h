#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

#include "client/job.h"
#include "client/job_file.h"
#include "client/node.h"
#include "common/build_info.h"

// Text for programs: the shapes of `--json`, which the head's /v1 answers too,
// written of messages by reflection (cohort/v1/json.proto).
//
// Every key is always there, null when unknown; times are RFC 3339 UTC with
// milliseconds; memory is in bytes.  Golden-tested: keys are added, never
// renamed or dropped.
namespace cohort {

// A job, a node, an explanation, a status by itself.
std::string ToJson(const google::protobuf::Message& message);
// The same on one line, as of an event.
std::string ToJsonLine(const google::protobuf::Message& message);
// Without what is only of one by itself.
std::string JobsJson(const std::vector<Job>& jobs);
std::string ExplanationsJson(const std::vector<Explanation>& explanations);
std::string NodesJson(const std::vector<Node>& nodes);

// The device `index` of a node, and the node that it is of; all GPUs of some
// nodes.
std::string GpuJson(const Node& node, int index);
std::string GpusJson(const std::vector<Node>& nodes);
// Jobs that are actors, or groups of them, in words of actors.
std::string ActorJson(const Job& actor);
std::string ActorsJson(const std::vector<Job>& actors);
std::string DriversJson(const DriverList& drivers);
// A line of each driver and shape.
std::string TasksJson(const DriverList& drivers);
std::string StacksJson(const std::vector<RankStack>& stacks);
std::string JobFilesJson(const JobFiles& files);
std::string BackupJson(const std::string& directory,
                       const BackupSummary& summary);
std::string VersionJson(const BuildInfo& build);

// On one line each.
std::string IdJson(const JobId& job);
std::string IdsJson(const std::vector<JobId>& jobs);
std::string ErrorJson(absl::string_view code, absl::string_view reason,
                      absl::string_view message);
// `time` as TimeText writes it; empty: not known.
std::string LogLineJson(int attempt, int rank, absl::string_view stream,
                        absl::string_view line, absl::string_view time);

}  // namespace cohort

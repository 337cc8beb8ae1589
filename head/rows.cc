#include "head/rows.h"

#include <map>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "head/records_codec.h"

namespace cohort::head {
namespace {

// Rows are checked one by one by their checksums; this is about those that are
// missing beside others.
absl::Status CheckWhole(const Rows& rows, size_t cluster_rows) {
  if (cluster_rows > 1) {
    return absl::DataLossError("the store has two cluster rows");
  }
  const bool anything = !rows.nodes.empty() || !rows.jobs.empty() ||
                        !rows.attempts.empty() || !rows.requests.empty() ||
                        !rows.packages.empty() || !rows.arrays.empty();
  if (cluster_rows == 0 && anything) {
    return absl::DataLossError(
        "the store has rows but no cluster row: restore it from a backup");
  }
  std::set<JobId> jobs;
  for (const JobRecord& job : rows.jobs) jobs.insert(job.id);
  std::set<JobId> arrays;
  for (const ArrayRecord& array : rows.arrays) arrays.insert(array.id);
  for (const JobRecord& job : rows.jobs) {
    if (!job.id.IsElement() || arrays.contains(job.id.array())) continue;
    return absl::DataLossError(
        absl::StrCat("job ", job.id.ToText(), " is there, its array is not"));
  }
  std::set<NodeId> nodes;
  for (const NodeRecord& node : rows.nodes) nodes.insert(node.id);
  for (const AttemptRecord& attempt : rows.attempts) {
    if (!jobs.contains(attempt.job)) {
      return absl::DataLossError(absl::StrCat("attempt ", attempt.id.ToHex(),
                                              " is there, its job ",
                                              attempt.job.ToText(), " is not"));
    }
    if (attempt.state == AttemptState::kEnded) continue;
    for (const AttemptPart& part : attempt.parts) {
      if (!nodes.contains(part.node)) {
        return absl::DataLossError(
            absl::StrCat("attempt ", attempt.id.ToHex(), " is on node ",
                         part.node.ToHex(), ", which is not there"));
      }
    }
  }
  return absl::OkStatus();
}

// The elements of an array share its spec.
void Share(Rows& rows) {
  std::map<JobId, const ArrayRecord*> arrays;
  for (const ArrayRecord& array : rows.arrays) arrays[array.id] = &array;
  for (JobRecord& job : rows.jobs) {
    if (job.id.IsElement()) job.spec = arrays.at(job.id.array())->spec;
  }
}

}  // namespace

absl::StatusOr<Rows> LoadRows(Store& store) {
  Rows rows;
  COHORT_ASSIGN_OR_RETURN(std::vector<ClusterRecord> cluster,
                          LoadRecords<ClusterRecord>(store));
  COHORT_ASSIGN_OR_RETURN(rows.nodes, LoadRecords<NodeRecord>(store));
  COHORT_ASSIGN_OR_RETURN(rows.jobs, LoadRecords<JobRecord>(store));
  COHORT_ASSIGN_OR_RETURN(rows.attempts, LoadRecords<AttemptRecord>(store));
  COHORT_ASSIGN_OR_RETURN(rows.arrays, LoadRecords<ArrayRecord>(store));
  COHORT_ASSIGN_OR_RETURN(rows.wait_reasons,
                          LoadRecords<WaitReasonRecord>(store));
  COHORT_ASSIGN_OR_RETURN(rows.requests, LoadRecords<RequestRecord>(store));
  COHORT_ASSIGN_OR_RETURN(rows.packages, LoadRecords<PackageRecord>(store));
  COHORT_RETURN_IF_ERROR(CheckWhole(rows, cluster.size()));
  Share(rows);
  if (!cluster.empty()) rows.cluster = std::move(cluster.front());
  return rows;
}

}  // namespace cohort::head

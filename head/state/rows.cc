#include "head/state/rows.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "head/state/array_rows.h"
#include "head/state/attempt_table.h"
#include "head/state/run_controller.h"
#include "head/store/records_codec.h"
#include "rpc/wire_values.h"

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
  absl::flat_hash_set<JobId> jobs;
  for (const JobRecord& job : rows.jobs) jobs.insert(job.id);
  absl::flat_hash_set<JobId> arrays;
  for (const ArrayRecord& array : rows.arrays) arrays.insert(array.id);
  for (const JobRecord& job : rows.jobs) {
    if (!job.id.IsElement() || arrays.contains(job.id.array())) continue;
    return absl::DataLossError(
        absl::StrCat("job ", job.id.ToText(), " is there, its array is not"));
  }
  absl::flat_hash_set<NodeId> nodes;
  for (const NodeRecord& node : rows.nodes) nodes.insert(node.id);
  for (const AttemptRecord& attempt : rows.attempts) {
    if (!jobs.contains(attempt.job)) {
      return absl::DataLossError(absl::StrCat("attempt ", attempt.id.ToHex(),
                                              " is there, its job ",
                                              attempt.job.ToText(), " is not"));
    }
    if (attempt.state == v1::ATTEMPT_STATE_ENDED) continue;
    for (const Place& place : attempt.places) {
      if (!nodes.contains(place.node)) {
        return absl::DataLossError(
            absl::StrCat("attempt ", attempt.id.ToHex(), " is on node ",
                         place.node.ToHex(), ", which is not there"));
      }
    }
  }
  return absl::OkStatus();
}

// How many events (or calls) are read at once, and how many share a time, which
// saves reading each of 100,000 rows at every start.
constexpr size_t kEventsRead = 10'000;
constexpr size_t kEventsPerTime = 100;

// Which there are.  A row that cannot be read is found by who reads it.
template <typename Record>
absl::StatusOr<std::vector<StoredEvent>> LoadTimes(Store& store) {
  std::vector<StoredEvent> events;
  std::string first;
  for (;;) {
    COHORT_ASSIGN_OR_RETURN(
        const auto rows,
        store.LoadRange(RowOf<Record>::kTable, first, kEventsRead));
    const size_t begin = events.size();
    for (const auto& [key, value] : rows) {
      events.push_back(
          {.number = RowNumber(key),
           .at = absl::InfinitePast(),
           .bytes = static_cast<int64_t>(key.size() + value.size())});
    }
    absl::Time at = absl::InfinitePast();
    for (size_t i = rows.size(); i-- > 0;) {
      if (i + 1 == rows.size() || i % kEventsPerTime == 0) {
        const auto event = FromRow<Record>(rows[i].first, rows[i].second);
        if (event.ok()) at = rpc::FromWire(event->at());
      }
      events[begin + i].at = at;
    }
    if (rows.size() < kEventsRead) return events;
    first = RowKey(events.back().number + 1);
  }
}

// Jobs and arrays get their specs, which the elements of an array share.
absl::Status JoinSpecs(std::vector<SpecRecord> specs, Rows& rows) {
  absl::flat_hash_map<JobId, Shared<JobSpec>> by_id;
  for (SpecRecord& each : specs) by_id[each.id] = std::move(each.spec);
  const auto join = [&by_id](auto& records) -> absl::Status {
    for (auto& record : records) {
      const auto spec = by_id.find(record.id.array());
      if (spec == by_id.end()) {
        return absl::DataLossError(absl::StrCat("job ", record.id.ToText(),
                                                " is there, its spec is not"));
      }
      record.spec = spec->second;
    }
    return absl::OkStatus();
  };
  COHORT_RETURN_IF_ERROR(join(rows.jobs));
  return join(rows.arrays);
}

// Slots that changed since their attempt's row was written.
absl::Status JoinProcesses(std::vector<ProcessRecord> processes, Rows& rows) {
  absl::flat_hash_map<AttemptId, AttemptRecord*> by_id;
  for (AttemptRecord& each : rows.attempts) by_id[each.id] = &each;
  for (ProcessRecord& each : processes) {
    const auto found = by_id.find(each.attempt);
    std::vector<Process>* const all =
        found == by_id.end() ? nullptr : &found->second->processes;
    if (all == nullptr || each.slot > all->size()) {
      return absl::DataLossError(absl::StrCat(
          "slot ", each.slot, " of attempt ", each.attempt.ToHex(),
          " is there, ", all == nullptr ? "the attempt" : "a slot before it",
          " is not"));
    }
    if (each.slot == all->size()) all->emplace_back();
    (*all)[each.slot] = std::move(each.process);
    (*all)[each.slot].has_row = true;
  }
  return absl::OkStatus();
}

// The epoch that only the job's row has while slots are filled one by one; and
// what a place in which processes were seen says of those without a row.
void FillAttempts(Rows& rows) {
  absl::flat_hash_map<JobId, const JobRecord*> jobs;
  for (const JobRecord& job : rows.jobs) jobs[job.id] = &job;
  for (AttemptRecord& attempt : rows.attempts) {
    const JobRecord& job = *jobs.at(attempt.job);
    if (attempt.state == v1::ATTEMPT_STATE_ENDED) continue;
    // After a restore it is one that names no membership of the time after the
    // backup.  Together they keep the one that they were begun with.
    if (RunsOneByOne(job) && attempt.number == job.row.attempts()) {
      attempt.epoch = job.row.epoch();
    }
    for (Process& process : attempt.processes) {
      const Place* const place = PlaceOn(attempt, process.node);
      if (!process.has_row && place != nullptr &&
          place->phase == v1::PLACE_PHASE_RUNNING) {
        process.state = std::max(process.state, v1::PROCESS_STATE_RUNNING);
      }
    }
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
  COHORT_ASSIGN_OR_RETURN(rows.drivers, LoadRecords<DriverRecord>(store));
  COHORT_ASSIGN_OR_RETURN(rows.cluster_file, LoadRecords<ClusterFile>(store));
  COHORT_ASSIGN_OR_RETURN(rows.instances, LoadRecords<InstanceRecord>(store));
  COHORT_ASSIGN_OR_RETURN(rows.capacity, LoadRecords<CapacityRecord>(store));
  COHORT_ASSIGN_OR_RETURN(rows.tokens, LoadRecords<TokenRecord>(store));
  COHORT_ASSIGN_OR_RETURN(rows.metrics, LoadRecords<MetricsRecord>(store));
  COHORT_ASSIGN_OR_RETURN(rows.events, LoadTimes<EventRecord>(store));
  COHORT_ASSIGN_OR_RETURN(rows.audit, LoadTimes<AuditRecord>(store));
  COHORT_RETURN_IF_ERROR(CheckWhole(rows, cluster.size()));
  COHORT_ASSIGN_OR_RETURN(std::vector<SpecRecord> specs,
                          LoadRecords<SpecRecord>(store));
  COHORT_RETURN_IF_ERROR(JoinSpecs(std::move(specs), rows));
  CatchUp(rows.arrays, rows.jobs);
  COHORT_ASSIGN_OR_RETURN(std::vector<ProcessRecord> processes,
                          LoadRecords<ProcessRecord>(store));
  COHORT_RETURN_IF_ERROR(JoinProcesses(std::move(processes), rows));
  FillAttempts(rows);
  if (!cluster.empty()) rows.cluster = std::move(cluster.front());
  return rows;
}

}  // namespace cohort::head

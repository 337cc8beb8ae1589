#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

#include "cohort/v1/node.pb.h"
#include "head/state/attempt_table.h"
#include "head/store/records.h"
#include "rpc/wire_values.h"

// What a node is told and would say of an attempt, for tests.
namespace cohort::head {

// What is wanted of a place: FORGET, or what is of its processes.
inline v1::Goal GoalFor(const v1::DesiredPlace& place) {
  if (place.goal() == v1::GOAL_FORGET) return place.goal();
  for (const v1::DesiredProcess& each : place.processes()) {
    if (each.goal() != v1::GOAL_FORGET) return each.goal();
  }
  return place.goal();
}

// How far the place and all of its processes are.
enum class Stage {
  kUnknown,
  kPreparing,
  kPrepared,
  kStarting,
  kRunning,
  kEnded
};

inline v1::ProcessState ProcessStateAt(Stage stage) {
  switch (stage) {
    case Stage::kStarting:
      return v1::PROCESS_STATE_STARTING;
    case Stage::kRunning:
      return v1::PROCESS_STATE_RUNNING;
    case Stage::kEnded:
      return v1::PROCESS_STATE_ENDED;
    default:
      return v1::PROCESS_STATE_PENDING;
  }
}

inline v1::Phase PhaseAt(Stage stage) {
  return stage == Stage::kUnknown     ? v1::PHASE_UNSPECIFIED
         : stage == Stage::kPreparing ? v1::PHASE_PREPARING
                                      : v1::PHASE_PREPARED;
}

// With the processes of all nodes: OnlyOn leaves those of one.
inline v1::ObservedPlace PlaceAt(const AttemptRecord& attempt, Stage stage) {
  v1::ObservedPlace place;
  place.set_attempt_id(std::string(attempt.id.bytes()));
  place.set_job_id(attempt.job.bytes());
  place.set_epoch(attempt.epoch);
  place.set_phase(PhaseAt(stage));
  place.set_master_port(29500);
  for (const Process& process : attempt.processes) {
    v1::ObservedProcess* const out = place.add_processes();
    out->set_slot(process.slot);
    out->set_incarnation(process.incarnation);
    out->set_state(ProcessStateAt(stage));
    if (stage >= Stage::kRunning) out->set_pid(100 + process.slot);
    for (const auto& [gpu, amount] : process.devices) out->add_gpu_ids(gpu);
  }
  return place;
}

// The same place, as far as `stage`.
inline v1::ObservedPlace Moved(v1::ObservedPlace place, Stage stage) {
  place.set_phase(PhaseAt(stage));
  for (v1::ObservedProcess& each : *place.mutable_processes()) {
    each.set_state(ProcessStateAt(stage));
  }
  return place;
}

// Of an attempt that the head need not know, of one process.
inline v1::ObservedPlace PlaceOf(const AttemptId& attempt, const JobId& job,
                                 Stage stage) {
  AttemptRecord record{.id = attempt, .job = job};
  record.processes.push_back({.slot = 0, .incarnation = 1});
  return PlaceAt(record, stage);
}

inline AttemptId AttemptOf(const v1::DesiredPlace& place) {
  return *AttemptId::FromBytes(place.attempt_id());
}

inline void SetPlaces(v1::Observed& observed,
                      const std::vector<v1::ObservedPlace>& places) {
  observed.clear_places();
  for (const v1::ObservedPlace& each : places) *observed.add_places() = each;
}

// All processes have ended with `code`, one after the other.
inline v1::ObservedPlace ExitedAt(const AttemptRecord& attempt, int code,
                                  bool by_order = false) {
  v1::ObservedPlace place = PlaceAt(attempt, Stage::kEnded);
  int order = 0;
  for (v1::ObservedProcess& each : *place.mutable_processes()) {
    each.set_end_cause(v1::END_CAUSE_EXITED);
    each.mutable_exit()->set_code(code);
    each.set_exit_order(++order);
    each.set_ended_by_order(by_order);
  }
  return place;
}

// Without the processes that the attempt has on other nodes.
inline v1::ObservedPlace OnlyOn(const NodeId& node,
                                const AttemptRecord* attempt,
                                v1::ObservedPlace place) {
  if (attempt == nullptr) return place;
  auto& all = *place.mutable_processes();
  all.erase(std::remove_if(all.begin(), all.end(),
                           [&](const v1::ObservedProcess& each) {
                             const size_t slot =
                                 static_cast<size_t>(each.slot());
                             return slot < attempt->processes.size() &&
                                    attempt->processes[slot].incarnation ==
                                        each.incarnation() &&
                                    attempt->processes[slot].node != node;
                           }),
            all.end());
  return place;
}

// How all of its processes ended.
inline v1::ObservedPlace EndedBy(v1::ObservedPlace place, v1::EndCause cause,
                                 const std::string& detail = "") {
  for (v1::ObservedProcess& each : *place.mutable_processes()) {
    each.set_state(v1::PROCESS_STATE_ENDED);
    each.set_end_cause(cause);
    each.set_detail(detail);
  }
  return place;
}

inline v1::ObservedPlace WithTail(v1::ObservedPlace place,
                                  const std::string& tail) {
  place.mutable_processes(0)->set_stderr_tail(tail);
  return place;
}
inline v1::ObservedPlace WithRan(v1::ObservedPlace place, absl::Duration ran) {
  for (v1::ObservedProcess& each : *place.mutable_processes()) {
    *each.mutable_ran() = rpc::ToWire(ran);
  }
  return place;
}
inline v1::ObservedPlace WithExit(v1::ObservedPlace place,
                                  const ExitStatus& exit) {
  for (v1::ObservedProcess& each : *place.mutable_processes()) {
    *each.mutable_exit() = exit;
  }
  return place;
}
inline v1::ObservedPlace WithMetrics(v1::ObservedPlace place, int slot,
                                     uint64_t count, const std::string& json) {
  place.clear_metrics();
  v1::MetricsReport* const report = place.add_metrics();
  report->set_slot(slot);
  for (const v1::ObservedProcess& each : place.processes()) {
    if (each.slot() == slot) report->set_incarnation(each.incarnation());
  }
  report->set_count(count);
  report->set_json(json);
  return place;
}
inline v1::ObservedPlace WithCheckpoint(v1::ObservedPlace place,
                                        const std::string& path, int64_t step,
                                        int64_t epoch) {
  v1::Checkpoint* const checkpoint = place.add_checkpoints();
  checkpoint->set_path(path);
  checkpoint->set_step(step);
  checkpoint->set_epoch(epoch);
  return place;
}
inline v1::ObservedPlace WithBlob(v1::ObservedPlace place,
                                  const std::string& tag, int rank,
                                  const std::string& blob) {
  v1::PendingExchange* const given = place.add_exchanges();
  given->set_tag(tag);
  given->set_rank(rank);
  given->set_blob(blob);
  return place;
}
inline v1::ObservedPlace WithPreflight(v1::ObservedPlace place,
                                       v1::PreflightVerdict verdict,
                                       const std::string& summary,
                                       const std::string& json = "") {
  place.mutable_preflight()->set_verdict(verdict);
  place.mutable_preflight()->set_summary(summary);
  place.mutable_preflight()->set_json(json);
  return place;
}

// What only nodes know of `current` onto what is stored: pids, and what runs.
inline void KeepSoft(const AttemptRecord& current, AttemptRecord& stored) {
  for (size_t i = 0;
       i < stored.processes.size() && i < current.processes.size(); ++i) {
    stored.processes[i].pid = current.processes[i].pid;
    if (current.processes[i].state < v1::PROCESS_STATE_EXITED) {
      stored.processes[i].state = current.processes[i].state;
    }
  }
}

// What the row of a job need not say yet: metrics of the last second, and of an
// element whose array's row says the rest, the phases that it began with.
inline void KeepSoft(const JobRecord& current, JobRecord& stored) {
  stored.row.set_metrics_json(current.row.metrics_json());
  stored.row.set_metrics_count(current.row.metrics_count());
  if (stored.behind && stored.row.phases().empty()) {
    *stored.row.mutable_phases() = current.row.phases();
  }
  stored.behind = current.behind;
}

// It could not be prepared.
inline v1::ObservedPlace FailedBy(v1::ObservedPlace place, v1::EndCause cause,
                                  const std::string& detail = "") {
  place.set_phase(v1::PHASE_FAILED);
  place.set_end_cause(cause);
  place.set_detail(detail);
  return place;
}

}  // namespace cohort::head

// RunController's part about ends of processes: what follows from them by the
// job's restart policy (docs/design/0009-processes.md).

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/exception_text.h"
#include "common/printable_text.h"
#include "head/state/attempt_table.h"
#include "head/state/cause_chain.h"
#include "head/state/end_reason.h"
#include "head/state/failure_class.h"
#include "head/state/job_spec.h"
#include "head/state/run_controller.h"

namespace cohort::head {

namespace {

// Other ranks may raise over a rank's end before its keeper has seen that end.
constexpr absl::Duration kEndSeenLate = absl::Seconds(1);

// Whether a rank with `exit` raised before the one that the attempt failed of.
// The clocks of nodes are taken to agree, as by torchrun.
bool RaisedEarlier(const std::optional<ExitStatus>& exit,
                   const AttemptRecord& attempt) {
  if (attempt.cause != v1::ATTEMPT_CAUSE_RANK_FAILED || !exit.has_value() ||
      !attempt.exit.has_value()) {
    return false;
  }
  const auto at = RaisedAt(exit->detail());
  const int64_t ended_us = attempt.exit->ended_at_us();
  const absl::Time first =
      RaisedAt(attempt.exit->detail())
          .value_or(ended_us == 0
                        ? absl::InfinitePast()
                        : absl::FromUnixMicros(ended_us) - kEndSeenLate);
  return at.has_value() && *at < first;
}

}  // namespace

void RunController::SetCause(AttemptRecord& attempt, EndReason reason,
                             RunOutcome& outcome) {
  if (GiveReason(std::move(reason), attempt)) outcome.attempt_changed = true;
}

RunController::ProcessEnd RunController::EndOf(
    const AttemptRecord& attempt, const Process& process,
    const v1::ObservedProcess& seen) const {
  ProcessEnd end{.slot = process.slot,
                 .node = process.node,
                 .detail = Cut(seen.detail(), limits_.detail_bytes_max)};
  const auto by = [&](AttemptCause cause, absl::string_view otherwise) {
    end.cause = cause;
    if (end.detail.empty()) end.detail = std::string(otherwise);
    end.fact = absl::StrCat(names_(end.node), ": ", end.detail);
    return end;
  };
  switch (seen.end_cause()) {
    case v1::END_CAUSE_NODE_FAILED:
      return by(v1::ATTEMPT_CAUSE_NODE_FAILED, "its node could not begin it");
    case v1::END_CAUSE_DEVICE_FAULT:
      return by(v1::ATTEMPT_CAUSE_DEVICE_FAULT,
                "a device of its ranks has a fault");
    case v1::END_CAUSE_KEEPER_LOST:
      return by(v1::ATTEMPT_CAUSE_KEEPER_LOST, "its keeper died");
    case v1::END_CAUSE_MISSING:
      return by(v1::ATTEMPT_CAUSE_NODE_LOST, "its node knows nothing of it");
    case v1::END_CAUSE_DAEMON_SHUTDOWN:
      return by(v1::ATTEMPT_CAUSE_DAEMON_SHUTDOWN, "its worker was shut down");
    case v1::END_CAUSE_TIME_LIMIT:
      end.cause = v1::ATTEMPT_CAUSE_TIME_LIMIT;
      end.order = seen.exit_order();
      return end;
    default:
      break;
  }
  if (process.exit.has_value() && EndedWell(*process.exit)) return end;
  if (attempt.state == v1::ATTEMPT_STATE_PREPARING) {
    return by(v1::ATTEMPT_CAUSE_PREPARE_FAILED,
              "it ended before its ranks started");
  }
  end.cause = v1::ATTEMPT_CAUSE_RANK_FAILED;
  // What it raised before it was ended is why.
  const bool is_known =
      process.exit.has_value() &&
      (!seen.ended_by_order() || RaisedAt(process.exit->detail()).has_value());
  end.order = is_known && seen.exit_order() > 0
                  ? seen.exit_order()
                  : std::numeric_limits<int>::max() - (is_known ? 1 : 0);
  end.detail = is_known ? DescribeExit(process.slot, "", *process.exit)
                        : absl::StrCat("rank ", process.slot,
                                       " ended in an unknown way");
  end.fact = is_known
                 ? DescribeExit(process.slot, names_(end.node), *process.exit)
                 : absl::StrCat(names_(end.node), ": ", end.detail);
  return end;
}

void RunController::ApplyEnds(JobRecord& job, AttemptRecord& attempt,
                              std::vector<ProcessEnd> ends,
                              RunOutcome& outcome) const {
  std::stable_sort(ends.begin(), ends.end(),
                   [](const ProcessEnd& a, const ProcessEnd& b) {
                     return a.order < b.order;
                   });
  if (RunsOneByOne(job)) {
    for (const ProcessEnd& end : ends) EndSlot(job, attempt, end, outcome);
    return Vacate(job, attempt, outcome);
  }
  const int failed_before = attempt.failed_rank;
  EndGang(job, attempt, ends, outcome);
  if (attempt.failed_rank != failed_before && !job.row.stderr_tail().empty()) {
    job.row.clear_stderr_tail();  // of the failure before
    outcome.job_changed = true;
  }
}

void RunController::EndGang(const JobRecord& job, AttemptRecord& attempt,
                            const std::vector<ProcessEnd>& ends,
                            RunOutcome& outcome) const {
  // Who failed by itself did so before what took the others; once an attempt
  // ends for another reason its ranks fail because of that.
  for (const ProcessEnd& end : ends) {
    if (end.cause != v1::ATTEMPT_CAUSE_RANK_FAILED) continue;
    const Process& process = attempt.processes[static_cast<size_t>(end.slot)];
    if (RaisedEarlier(process.exit, attempt)) {
      attempt.failed_rank = end.slot;
      attempt.exit = process.exit;
      attempt.detail = end.detail;
      AddCauses({end.fact}, /*in_front=*/true, attempt);
      outcome.attempt_changed = true;
    }
    if (attempt.cause != v1::ATTEMPT_CAUSE_NONE) continue;
    if (process.exit.has_value()) {
      attempt.failed_rank = end.slot;
      attempt.exit = process.exit;
    }
    SetCause(attempt,
             {.cause = end.cause,
              .detail = end.detail,
              .facts = {end.fact},
              .node = end.node},
             outcome);
  }
  std::map<AttemptCause, std::vector<int>> ranks;
  for (const ProcessEnd& end : ends) ranks[end.cause].push_back(end.slot);
  for (const ProcessEnd& end : ends) {
    // Of those that ended alike the first speaks.
    if (end.cause == v1::ATTEMPT_CAUSE_NONE ||
        end.cause == v1::ATTEMPT_CAUSE_RANK_FAILED ||
        ranks.at(end.cause).front() != end.slot) {
      continue;
    }
    if (end.cause == v1::ATTEMPT_CAUSE_TIME_LIMIT) {
      EndByTimeLimit(job, attempt, end, outcome);
      continue;
    }
    EndReason reason{.cause = end.cause,
                     .detail = end.detail,
                     .facts = {end.fact},
                     .node = end.node};
    if (end.cause == v1::ATTEMPT_CAUSE_KEEPER_LOST ||
        end.cause == v1::ATTEMPT_CAUSE_NODE_LOST) {
      std::vector<int>& lost = ranks.at(end.cause);
      std::sort(lost.begin(), lost.end());
      reason.facts.push_back(DescribeLoss(lost, names_(end.node)));
    }
    SetCause(attempt, std::move(reason), outcome);
  }
}

void RunController::EndByTimeLimit(const JobRecord& job, AttemptRecord& attempt,
                                   const ProcessEnd& end,
                                   RunOutcome& outcome) const {
  const std::string text =
      absl::StrCat("exceeded its --time-limit of ",
                   absl::FormatDuration(TimeLimitOf(*job.spec)));
  SetCause(attempt,
           {.cause = v1::ATTEMPT_CAUSE_TIME_LIMIT,
            .detail = text,
            .facts = {absl::StrCat("it ", text, " on ", names_(end.node))},
            .node = end.node},
           outcome);
  if (attempt.cause != v1::ATTEMPT_CAUSE_TIME_LIMIT ||
      attempt.failed_rank >= 0) {
    return;
  }
  // No rank failed; how the first of them ended is kept with its last words.
  const Process& process = attempt.processes[static_cast<size_t>(end.slot)];
  if (!process.exit.has_value()) return;
  attempt.failed_rank = end.slot;
  attempt.exit = process.exit;
}

void RunController::EndSlot(JobRecord& job, AttemptRecord& attempt,
                            const ProcessEnd& end, RunOutcome& outcome) const {
  Process& process = attempt.processes[static_cast<size_t>(end.slot)];
  if (attempt.cause != v1::ATTEMPT_CAUSE_NONE || process.retired) return;
  outcome.slots.insert(end.slot);
  if (process.leaving) {
    CountFailure(v1::FAILURE_CLASS_PREEMPTED, job);
    process.again = true;
    return BumpEpoch(job, attempt, outcome);
  }
  if (end.cause == v1::ATTEMPT_CAUSE_NONE) return;  // the slot is complete
  if (end.cause == v1::ATTEMPT_CAUSE_TIME_LIMIT) {
    return EndByTimeLimit(job, attempt, end, outcome);
  }
  if (end.cause == v1::ATTEMPT_CAUSE_PACKAGE_LOST) {
    return SetCause(attempt,
                    {.cause = end.cause,
                     .detail = end.detail,
                     .facts = {end.fact},
                     .node = end.node},
                    outcome);
  }
  ChargeSlot(job, attempt, end, outcome);
}

void RunController::ChargeSlot(JobRecord& job, AttemptRecord& attempt,
                               const ProcessEnd& end,
                               RunOutcome& outcome) const {
  Process& process = attempt.processes[static_cast<size_t>(end.slot)];
  const FailureClass failure = ClassOf(end.cause, process.exit);
  const bool is_one = job.spec->run().restart() == v1::RESTART_POLICY_ONE;
  const int max_failures = job.spec->run().max_failures();
  const bool is_free = failure == v1::FAILURE_CLASS_NONE ||
                       (failure == v1::FAILURE_CLASS_INFRA &&
                        process.moves < limits_.free_infra_restarts);
  if (is_free) {
    process.moves += 1;
    if (failure == v1::FAILURE_CLASS_INFRA) {
      job.row.set_infra_restarts(job.row.infra_restarts() + 1);
    }
  } else {
    process.failures += 1;
    job.row.set_failures(job.row.failures() + 1);
  }
  if (failure != v1::FAILURE_CLASS_NONE) CountFailure(failure, job);
  process.again =
      is_free ||
      (is_one && (max_failures < 0 || process.failures <= max_failures));
  BumpEpoch(job, attempt, outcome);
  outcome.notes.push_back(
      {.kind = "rank_failed",
       .text =
           absl::StrCat(end.fact, is_free ? "; it starts again, uncharged"
                                  : process.again ? "; it starts again"
                                  : is_one ? "; its --max-failures are spent"
                                           : "; the others go on")});
  // The first failure that counts is the one to be told of.
  if (!is_one && !process.again && attempt.failed_rank >= 0) return;
  if (is_free && job.row.failed_rank() >= 0) return;
  attempt.failed_rank = end.slot;
  attempt.exit = process.exit;
  job.row.set_failed_rank(end.slot);
  job.SetExit(process.exit);
  job.row.set_failure_class(failure);
  job.row.clear_causes();
  job.row.add_causes(Cut(end.fact, kCauseBytesMax));
  job.row.clear_stderr_tail();
  AddCauses({end.fact}, /*in_front=*/false, attempt);
  outcome.attempt_changed = true;
  if (process.again || !is_one) return;
  SetCause(attempt,
           {.cause = v1::ATTEMPT_CAUSE_RANK_FAILED,
            .detail = end.detail,
            .facts = {},
            .node = end.node},
           outcome);
}

void RunController::LeaveRoom(Process& process, RunOutcome& outcome) {
  if (process.waits()) return;
  outcome.over.push_back({{process.slot, process.incarnation}, process.node});
  process.node = NodeId();
  process.devices.clear();
  process.state = v1::PROCESS_STATE_PENDING;
  process.pid = 0;
  process.addresses.clear();
  outcome.slots.insert(process.slot);
}

void RunController::AskAgain(Process& process, RunOutcome& outcome) {
  LeaveRoom(process, outcome);
  process.again = false;
  outcome.slots.insert(process.slot);
  outcome.asks = true;
}

RunOutcome RunController::Refill(AttemptRecord& attempt,
                                 const std::vector<int>& slots) const {
  RunOutcome outcome;
  for (const int slot : slots) {
    Process& process = attempt.processes[static_cast<size_t>(slot)];
    COHORT_CHECK(process.backs_off()) << attempt.id << " " << slot;
    AskAgain(process, outcome);
  }
  return outcome;
}

void RunController::Vacate(JobRecord& job, AttemptRecord& attempt,
                           RunOutcome& outcome) const {
  if (attempt.cause != v1::ATTEMPT_CAUSE_NONE) return;
  for (Process& process : attempt.processes) {
    if (!process.backs_off()) continue;
    const bool is_moved = std::exchange(process.leaving, false);
    // What was lost may be there yet, as an orphan that holds what it has.
    if (!process.waits() && (!process.exit.has_value() ||
                             IsOver(*PlaceOn(attempt, process.node)))) {
      LeaveRoom(process, outcome);
    }
    if (is_moved || process.retired ||
        BackOffOf(job, process) == absl::ZeroDuration()) {
      AskAgain(process, outcome);
    } else if (outcome.slots.contains(process.slot)) {
      outcome.asks = true;  // once it has backed off
    }
  }
  std::vector<Process>& all = attempt.processes;
  while (!all.empty() && all.back().retired && all.back().over()) {
    outcome.slots.insert(all.back().slot);
    all.pop_back();
    outcome.attempt_changed = true;
    BumpEpoch(job, attempt, outcome);
  }
  // A slot's number is free again only once its process is gone.
  const bool may_grow = all.empty() || !all.back().retired;
  while (may_grow && static_cast<int>(all.size()) < job.row.num_workers()) {
    Process& added = all.emplace_back();
    added.slot = static_cast<int>(all.size()) - 1;
    outcome.slots.insert(added.slot);
    outcome.asks = true;
    BumpEpoch(job, attempt, outcome);
  }
}

}  // namespace cohort::head

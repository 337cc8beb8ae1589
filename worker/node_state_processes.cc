// NodeState's processes: how they begin, and how they end.

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "common/exception_text.h"
#include "common/job_id.h"
#include "common/log.h"
#include "rpc/wire_values.h"
#include "worker/node_state.h"
#include "worker/preflight_words.h"
#include "worker/process_end.h"

namespace cohort::worker {
namespace {

constexpr char kKeeperStopped[] =
    "the keeper was told to stop (SIGTERM) from outside the cluster, as by a "
    "shutdown of the machine";

// One that waits in a driver that is gone cannot do much with more.
constexpr absl::Duration kLostDeviceGrace = absl::Seconds(5);

// As a shell's of a command that cannot be run.
constexpr int kCannotRun = 126;

bool IsEnding(const v1::DesiredProcess& desired) {
  return desired.goal() == v1::GOAL_STOP || desired.goal() == v1::GOAL_FORGET;
}

// What the process keeps of its place: not what is launched.
v1::DesiredPlace BegunWith(const v1::DesiredPlace& place,
                           const v1::DesiredProcess& process) {
  v1::DesiredPlace begun;
  begun.set_attempt_id(place.attempt_id());
  begun.set_job_id(place.job_id());
  begun.set_owner(place.owner());
  begun.set_number(place.number());
  begun.set_storage_path(place.storage_path());
  if (place.has_restore()) *begun.mutable_restore() = place.restore();
  begun.set_preflight(place.preflight());
  begun.set_restart(place.restart());
  begun.set_epoch(place.epoch());
  begun.set_world_size(place.world_size());
  begun.set_local_world_size(place.local_world_size());
  begun.set_node_rank(place.node_rank());
  begun.set_node_count(place.node_count());
  *begun.mutable_members() = place.members();
  begun.set_master_address(place.master_address());
  begun.set_master_port(place.master_port());
  *begun.add_processes() = process;
  return begun;
}

}  // namespace

// ---- goals ----

NodeState::Process& NodeState::AddProcess(Place& place,
                                          const v1::DesiredProcess& desired) {
  Process& process = place.processes[{desired.slot(), desired.incarnation()}];
  process.id = {.attempt = place.id,
                .slot = desired.slot(),
                .incarnation = desired.incarnation()};
  process.desired = desired;
  process.observed.set_slot(desired.slot());
  process.observed.set_incarnation(desired.incarnation());
  process.observed.set_state(v1::PROCESS_STATE_PENDING);
  *process.observed.mutable_gpu_ids() = desired.gpu_ids();
  process.begun.set_attempt_id(place.desired.attempt_id());
  Changed(place);
  return process;
}

void NodeState::ApplyProcess(Place& place, const v1::DesiredProcess& desired) {
  const ProcessId id = {.attempt = place.id,
                        .slot = desired.slot(),
                        .incarnation = desired.incarnation()};
  Process* const known = Find(id);
  if (known != nullptr) {
    // What is being ended stays so.
    if (IsEnding(known->desired) && !IsEnding(desired)) return;
    if (desired.goal() == v1::GOAL_FORGET) {
      known->desired.set_goal(v1::GOAL_FORGET);
      known->desired.set_reason(desired.reason());
    } else {
      known->desired = desired;
    }
    return;
  }
  if (desired.goal() == v1::GOAL_FORGET) return;
  const uint64_t newest = NewestOf(place, desired.slot());
  Process& process = AddProcess(place, desired);
  if (IsEnding(desired) || desired.incarnation() <= newest) {
    // The head believes that something is here, or it was (PR-2), or those
    // after it: that of a restored store has to count on (PR-3).
    return End(place, process, v1::END_CAUSE_MISSING,
               "this node does not know the process");
  }
  if (leaving_) {
    return End(place, process, v1::END_CAUSE_DAEMON_SHUTDOWN,
               "daemon shutdown");
  }
  if (place.observed.phase() != v1::PHASE_FAILED) return;
  // It is tried again for a new one; the earlier ones are over.
  for (auto& [key, before] : place.processes) {
    if (&before == &process ||
        before.observed.state() == v1::PROCESS_STATE_ENDED) {
      continue;
    }
    End(place, before, v1::END_CAUSE_EXITED, "its place was not prepared");
  }
  place.observed.set_phase(v1::PHASE_UNSPECIFIED);
  place.observed.clear_end_cause();
  place.observed.clear_detail();
}

uint64_t NodeState::NewestOf(const Place& place, int slot) {
  const auto begun = place.begun.find(slot);
  uint64_t newest = begun == place.begun.end() ? 0 : begun->second;
  const auto after = place.processes.lower_bound({slot + 1, 0});
  if (after != place.processes.begin() &&
      std::prev(after)->first.first == slot) {
    newest = std::max(newest, std::prev(after)->first.second);
  }
  return newest;
}

bool NodeState::MayBegin(const Place& place, const Process& process) {
  const v1::ProcessState state = process.observed.state();
  const bool waits = state == v1::PROCESS_STATE_PENDING ||
                     (state == v1::PROCESS_STATE_STARTING && !process.taken &&
                      !process.beginning);
  if (!waits || NewestOf(place, process.id.slot) != process.id.incarnation) {
    return false;
  }
  // PR-1: the one before it may still be on its way out.
  return std::none_of(
      place.processes.begin(), place.processes.end(), [&](const auto& each) {
        const Process& other = each.second;
        return other.id.slot == process.id.slot && &other != &process &&
               (other.taken || other.beginning) &&
               other.observed.state() != v1::PROCESS_STATE_ENDED;
      });
}

void NodeState::BeginReady(Place& place) {
  std::vector<Process*> ready;
  std::string fault;  // of any of them
  for (auto& [key, process] : place.processes) {
    if (process.desired.goal() != v1::GOAL_RUN || !MayBegin(place, process)) {
      continue;
    }
    ready.push_back(&process);
    if (fault.empty()) fault = device_faults_.Of(process.desired);
  }
  std::vector<ProcessId> which;
  for (Process* const process : ready) {
    // The head may have placed it before it heard.
    const std::string why =
        IsGang(place.desired) ? fault : device_faults_.Of(process->desired);
    if (!why.empty()) {
      End(place, *process, v1::END_CAUSE_DEVICE_FAULT, why);
      continue;
    }
    process->observed.set_state(v1::PROCESS_STATE_STARTING);
    process->begun = BegunWith(place.desired, process->desired);
    process->beginning = true;
    place.begun[process->id.slot] = process->id.incarnation;
    which.push_back(process->id);
  }
  if (which.empty()) return;
  Changed(place);
  auto saved = std::make_shared<absl::Status>();
  for (const ProcessId& id : which) {
    const Process& process = *Find(id);
    const bool is_last = id == which.back();
    // Synced: a record that is lost would have it begun twice (PR-2).
    host_.Save(
        id, ProcessEntry{process.begun, process.observed}, Durability::kMachine,
        [this, saved, is_last, which](absl::Status status) {
          saved->Update(status);
          if (!is_last) return;
          const AttemptId attempt = which.front().attempt;
          if (!saved->ok()) return OnBegun(attempt, which, *saved);
          v1::DesiredPlace all = Find(attempt)->desired;
          for (const auto& [key, each] : Find(attempt)->processes) {
            if (each.observed.state() < v1::PROCESS_STATE_ENDED) {
              *all.add_processes() = each.desired;
            }
          }
          host_.Begin(all, which, [this, attempt, which](absl::Status begun) {
            OnBegun(attempt, which, begun);
          });
        });
  }
}

void NodeState::OnBegun(const AttemptId& id,
                        const std::vector<ProcessId>& which,
                        const absl::Status& status) {
  Place& place = *Find(id);  // which is not forgotten meanwhile
  if (status.ok()) events_.on_begun();
  const v1::EndCause cause =
      status.ok() ? v1::END_CAUSE_UNSPECIFIED : CauseOf(status);
  for (const ProcessId& each : which) {
    Process& process = *Find(each);
    process.beginning = false;
    process.taken = status.ok();
    if (!status.ok()) {
      if (cause == v1::END_CAUSE_PREPARE_FAILED) {
        // What it was asked for is at fault.
        process.observed.mutable_exit()->set_code(kCannotRun);
        process.observed.mutable_exit()->set_detail(
            std::string(status.message()));
        process.observed.set_exit_order(++place.exits);
      }
      End(place, process, cause, std::string(status.message()));
    } else if (process.taken_along) {
      Order(place, process, absl::ZeroDuration(), "daemon shutdown");
    } else if (!process.lost_device.empty()) {
      host_.Stop(each, kLostDeviceGrace);
    }
  }
  Drive(id);  // a stop that came meanwhile
}

void NodeState::Stop(Place& place, Process& process) {
  if (process.beginning) return;  // OnBegun comes back here
  if (process.observed.state() >= v1::PROCESS_STATE_EXITED) return;
  if (!process.taken) {
    return End(place, process, v1::END_CAUSE_EXITED,
               "stopped before it started");
  }
  // It ends already, with all the grace that there is.  Its siblings may have
  // ended before it: that is not a reason to hurry.
  if (process.taken_along) return;
  Order(place, process, rpc::FromWire(process.desired.grace()),
        process.desired.reason());
}

void NodeState::Order(Place& place, Process& process, absl::Duration grace,
                      const std::string& reason) {
  process.ordered = true;
  const absl::Duration deadline = clock_.Monotonic() + grace;
  const bool is_first = process.stop_notice.kind() != v1::NOTICE_KIND_STOP;
  if (is_first || deadline < process.stop_deadline) {
    process.stop_notice.set_kind(v1::NOTICE_KIND_STOP);
    process.stop_notice.set_reason(reason);
    process.stop_deadline = deadline;
    TellWatcher(process.id);
  }
  Revoke(place);
  host_.Stop(process.id, grace);
}

bool NodeState::MayForget(Place& place, Process& process) {
  if (process.beginning) return false;
  if (process.observed.state() < v1::PROCESS_STATE_ENDED && process.taken) {
    if (std::exchange(process.killed, true)) return false;
    process.ordered = true;
    LogLostLease("lease_lost", place, process);
    Revoke(place);
    host_.Kill(process.id);
    return false;  // its end comes back here
  }
  if (process.observed.state() < v1::PROCESS_STATE_ENDED) {
    // Nothing of it ran; what was held for it is free.
    process.observed.set_state(v1::PROCESS_STATE_ENDED);
    process.observed.set_end_cause(v1::END_CAUSE_EXITED);
    Changed(place);
  }
  // Last words are due, or on their way: Acknowledge comes back here.
  return !process.reading_tail && !HasUnrecordedWords(process);
}

void NodeState::Forget(Place& place, Process& process) {
  if (process.forgetting || !MayForget(place, process)) return;
  if (process.killed) LogLostLease("lease_ended", place, process);
  process.forgetting = true;
  host_.Forget(process.id, [this, id = process.id](absl::Status status) {
    if (!status.ok()) {
      COHORT_LOG(kWarning, "forget_failed", {"process", id},
                 {"error", status.ToString()});
    }
    Place* const place_of = Find(id.attempt);
    if (place_of == nullptr) return;
    place_of->processes.erase({id.slot, id.incarnation});
    Changed(*place_of);
    Save(*place_of, Durability::kDaemon);  // what was here (PR-2)
    MaybeAllEnded();
  });
}

// The head has given the process up while it runs here.
void NodeState::LogLostLease(const char* event, const Place& place,
                             const Process& process) {
  const absl::StatusOr<JobId> job = JobId::FromBytes(place.desired.job_id());
  const std::string& reason = place.desired.goal() == v1::GOAL_FORGET
                                  ? place.desired.reason()
                                  : process.desired.reason();
  COHORT_LOG(kWarning, event, {"process", process.id},
             {"job", job.ok() ? job->ToText() : ""}, {"why", reason});
}

void NodeState::End(Place& place, Process& process, v1::EndCause cause,
                    const std::string& detail) {
  process.observed.set_state(v1::PROCESS_STATE_ENDED);
  process.observed.set_end_cause(cause);
  process.observed.set_detail(detail);
  place.exchange.Abort(process.id, absl::AbortedError("the process has ended"));
  Changed(place);
  TellWatcher(process.id);
  Save(place, process, Durability::kMachine);
  MaybeAllEnded();
}

// ---- from the keepers ----

void NodeState::OnEvent(const KeeperEvent& event) {
  std::visit(
      [this](const auto& told) {
        const absl::StatusOr<AttemptId> attempt =
            AttemptId::FromHex(told.process.attempt);
        if (!attempt.ok()) return;
        Process* const process = Find(
            ProcessId{*attempt, told.process.slot, told.process.incarnation});
        if (process == nullptr ||
            process->observed.state() == v1::PROCESS_STATE_ENDED) {
          return;
        }
        OnProcess(*Find(*attempt), *process, told);
      },
      event);
}

void NodeState::OnProcess(Place& place, Process& process,
                          const ProcessStarted& event) {
  if (process.observed.state() > v1::PROCESS_STATE_RUNNING) return;
  process.observed.set_state(v1::PROCESS_STATE_RUNNING);
  process.observed.set_pid(event.pid);
  Changed(place);
  Save(place, process, Durability::kDaemon);
}

void NodeState::OnProcess(Place& place, Process& process,
                          const ProcessExited& event) {
  // The story is told again to a daemon that was restarted.
  if (process.observed.state() == v1::PROCESS_STATE_EXITED) {
    return ReadTailIfWanted(place, process);  // it had no time to
  }
  if (process.observed.state() > v1::PROCESS_STATE_EXITED) return;
  // An order of ours that could only come as a signal is none from outside.
  const bool keeper_stopped = event.cause == ExitCause::kKeeperStopped &&
                              !process.ordered && !IsEnding(process.desired);
  process.observed.set_state(v1::PROCESS_STATE_EXITED);
  process.observed.set_exit_order(++place.exits);
  process.observed.set_ended_by_order(EndedByOthers(event));
  *process.observed.mutable_exit() = ToWire(event);
  if (keeper_stopped) {
    process.observed.mutable_exit()->set_detail(kKeeperStopped);
  }
  *process.observed.mutable_ran() =
      rpc::ToWire(absl::Milliseconds(event.ran_ms));
  SetCause(process, event, keeper_stopped);
  const bool failed = FailedByItself(process.observed);
  if (failed && place.desired.preflight()) {
    NoteEndInPreflight(process.observed, place.observed);
    Save(place, Durability::kMachine);
  }
  const bool time_is_up = event.cause == ExitCause::kTimeLimit;
  // Its peers must not wait for it in a collective.
  if (time_is_up || keeper_stopped || failed) Revoke(place);
  ReadTailIfWanted(place, process);
  place.exchange.Abort(process.id, absl::AbortedError("the process has ended"));
  Changed(place);
  TellWatcher(process.id);
  Save(place, process, Durability::kMachine);
}

void NodeState::SetCause(Process& process, const ExitReport& exit,
                         bool keeper_stopped) {
  v1::ObservedProcess& observed = process.observed;
  observed.set_end_cause(v1::END_CAUSE_EXITED);
  const std::string fault = device_faults_.Of(process.desired);
  const bool is_lost = exit.cause == ExitCause::kKeeperLost;
  const std::string lost = !is_lost               ? ""
                           : exit.message.empty() ? "its keeper died"
                                                  : exit.message;
  if (!process.lost_device.empty()) {
    observed.set_end_cause(v1::END_CAUSE_DEVICE_FAULT);
    // In the driver of a lost device it may not even die of its keeper.
    observed.set_detail(
        absl::StrCat(process.lost_device, is_lost ? "; " : "", lost));
  } else if (!fault.empty() && FailedByItself(observed)) {
    observed.set_end_cause(v1::END_CAUSE_DEVICE_FAULT);
    observed.set_detail(fault);
  } else if (exit.cause == ExitCause::kTimeLimit) {
    observed.set_end_cause(v1::END_CAUSE_TIME_LIMIT);
  } else if (process.taken_along) {
    observed.set_end_cause(v1::END_CAUSE_DAEMON_SHUTDOWN);
    observed.set_detail("daemon shutdown");
  } else if (is_lost || keeper_stopped) {
    // Also where it ended with 0: it did not end its work.
    observed.set_end_cause(v1::END_CAUSE_KEEPER_LOST);
    observed.set_detail(is_lost ? lost : kKeeperStopped);
  }
}

void NodeState::OnProcess(Place& place, Process& process, const ProcessEnded&) {
  if (process.reading_tail) {
    process.end_waiting = true;  // ReadTailIfWanted comes back here
    return;
  }
  // A fault may be told after the exit that it led to (DV-9).
  const std::string fault = device_faults_.Of(process.desired);
  const bool by_fault = !fault.empty() && FailedByItself(process.observed) &&
                        process.observed.end_cause() == v1::END_CAUSE_EXITED;
  const v1::EndCause cause =
      by_fault ? v1::END_CAUSE_DEVICE_FAULT : process.observed.end_cause();
  End(place, process, cause, by_fault ? fault : process.observed.detail());
  Drive(place.id);
}

// Of those that failed.  Under ALL of the first that fails here, and of one
// that raised before: the others fail because of it.
void NodeState::ReadTailIfWanted(Place& place, Process& process) {
  const v1::ObservedProcess& seen = process.observed;
  const std::optional<absl::Time> raised_at = RaisedAt(seen.exit().detail());
  if (!FailedByItself(seen) && seen.end_cause() != v1::END_CAUSE_TIME_LIMIT &&
      !raised_at.has_value()) {
    return;
  }
  if (process.reading_tail || !seen.stderr_tail().empty()) return;
  const absl::Time raised = raised_at.value_or(absl::InfiniteFuture());
  const bool is_first = raised < place.first_raised;
  place.first_raised = std::min(place.first_raised, raised);
  if (IsGang(place.desired) && std::exchange(place.tail_taken, true) &&
      !is_first) {
    return;
  }
  process.reading_tail = true;
  host_.ReadStderrTail(process.id, [this, id = process.id](std::string tail) {
    Process* const found = Find(id);
    if (found == nullptr) return;
    Place& place_of = *Find(id.attempt);
    found->observed.set_stderr_tail(std::move(tail));
    found->words_due = !found->observed.stderr_tail().empty();
    found->reading_tail = false;
    Changed(place_of);
    if (found->end_waiting) {
      OnProcess(place_of, *found, ProcessEnded{KeyOf(id)});
    } else {
      Save(place_of, *found, Durability::kMachine);
    }
  });
}

void NodeState::OnMetrics(const ProcessId& id, uint64_t count,
                          std::string json) {
  // Rank 0 speaks for the run; the others' would weigh on each message.
  Place* const place = Find(id.attempt);
  if (id.slot != 0 || place == nullptr) return;
  auto& metrics = *place->observed.mutable_metrics();
  v1::MetricsReport& report = metrics.empty() ? *metrics.Add() : metrics[0];
  if (report.incarnation() > id.incarnation ||
      (report.incarnation() == id.incarnation && report.count() >= count)) {
    return;
  }
  report.set_slot(id.slot);
  report.set_incarnation(id.incarnation);
  report.set_count(count);
  report.set_json(std::move(json));
  Changed(*place);
}

void NodeState::EndByLoss(Place& place, Process& process,
                          const std::string& reason) {
  if (!process.lost_device.empty() || process.killed ||
      process.observed.state() >= v1::PROCESS_STATE_EXITED) {
    return;
  }
  process.lost_device = reason;
  process.ordered = true;
  COHORT_LOG(kWarning, "device_lost", {"process", process.id}, {"why", reason});
  if (process.beginning) return;  // OnBegun ends it
  Revoke(place);
  host_.Stop(process.id, kLostDeviceGrace);
}

void NodeState::Revoke(Place& place) {
  if (!IsGang(place.desired) || std::exchange(place.revoked, true)) return;
  host_.Revoke(place.id);
}

}  // namespace cohort::worker

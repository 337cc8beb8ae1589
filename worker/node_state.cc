#include "worker/node_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/log.h"
#include "rpc/wire_values.h"

namespace cohort::worker {
namespace {

// Of deadlines, which are told as what is left, on their way.
constexpr absl::Duration kDeadlineSlack = absl::Seconds(2);

bool IsBegun(const v1::ObservedProcess& process) {
  return process.state() == v1::PROCESS_STATE_STARTING ||
         process.state() == v1::PROCESS_STATE_RUNNING ||
         process.state() == v1::PROCESS_STATE_EXITED;
}

// Whether processes have nothing new to hear, but for the notice's deadline.
bool IsSameStanding(const v1::DesiredPlace& before,
                    const v1::DesiredPlace& now) {
  if (before.epoch() != now.epoch() ||
      before.notice().kind() != now.notice().kind() ||
      before.notice().reason() != now.notice().reason() ||
      before.notice().has_deadline() != now.notice().has_deadline()) {
    return false;
  }
  return before.local_world_size() == now.local_world_size() &&
         before.node_rank() == now.node_rank() &&
         before.node_count() == now.node_count() &&
         std::equal(before.members().begin(), before.members().end(),
                    now.members().begin(), now.members().end());
}

// What a place launches is told once; it is taken from the word before.
void KeepLaunch(v1::DesiredPlace& before, v1::DesiredPlace& now) {
  if (!now.has_launch()) now.mutable_launch()->Swap(before.mutable_launch());
}

}  // namespace

NodeState::NodeState(ProcessHost& host, const Clock& clock, Events events,
                     size_t message_bytes)
    : host_(host),
      clock_(clock),
      events_(std::move(events)),
      message_bytes_(message_bytes) {
  host_.SetListener(
      {.on_event = [this](const KeeperEvent& event) { OnEvent(event); },
       .on_metrics =
           [this](const ProcessId& id, uint64_t count, std::string json) {
             OnMetrics(id, count, std::move(json));
           },
       .on_warning = [this](const AttemptId& id,
                            const std::string& text) { OnWarning(id, text); }});
}

// ---- start ----

void NodeState::Restore(JournalEntries entries,
                        absl::AnyInvocable<void() &&> done) {
  COHORT_CHECK(places_.empty());
  on_restored_ = std::move(done);
  for (PlaceEntry& entry : entries.places) {
    const absl::StatusOr<AttemptId> id =
        AttemptId::FromBytes(entry.desired.attempt_id());
    if (!id.ok()) {
      COHORT_LOG(kError, "journal_entry_without_attempt");
      continue;
    }
    Place& place = places_[*id];
    place.id = *id;
    for (const v1::DesiredProcess& begun : entry.desired.processes()) {
      place.begun[begun.slot()] = begun.incarnation();
    }
    entry.desired.clear_processes();
    place.desired = std::move(entry.desired);
    place.observed = std::move(entry.observed);
  }
  for (ProcessEntry& entry : entries.processes) {
    const absl::StatusOr<AttemptId> id =
        AttemptId::FromBytes(entry.begun.attempt_id());
    if (!id.ok()) continue;
    Place* place = Find(*id);
    if (place == nullptr) {
      // Its record is damaged: the head says again what is wanted there.
      place = &AddPlace(*id, entry.begun);
      place->desired.clear_processes();
      place->observed.set_phase(v1::PHASE_PREPARED);
      place->observed.clear_generation();
    }
    RestoreProcess(*place, std::move(entry));
  }
  for (auto& [id, place] : places_) Adopt(place);
  Restored();
}

void NodeState::Restored() {
  if (--restoring_ > 0) return;
  std::move(on_restored_)();
  if (leaving_) EndAll();
}

NodeState::Process& NodeState::RestoreProcess(Place& place,
                                              ProcessEntry entry) {
  Process& process =
      place.processes[{entry.observed.slot(), entry.observed.incarnation()}];
  process.id = {.attempt = place.id,
                .slot = entry.observed.slot(),
                .incarnation = entry.observed.incarnation()};
  if (entry.begun.processes_size() == 1) {
    uint64_t& begun = place.begun[process.id.slot];
    begun = std::max(begun, process.id.incarnation);
    process.desired = entry.begun.processes(0);
    process.desired.clear_goal();  // the head repeats it
  } else {
    process.desired.set_slot(entry.observed.slot());
    process.desired.set_incarnation(entry.observed.incarnation());
    *process.desired.mutable_gpu_ids() = entry.observed.gpu_ids();
  }
  process.begun = std::move(entry.begun);
  process.observed = std::move(entry.observed);
  place.exits = std::max(place.exits, process.observed.exit_order());
  place.tail_taken |= !process.observed.stderr_tail().empty();
  return process;
}

void NodeState::Adopt(Place& place) {
  v1::DesiredPlace begun = place.desired;
  bool was_begun = false;
  for (const auto& [key, process] : place.processes) {
    was_begun |= process.begun.processes_size() > 0;
    if (IsBegun(process.observed)) *begun.add_processes() = process.desired;
  }
  // What was being prepared has to be prepared again: its port is free.
  if (!was_begun && place.observed.phase() != v1::PHASE_FAILED) {
    place.observed.set_phase(v1::PHASE_UNSPECIFIED);
  }
  if (!was_begun) return;
  ++restoring_;
  host_.Adopt(begun, [this, id = place.id](auto adopted) {
    OnAdopted(id, std::move(adopted));
    Restored();
  });
}

void NodeState::OnAdopted(const AttemptId& id,
                          absl::StatusOr<AdoptedKeeper> adopted) {
  Place* const place = Find(id);
  if (place == nullptr) return;
  std::set<ProcessKey> known;
  if (adopted.ok()) known.insert(adopted->known.begin(), adopted->known.end());
  std::string lost;  // why all that it has no record of is
  if (adopted.ok()) {
    lost = adopted->message;
  } else if (!absl::IsNotFound(adopted.status())) {
    lost = std::string(adopted.status().message());
  }
  bool was_begun = false;
  for (auto& [key, process] : place->processes) {
    process.taken = known.contains(KeyOf(process.id));
    const bool is_over = process.observed.state() == v1::PROCESS_STATE_ENDED;
    was_begun |=
        process.taken || (is_over && process.begun.processes_size() > 0);
    if (process.taken || is_over) continue;  // its story follows as events
    // One that was not begun is, when the head repeats its goal.
    if (process.observed.state() == v1::PROCESS_STATE_EXITED) {
      End(*place, process, process.observed.end_cause(),
          process.observed.detail());
    } else if (!lost.empty() ||
               process.observed.state() == v1::PROCESS_STATE_RUNNING) {
      // What became of it nobody knows; that it does not run any more is sure.
      End(*place, process, v1::END_CAUSE_KEEPER_LOST,
          lost.empty() ? "its keeper has no record of it" : lost);
      was_begun = true;
    }
  }
  if (!was_begun) place->observed.set_phase(v1::PHASE_UNSPECIFIED);
}

// ---- from and to the head ----

void NodeState::Follow(const std::string& generation) {
  generation_ = generation;
}

void NodeState::Apply(const v1::Desired& desired) {
  for (const v1::DesiredPlace& place : desired.places()) ApplyPlace(place);
  for (const v1::Exchange& exchange : desired.exchanges()) {
    ApplyExchange(exchange);
  }
}

void NodeState::ApplyExchange(const v1::Exchange& exchange) {
  const absl::StatusOr<AttemptId> id =
      AttemptId::FromBytes(exchange.attempt_id());
  Place* const place = id.ok() ? Find(*id) : nullptr;
  if (place == nullptr || exchange.epoch() != place->desired.epoch() ||
      exchange.blobs_size() != place->desired.world_size()) {
    return;
  }
  place->exchange.Complete(exchange);
}

void NodeState::ApplyPlace(const v1::DesiredPlace& desired) {
  const absl::StatusOr<AttemptId> id =
      AttemptId::FromBytes(desired.attempt_id());
  if (!id.ok()) {
    COHORT_LOG(kWarning, "desired_place_without_id");
    return;
  }
  Place* place = Find(*id);
  if (desired.goal() == v1::GOAL_FORGET) {
    if (place == nullptr) return;
    place->next.reset();
    place->desired.set_goal(v1::GOAL_FORGET);
    place->desired.set_reason(desired.reason());
    return Drive(*id);
  }
  if (place == nullptr) {
    place = &AddPlace(*id, desired);
  } else if (place->desired.goal() == v1::GOAL_FORGET) {
    v1::DesiredPlace next = desired;
    if (place->next.has_value()) KeepLaunch(*place->next, next);
    place->next = std::move(next);  // ForgetPlace comes back to it
    return;
  } else {
    Update(*place, desired);
  }
  for (const v1::DesiredProcess& process : desired.processes()) {
    ApplyProcess(*place, process);
  }
  Drive(*id);
}

NodeState::Place& NodeState::AddPlace(const AttemptId& id,
                                      const v1::DesiredPlace& desired) {
  Place& place = places_[id];
  place.id = id;
  place.observed.set_attempt_id(desired.attempt_id());
  place.observed.set_job_id(desired.job_id());
  place.observed.set_generation(generation_);
  Update(place, desired);
  return place;
}

void NodeState::Update(Place& place, const v1::DesiredPlace& desired) {
  v1::DesiredPlace before = std::exchange(place.desired, desired);
  place.desired.clear_processes();
  KeepLaunch(before, place.desired);
  const absl::Duration deadline_before = std::exchange(
      place.notice_deadline,
      clock_.Monotonic() + rpc::FromWire(desired.notice().deadline()));
  if (before.epoch() != desired.epoch()) {
    place.exchange.Reset(absl::AbortedError(
        absl::StrCat("epoch ", before.epoch(),
                     " has ended: the attempt is in epoch ", desired.epoch())));
    place.observed.clear_exchanges();
    place.exchanges_told = 0;
    place.observed.set_epoch(desired.epoch());
  }
  // Of another one: it is adopted.
  const bool is_new = std::exchange(*place.observed.mutable_generation(),
                                    generation_) != generation_;
  if (is_new || before.epoch() != desired.epoch()) {
    Changed(place);
    Save(place, Durability::kDaemon);
  }
  const bool is_moved = desired.notice().has_deadline() &&
                        absl::AbsDuration(place.notice_deadline -
                                          deadline_before) > kDeadlineSlack;
  if (is_moved || !IsSameStanding(before, desired)) TellWatcher(place);
}

void NodeState::Drive(const AttemptId& id) {
  Place* place = Find(id);
  if (place == nullptr) return;
  if (place->desired.goal() == v1::GOAL_FORGET) return ForgetPlace(*place);
  RemoveRetired(*place);
  const bool is_wanted = std::any_of(
      place->processes.begin(), place->processes.end(), [](const auto& each) {
        const Process& process = each.second;
        return process.observed.state() < v1::PROCESS_STATE_EXITED &&
               (process.desired.goal() == v1::GOAL_PREPARE ||
                process.desired.goal() == v1::GOAL_RUN);
      });
  if (is_wanted && place->observed.phase() == v1::PHASE_UNSPECIFIED) {
    Prepare(*place);
  }
  if (place->observed.phase() == v1::PHASE_PREPARED) BeginReady(*place);
  std::vector<ProcessId> all;
  for (const auto& [key, process] : place->processes) all.push_back(process.id);
  for (const ProcessId& each : all) {
    // A record that went took its place along where that was waiting for it.
    Process* const process = Find(each);
    if (process == nullptr) continue;
    if (process->desired.goal() == v1::GOAL_STOP) Stop(*Find(id), *process);
    if (process->desired.goal() == v1::GOAL_FORGET) Forget(*Find(id), *process);
  }
}

void NodeState::Prepare(Place& place) {
  if (leaving_) {
    return FailPlace(place, v1::END_CAUSE_DAEMON_SHUTDOWN, "daemon shutdown");
  }
  place.observed.set_phase(v1::PHASE_PREPARING);
  place.preparing = true;
  Changed(place);
  // On disk first, so that a restarted daemon finds what Prepare made.
  host_.Save(place.id, EntryOf(place), Durability::kDaemon,
             [this, id = place.id](absl::Status saved) {
               Place* const found = Find(id);
               if (found == nullptr) return;
               if (!saved.ok()) return OnPrepared(id, saved);
               host_.Prepare(found->desired, [this, id](auto port) {
                 OnPrepared(id, std::move(port));
               });
             });
}

void NodeState::OnPrepared(const AttemptId& id, absl::StatusOr<int> port) {
  Place* const place = Find(id);
  if (place == nullptr) return;
  place->preparing = false;
  if (leaving_) {
    FailPlace(*place, v1::END_CAUSE_DAEMON_SHUTDOWN, "daemon shutdown");
  } else if (!port.ok()) {
    const v1::EndCause cause = CauseOf(port.status());
    FailPlace(*place, cause, std::string(port.status().message()));
  } else {
    place->observed.set_phase(v1::PHASE_PREPARED);
    place->observed.set_master_port(*port);
    Changed(*place);
    Save(*place, Durability::kDaemon);
  }
  Drive(id);
  MaybeAllEnded();
}

void NodeState::FailPlace(Place& place, v1::EndCause cause,
                          const std::string& detail) {
  place.observed.set_phase(v1::PHASE_FAILED);
  place.observed.set_end_cause(cause);
  place.observed.set_detail(detail);
  Changed(place);
  Save(place, Durability::kDaemon);
}

v1::EndCause NodeState::CauseOf(const absl::Status& why) {
  const std::string reason = GetReason(why);
  if (reason == kPackageLost) return v1::END_CAUSE_PACKAGE_LOST;
  if (reason != kNodeFault) return v1::END_CAUSE_PREPARE_FAILED;
  events_.on_fault(why);
  return v1::END_CAUSE_NODE_FAILED;
}

void NodeState::ForgetPlace(Place& place) {
  if (place.forgetting || place.preparing) return;
  bool waits = false;
  for (auto& [key, process] : place.processes) {
    process.desired.set_goal(v1::GOAL_FORGET);
    if (!MayForget(place, process)) waits = true;
  }
  if (waits) return;  // what ends, and Acknowledge, come back here
  for (const auto& [key, process] : place.processes) {
    if (process.killed) LogLostLease("lease_ended", place, process);
  }
  if (place.processes.empty()) {
    // No end of a process tells the head that nothing runs here, nor will.
    place.observed.set_phase(v1::PHASE_FAILED);
    place.observed.set_end_cause(v1::END_CAUSE_EXITED);
    Changed(place);
  }
  place.forgetting = true;
  host_.Forget(place.id, [this, id = place.id](absl::Status status) {
    if (!status.ok()) {
      COHORT_LOG(kWarning, "forget_failed", {"attempt", id.ToHex()},
                 {"error", status.ToString()});
    }
    auto gone = places_.extract(id);
    const bool is_due = dirty_.erase(id) > 0;
    if (is_due && gone.mapped().observed.warnings_size() > 0) {
      last_reports_.push_back(StateOf(gone.mapped()));
    }
    MaybeAllEnded();
    if (gone.mapped().next.has_value()) ApplyPlace(*gone.mapped().next);
  });
}

void NodeState::DrainRanks(absl::Duration grace,
                           absl::AnyInvocable<void() &&> ended,
                           absl::AnyInvocable<void() &&> forgotten) {
  leaving_ = true;
  take_along_grace_ = grace;
  on_all_ended_ = std::move(ended);
  on_all_forgotten_ = std::move(forgotten);
  // Before, nobody knows what runs here.
  if (restoring_ == 0) EndAll();
}

void NodeState::Hurry() {
  if (!leaving_) return;
  take_along_grace_ = absl::ZeroDuration();
  if (restoring_ == 0) EndAll();
}

void NodeState::EndAll() {
  for (auto& [id, place] : places_) {
    for (auto& [key, process] : place.processes) {
      if (process.observed.state() == v1::PROCESS_STATE_ENDED) continue;
      process.taken_along = true;
      if (process.beginning) continue;  // OnBegun stops it
      if (process.taken) {
        Order(place, process, take_along_grace_, "daemon shutdown");
      } else {
        End(place, process, v1::END_CAUSE_DAEMON_SHUTDOWN, "daemon shutdown");
      }
    }
  }
  MaybeAllEnded();
}

void NodeState::MaybeAllEnded() {
  if (!leaving_ || restoring_ > 0) return;
  bool all_forgotten = true;
  for (const auto& [id, place] : places_) {
    if (place.preparing) return;
    all_forgotten = all_forgotten && place.processes.empty();
    for (const auto& [key, process] : place.processes) {
      if (process.observed.state() != v1::PROCESS_STATE_ENDED) return;
    }
  }
  if (on_all_ended_) std::exchange(on_all_ended_, nullptr)();
  if (all_forgotten && on_all_forgotten_) {
    std::exchange(on_all_forgotten_, nullptr)();
  }
}

void NodeState::OnWarning(const AttemptId& id, const std::string& text) {
  Place* const place = Find(id);
  if (place == nullptr) return;  // its removal took several tries
  place->observed.add_warnings(text);
  Changed(*place);
  Save(*place, Durability::kDaemon);
}

void NodeState::RemoveRetired(Place& place) {
  auto* removed = place.observed.mutable_removed_checkpoints();
  const auto& retired = place.desired.retired_checkpoints();
  // The head has taken note of those that it no longer lists.
  removed->erase(std::remove_if(removed->begin(), removed->end(),
                                [&](const std::string& path) {
                                  return std::find(retired.begin(),
                                                   retired.end(),
                                                   path) == retired.end();
                                }),
                 removed->end());
  for (const std::string& path : retired) {
    if (std::find(removed->begin(), removed->end(), path) != removed->end() ||
        !place.removing.insert(path).second) {
      continue;
    }
    host_.RemoveCheckpoint(
        place.desired, path, [this, id = place.id, path](auto status) {
          Place* const found = Find(id);
          if (found == nullptr) return;
          found->removing.erase(path);
          if (!status.ok()) {
            // The head repeats the wish with its next desired set.
            COHORT_LOG(kWarning, "checkpoint_not_removed", {"path", path},
                       {"error", status.ToString()});
            return;
          }
          found->observed.add_removed_checkpoints(path);
          Changed(*found);
        });
  }
}

// ---- from the devices ----

void NodeState::NoteDeviceFault(const std::string& device,
                                const std::string& reason, bool lost) {
  device_faults_.Note(device, reason);
  if (reason.empty() || !lost) return;
  for (auto& [id, place] : places_) {
    const bool has_it = std::any_of(
        place.processes.begin(), place.processes.end(), [&](const auto& each) {
          return IsBegun(each.second.observed) &&
                 HasDevice(each.second.desired, device);
        });
    if (!has_it) continue;
    // A gang ends as a whole: its others fail by this, not by themselves.
    const bool all = IsGang(place.desired);
    for (auto& [key, process] : place.processes) {
      if (IsBegun(process.observed) &&
          (all || HasDevice(process.desired, device))) {
        EndByLoss(place, process, reason);
      }
    }
  }
}

void NodeState::NoteDevicesThere(const std::set<std::string>& there) {
  std::set<std::string> gone;
  for (const auto& [id, place] : places_) {
    for (const auto& [key, process] : place.processes) {
      for (const std::string& device : process.desired.gpu_ids()) {
        if (!there.contains(device)) gone.insert(device);
      }
    }
  }
  for (const std::string& device : gone) {
    NoteDeviceFault(device,
                    absl::StrCat("GPU ", device, ": it is not there any more"),
                    /*lost=*/true);
  }
}

}  // namespace cohort::worker

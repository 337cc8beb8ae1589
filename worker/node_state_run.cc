// What running processes ask of NodeState, and tell it.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "rpc/wire_values.h"
#include "worker/node_state.h"
#include "worker/preflight_words.h"

namespace cohort::worker {
namespace {

absl::Status IsNotHere(const ProcessId& id) {
  return absl::NotFoundError(
      absl::StrCat("process ", id.ToText(), " is not on this node"));
}

}  // namespace

int NodeState::RankOf(const Place& place, const Process& process) {
  const auto& members = place.desired.members();
  const auto found =
      std::find(members.begin(), members.end(), process.id.incarnation);
  return found == members.end() ? process.begun.processes(0).rank()
                                : static_cast<int>(found - members.begin());
}

absl::Status NodeState::NoteAddresses(const ProcessId& id,
                                      std::vector<std::string> addresses) {
  COHORT_RETURN_IF_ERROR(Standing(id).status());
  auto& noted = *Find(id)->observed.mutable_addresses();
  if (std::equal(noted.begin(), noted.end(), addresses.begin(),
                 addresses.end())) {
    return absl::OkStatus();
  }
  noted.Assign(addresses.begin(), addresses.end());
  Changed(places_.at(id.attempt));
  return absl::OkStatus();
}

absl::StatusOr<NodeState::Running> NodeState::FindRunning(const ProcessId& id,
                                                          int64_t epoch) const {
  const Process* const process = Find(id);
  if (process == nullptr) return IsNotHere(id);
  const Place& place = places_.at(id.attempt);
  if (process->observed.state() != v1::PROCESS_STATE_STARTING &&
      process->observed.state() != v1::PROCESS_STATE_RUNNING) {
    return absl::FailedPreconditionError(
        absl::StrCat("process ", id.ToText(), " does not run"));
  }
  const uint64_t newest = NewestOf(place, id.slot);
  if (newest != id.incarnation) {
    return absl::FailedPreconditionError(
        absl::StrCat("incarnation ", id.incarnation, " is stale: slot ",
                     id.slot, " has incarnation ", newest));
  }
  if (place.desired.epoch() != epoch) {
    return absl::FailedPreconditionError(
        absl::StrCat("epoch ", epoch, " is stale: the attempt is in epoch ",
                     place.desired.epoch()));
  }
  return Running{.place = &place.desired,
                 .begun = &process->begun,
                 .rank = RankOf(place, *process)};
}

absl::StatusOr<v1::WatchResponse> NodeState::Standing(
    const ProcessId& id) const {
  const Process* const process = Find(id);
  if (process == nullptr) return IsNotHere(id);
  if (process->observed.state() != v1::PROCESS_STATE_STARTING &&
      process->observed.state() != v1::PROCESS_STATE_RUNNING) {
    return absl::FailedPreconditionError(
        absl::StrCat("process ", id.ToText(), " does not run"));
  }
  const Place& place = places_.at(id.attempt);
  const v1::DesiredPlace& begun = process->begun;
  v1::WatchResponse standing;
  standing.set_job_id(place.desired.job_id());
  standing.set_number(place.desired.number());
  standing.set_restart(place.desired.restart());
  standing.set_local_rank(begun.processes(0).local_rank());
  *standing.mutable_restore() = begun.restore();
  standing.set_epoch(place.desired.epoch());
  standing.set_rank(RankOf(place, *process));
  standing.set_world_size(place.desired.world_size());
  standing.set_local_world_size(place.desired.local_world_size());
  standing.set_node_rank(place.desired.node_rank());
  standing.set_node_count(place.desired.node_count());
  if (place.desired.launch().has_actor()) {
    *standing.mutable_actor() = place.desired.launch().actor();
  }
  *standing.mutable_members() = place.desired.members();
  const bool stops = process->stop_notice.kind() == v1::NOTICE_KIND_STOP;
  const v1::Notice& notice =
      stops ? process->stop_notice : place.desired.notice();
  if (notice.kind() == v1::NOTICE_KIND_UNSPECIFIED) return standing;
  *standing.mutable_notice() = notice;
  if (stops || notice.has_deadline()) {
    const absl::Duration left =
        (stops ? process->stop_deadline : place.notice_deadline) -
        clock_.Monotonic();
    *standing.mutable_notice()->mutable_deadline() =
        rpc::ToWire(std::max(left, absl::ZeroDuration()));
  }
  return standing;
}

void NodeState::SetWatcher(absl::AnyInvocable<void(const ProcessId&)> watcher) {
  watcher_ = std::move(watcher);
}

void NodeState::TellWatcher(const ProcessId& process) {
  if (watcher_) watcher_(process);
}

void NodeState::TellWatcher(const Place& place) {
  for (const auto& [key, process] : place.processes) TellWatcher(process.id);
}

void NodeState::GiveBlob(const ProcessId& id, int64_t epoch,
                         const std::string& tag, const std::string& blob,
                         Exchange::Done done) {
  const absl::StatusOr<Running> running = FindRunning(id, epoch);
  if (!running.ok()) return std::move(done)(running.status());
  Place& place = places_.at(id.attempt);
  const absl::StatusOr<bool> added =
      Exchange::Give(running->rank, tag, blob, place.observed);
  if (!added.ok()) return std::move(done)(added.status());
  if (*added) Changed(place);
  place.exchange.Wait(id, tag, std::move(done));
}

void NodeState::CommitCheckpoint(const ProcessId& id, int64_t epoch,
                                 const v1::Checkpoint& checkpoint,
                                 ProcessHost::Done done) {
  const absl::StatusOr<Running> running = FindRunning(id, epoch);
  if (!running.ok()) return std::move(done)(running.status());
  auto& pending = *places_.at(id.attempt).observed.mutable_checkpoints();
  const bool known = std::any_of(pending.begin(), pending.end(),
                                 [&](const v1::Checkpoint& old) {
                                   return old.path() == checkpoint.path();
                                 });
  if (!known) *pending.Add() = checkpoint;
  SaveAndTell(id.attempt, std::move(done));
}

void NodeState::ReportPreflight(const ProcessId& id, int64_t epoch,
                                const v1::PreflightReport& report,
                                ProcessHost::Done done) {
  const absl::StatusOr<Running> running = FindRunning(id, epoch);
  if (!running.ok()) return std::move(done)(running.status());
  Process& process = *Find(id);
  Place& place = places_.at(id.attempt);
  const bool failed = report.verdict() == v1::PREFLIGHT_VERDICT_FAILED;
  // Only preflight failures are uncharged.
  if (!place.desired.preflight() ||
      (failed && process.observed.through_preflight())) {
    return std::move(done)(absl::FailedPreconditionError(
        absl::StrCat("process ", id.ToText(), " is in no preflight")));
  }
  TakePreflight(report, process.observed, place.observed);
  Save(place, Durability::kDaemon);
  SaveAndTell(id, std::move(done));
}

void NodeState::ReportGpuEnd(const ProcessId& id, int64_t epoch,
                             const v1::GpuEnd& end, ProcessHost::Done done) {
  const absl::StatusOr<Running> running = FindRunning(id, epoch);
  if (!running.ok()) return std::move(done)(running.status());
  v1::ObservedProcess& observed = Find(id)->observed;
  if (end.level() <= observed.gpu_end().level()) {
    return std::move(done)(absl::OkStatus());
  }
  *observed.mutable_gpu_end() = end;
  SaveAndTell(id, std::move(done));
}

void NodeState::SaveAndTell(const ProcessId& id, ProcessHost::Done done) {
  const Process& process = *Find(id);
  host_.Save(id, ProcessEntry{process.begun, process.observed},
             Durability::kMachine,
             [this, id, done = std::move(done)](absl::Status saved) mutable {
               // Pushed once it would survive us.
               Place* const found = Find(id.attempt);
               if (saved.ok() && found != nullptr) Changed(*found);
               std::move(done)(std::move(saved));
             });
}

void NodeState::SaveAndTell(const AttemptId& id, ProcessHost::Done done) {
  host_.Save(id, EntryOf(places_.at(id)), Durability::kMachine,
             [this, id, done = std::move(done)](absl::Status saved) mutable {
               Place* const found = Find(id);
               if (saved.ok() && found != nullptr) Changed(*found);
               std::move(done)(std::move(saved));
             });
}

}  // namespace cohort::worker

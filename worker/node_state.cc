#include "worker/node_state.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/job_id.h"
#include "common/log.h"
#include "common/status_util.h"
#include "rpc/wire_values.h"
#include "worker/preflight_words.h"
#include "worker/rank_end.h"

namespace cohort::worker {
namespace {

bool IsLive(const v1::ObservedAttempt& observed) {
  return observed.phase() == v1::PHASE_STARTING ||
         observed.phase() == v1::PHASE_RUNNING;
}

bool IsEnding(const v1::DesiredAttempt& desired) {
  return desired.goal() == v1::GOAL_STOP || desired.goal() == v1::GOAL_FORGET;
}

constexpr char kKeeperStopped[] =
    "the keeper was told to stop (SIGTERM) from outside the cluster, as by a "
    "shutdown of the machine";

// One that waits in a driver that is gone cannot do much with more.
constexpr absl::Duration kLostDeviceGrace = absl::Seconds(5);

}  // namespace

NodeState::NodeState(AttemptHost& host, Events events, size_t message_bytes)
    : host_(host), events_(std::move(events)), message_bytes_(message_bytes) {
  host_.SetListener(
      {.on_event = [this](const AttemptId& id,
                          const KeeperEvent& event) { OnEvent(id, event); },
       .on_metrics =
           [this](const AttemptId& id, int rank, uint64_t count,
                  std::string json) {
             OnMetrics(id, rank, count, std::move(json));
           }});
}

// ---- start ----

void NodeState::Restore(std::vector<JournalEntry> entries,
                        absl::AnyInvocable<void() &&> done) {
  COHORT_CHECK(attempts_.empty());
  on_restored_ = std::move(done);
  adopting_ = 1;  // this call itself
  for (JournalEntry& entry : entries) {
    const absl::StatusOr<AttemptId> id =
        AttemptId::FromBytes(entry.desired.attempt_id());
    if (!id.ok()) {
      COHORT_LOG(kError, "journal_entry_without_attempt");
      continue;
    }
    Attempt& attempt = attempts_[*id];
    attempt.id = *id;
    attempt.desired = std::move(entry.desired);
    attempt.observed = std::move(entry.observed);
    for (const v1::ObservedRank& rank : attempt.observed.ranks()) {
      attempt.exits = std::max(attempt.exits, rank.exit_order());
    }
    if (!IsLive(attempt.observed)) {
      // What was being prepared has to be prepared again: its port is free.
      if (attempt.observed.phase() != v1::PHASE_ENDED) {
        attempt.observed.set_phase(v1::PHASE_UNSPECIFIED);
      }
      continue;
    }
    ++adopting_;
    host_.Adopt(attempt.desired, [this, id = *id](auto adopted) {
      OnAdopted(id, std::move(adopted));
      if (--adopting_ == 0) std::move(on_restored_)();
    });
  }
  if (--adopting_ == 0) std::move(on_restored_)();
}

void NodeState::OnAdopted(const AttemptId& id,
                          absl::StatusOr<AdoptedAttempt> adopted) {
  Attempt* attempt = Find(id);
  if (attempt == nullptr) return;
  if (!adopted.ok() && !absl::IsNotFound(adopted.status())) {
    // What became of its ranks nobody knows; that none runs any more is sure.
    End(*attempt, v1::END_CAUSE_KEEPER_LOST,
        std::string(adopted.status().message()));
    return;
  }
  const AttemptPhase phase =
      adopted.ok() ? adopted->phase : AttemptPhase::kNoSpec;
  switch (phase) {
    case AttemptPhase::kRunning:
    case AttemptPhase::kKeeperLost:
    case AttemptPhase::kDone:
      return;  // the whole story follows as events
    case AttemptPhase::kSpecDamaged:
      End(*attempt, v1::END_CAUSE_KEEPER_LOST, adopted->message);
      return;
    case AttemptPhase::kNoSpec:
    case AttemptPhase::kNotStarted:
      // Nothing ran: prepared anew when the head repeats its goal.
      attempt->observed.set_phase(v1::PHASE_UNSPECIFIED);
      return;
  }
}

// ---- from and to the head ----

void NodeState::Follow(const std::string& generation) {
  generation_ = generation;
}

void NodeState::Apply(const v1::Desired& desired) {
  for (const v1::DesiredAttempt& attempt : desired.attempts()) {
    ApplyOne(attempt);
  }
  for (const v1::Exchange& exchange : desired.exchanges()) {
    ApplyExchange(exchange);
  }
}

void NodeState::ApplyExchange(const v1::Exchange& exchange) {
  const absl::StatusOr<AttemptId> id =
      AttemptId::FromBytes(exchange.attempt_id());
  Attempt* const attempt = id.ok() ? Find(*id) : nullptr;
  if (attempt == nullptr || !IsLive(attempt->observed) ||
      exchange.blobs_size() != attempt->desired.world_size()) {
    return;
  }
  attempt->exchange.Complete(exchange);
}

void NodeState::ApplyOne(const v1::DesiredAttempt& desired) {
  const absl::StatusOr<AttemptId> id =
      AttemptId::FromBytes(desired.attempt_id());
  if (!id.ok()) {
    COHORT_LOG(kWarning, "desired_attempt_without_id");
    return;
  }
  Attempt* attempt = Find(*id);
  if (attempt == nullptr) {
    if (desired.goal() == v1::GOAL_FORGET) return;
    attempt = &attempts_[*id];
    attempt->id = *id;
    attempt->observed.set_attempt_id(desired.attempt_id());
    attempt->observed.set_job_id(desired.job_id());
    attempt->observed.set_epoch(desired.epoch());
    attempt->observed.set_generation(generation_);
    for (const v1::DesiredRank& rank : desired.ranks()) {
      v1::ObservedRank* observed = attempt->observed.add_ranks();
      observed->set_rank(rank.rank());
      observed->set_state(v1::RANK_STATE_PENDING);
    }
    attempt->desired = desired;
    if (desired.goal() == v1::GOAL_STOP) {
      // The head believes that something is here; tell it otherwise.
      End(*attempt, v1::END_CAUSE_MISSING,
          "this node does not know the attempt");
      return;
    }
    if (leaving_) {
      End(*attempt, v1::END_CAUSE_DAEMON_SHUTDOWN, "daemon shutdown");
      return;
    }
  } else if (desired.goal() == v1::GOAL_FORGET) {
    attempt->desired.set_goal(v1::GOAL_FORGET);
    attempt->desired.set_reason(desired.reason());
  } else {
    attempt->desired = desired;
    if (attempt->observed.generation() != generation_) {
      // Adopted.
      attempt->observed.set_generation(generation_);
      Changed(*attempt);
      Save(*attempt);
    }
  }
  Drive(*attempt);
}

void NodeState::Drive(Attempt& attempt) {
  RemoveRetired(attempt);
  switch (attempt.desired.goal()) {
    case v1::GOAL_PREPARE:
      if (attempt.observed.phase() == v1::PHASE_UNSPECIFIED) Prepare(attempt);
      return;
    case v1::GOAL_RUN:
      if (attempt.observed.phase() == v1::PHASE_UNSPECIFIED) Prepare(attempt);
      if (attempt.observed.phase() == v1::PHASE_PREPARED) Start(attempt);
      return;
    case v1::GOAL_STOP:
      Stop(attempt);
      return;
    case v1::GOAL_FORGET:
      Forget(attempt);
      return;
    default:
      // A goal of a later protocol version: its head does not rely on us.
      COHORT_LOG(kWarning, "unknown_goal", {"attempt", attempt.id.ToHex()},
                 {"goal", static_cast<int>(attempt.desired.goal())});
      return;
  }
}

void NodeState::Prepare(Attempt& attempt) {
  attempt.observed.set_phase(v1::PHASE_PREPARING);
  attempt.preparing = true;
  Changed(attempt);
  // On disk first, so that a restarted daemon finds what Prepare made.
  host_.Save(attempt.id, {attempt.desired, attempt.observed},
             [this, id = attempt.id](absl::Status saved) {
               Attempt* found = Find(id);
               if (found == nullptr) return;
               if (!saved.ok()) return OnPrepared(id, saved);
               host_.Prepare(found->desired, [this, id](auto port) {
                 OnPrepared(id, std::move(port));
               });
             });
}

void NodeState::OnPrepared(const AttemptId& id, absl::StatusOr<int> port) {
  Attempt* attempt = Find(id);
  if (attempt == nullptr) return;
  attempt->preparing = false;
  if (IsEnding(attempt->desired) || attempt->taken_along) {
    End(*attempt,
        attempt->taken_along ? v1::END_CAUSE_DAEMON_SHUTDOWN
                             : v1::END_CAUSE_EXITED,
        "stopped before its ranks started");
    return;
  }
  if (!port.ok()) return EndUnbegun(*attempt, port.status());
  attempt->observed.set_phase(v1::PHASE_PREPARED);
  attempt->observed.set_master_port(*port);
  Changed(*attempt);
  Drive(*attempt);
}

void NodeState::Start(Attempt& attempt) {
  // The head may have placed it before it heard.
  if (const std::string fault = device_faults_.Of(attempt.desired);
      !fault.empty()) {
    return End(attempt, v1::END_CAUSE_DEVICE_FAULT, fault);
  }
  attempt.observed.set_phase(v1::PHASE_STARTING);
  for (v1::ObservedRank& rank : *attempt.observed.mutable_ranks()) {
    rank.set_state(v1::RANK_STATE_STARTING);
  }
  attempt.starting = true;
  Changed(attempt);
  host_.Save(attempt.id, {attempt.desired, attempt.observed},
             [this, id = attempt.id](absl::Status saved) {
               Attempt* found = Find(id);
               if (found == nullptr) return;
               if (!saved.ok()) return OnStarted(id, saved);
               host_.Start(found->desired, [this, id](absl::Status status) {
                 OnStarted(id, std::move(status));
               });
             });
}

void NodeState::OnStarted(const AttemptId& id, absl::Status status) {
  Attempt* attempt = Find(id);
  if (attempt == nullptr) return;
  attempt->starting = false;
  if (!status.ok()) return EndUnbegun(*attempt, status);
  events_.on_begun();
  // A stop that came while the keeper was being started.
  if (IsEnding(attempt->desired)) Drive(*attempt);
  if (attempt->taken_along) host_.Stop(id, absl::ZeroDuration());
  if (!attempt->lost_device.empty()) host_.Stop(id, kLostDeviceGrace);
}

void NodeState::Stop(Attempt& attempt) {
  switch (attempt.observed.phase()) {
    case v1::PHASE_ENDED:
      return;
    case v1::PHASE_STARTING:
    case v1::PHASE_RUNNING: {
      if (attempt.starting) return;  // OnStarted comes back here
      // It ends already, with all the grace that there is.  Its parts on other
      // nodes may have ended before it: that is no reason to hurry.
      if (attempt.taken_along) return;
      attempt.ordered = true;
      host_.Revoke(attempt.id);
      host_.Stop(attempt.id, rpc::FromWire(attempt.desired.grace()));
      return;
    }
    default:
      if (attempt.preparing) return;  // OnPrepared ends it
      End(attempt, v1::END_CAUSE_EXITED, "stopped before its ranks started");
      return;
  }
}

// The head has given the attempt up while its ranks run here.
void NodeState::LogVoidLease(const char* event, const Attempt& attempt) {
  const absl::StatusOr<JobId> job = JobId::FromBytes(attempt.desired.job_id());
  COHORT_LOG(kWarning, event, {"attempt", attempt.id},
             {"job", job.ok() ? job->ToText() : ""},
             {"why", attempt.desired.reason()});
}

void NodeState::Forget(Attempt& attempt) {
  if (attempt.forgetting || attempt.preparing || attempt.starting) return;
  if (IsLive(attempt.observed)) {
    if (attempt.killed) return;
    attempt.killed = true;
    attempt.ordered = true;
    LogVoidLease("lease_void", attempt);
    host_.Revoke(attempt.id);
    host_.Kill(attempt.id);
    return;  // AllDone or KeeperLost comes back here
  }
  if (attempt.observed.phase() != v1::PHASE_ENDED) {
    // Nothing of it ran; what was held for it is free.
    attempt.observed.set_phase(v1::PHASE_ENDED);
    attempt.observed.set_end_cause(v1::END_CAUSE_EXITED);
    Changed(attempt);
  }
  // They are due, or on their way: Acknowledge comes back here.
  if (HasUnrecordedWords(attempt)) return;
  if (attempt.killed) LogVoidLease("lease_ended", attempt);
  attempt.forgetting = true;
  host_.Forget(attempt.id, [this, id = attempt.id](absl::Status status) {
    if (!status.ok()) {
      COHORT_LOG(kWarning, "forget_failed", {"attempt", id.ToHex()},
                 {"error", status.ToString()});
    }
    attempts_.erase(id);
    dirty_.erase(id);
    MaybeAllEnded();
  });
}

void NodeState::End(Attempt& attempt, v1::EndCause cause,
                    const std::string& detail) {
  attempt.observed.set_phase(v1::PHASE_ENDED);
  attempt.observed.set_end_cause(cause);
  attempt.observed.set_detail(detail);
  attempt.exchange.Abort(absl::AbortedError("the attempt has ended"));
  Changed(attempt);
  Save(attempt);
  MaybeAllEnded();
  if (attempt.desired.goal() == v1::GOAL_FORGET) Forget(attempt);
}

void NodeState::EndUnbegun(Attempt& attempt, const absl::Status& why) {
  const std::string reason = GetReason(why);
  v1::EndCause cause = v1::END_CAUSE_PREPARE_FAILED;
  if (reason == kPackageLost) cause = v1::END_CAUSE_PACKAGE_LOST;
  if (reason == kNodeFault) {
    cause = v1::END_CAUSE_NODE_FAILED;
    events_.on_fault(why);
  }
  End(attempt, cause, std::string(why.message()));
}

void NodeState::TakeAlong(absl::Duration grace,
                          absl::AnyInvocable<void() &&> ended,
                          absl::AnyInvocable<void() &&> forgotten) {
  leaving_ = true;
  on_all_ended_ = std::move(ended);
  on_all_forgotten_ = std::move(forgotten);
  for (auto& [id, attempt] : attempts_) {
    if (attempt.observed.phase() == v1::PHASE_ENDED) continue;
    attempt.taken_along = true;
    if (attempt.preparing || attempt.starting) continue;
    if (IsLive(attempt.observed)) {
      attempt.ordered = true;
      host_.Revoke(id);
      host_.Stop(id, grace);
    } else {
      End(attempt, v1::END_CAUSE_DAEMON_SHUTDOWN, "daemon shutdown");
    }
  }
  MaybeAllEnded();
}

void NodeState::MaybeAllEnded() {
  const bool all_ended =
      std::all_of(attempts_.begin(), attempts_.end(), [](const auto& attempt) {
        return attempt.second.observed.phase() == v1::PHASE_ENDED;
      });
  if (!leaving_ || !all_ended) return;
  if (on_all_ended_) std::exchange(on_all_ended_, nullptr)();
  if (attempts_.empty() && on_all_forgotten_) {
    std::exchange(on_all_forgotten_, nullptr)();
  }
}

// ---- from the keepers ----

void NodeState::OnEvent(const AttemptId& id, const KeeperEvent& event) {
  Attempt* attempt = Find(id);
  if (attempt == nullptr || attempt->observed.phase() == v1::PHASE_ENDED) {
    return;
  }
  if (const auto* started = std::get_if<RankStarted>(&event)) {
    OnRankStarted(*attempt, *started);
  } else if (const auto* exited = std::get_if<RankExited>(&event)) {
    OnRankExited(*attempt, *exited);
  } else if (const auto* lost = std::get_if<KeeperLost>(&event)) {
    EndByKeeper(*attempt,
                lost->message.empty() ? "its keeper died" : lost->message);
  } else {
    EndAllDone(*attempt);
  }
}

// A rank in the driver of a lost device may not even die of its keeper.
void NodeState::EndByKeeper(Attempt& attempt, const std::string& why) {
  if (attempt.lost_device.empty()) {
    EndAfterTail(attempt, v1::END_CAUSE_KEEPER_LOST, why);
  } else {
    EndAfterTail(attempt, v1::END_CAUSE_DEVICE_FAULT,
                 absl::StrCat(attempt.lost_device, "; ", why));
  }
}

void NodeState::EndAllDone(Attempt& attempt) {
  const bool rank_failed = FirstToFail(attempt.observed) != nullptr;
  // Siblings of a rank that failed while the head was away may well have run
  // on until their limit; it is the rank that failed first.
  if (!attempt.lost_device.empty()) {
    EndAfterTail(attempt, v1::END_CAUSE_DEVICE_FAULT, attempt.lost_device);
  } else if (const std::string fault =
                 device_faults_.OfFailure(attempt.desired, attempt.observed);
             !fault.empty()) {
    EndAfterTail(attempt, v1::END_CAUSE_DEVICE_FAULT, fault);
  } else if (attempt.time_is_up && !rank_failed) {
    EndAfterTail(attempt, v1::END_CAUSE_TIME_LIMIT, "");
  } else if (attempt.taken_along) {
    EndAfterTail(attempt, v1::END_CAUSE_DAEMON_SHUTDOWN, "daemon shutdown");
  } else if (attempt.keeper_stopped && !rank_failed) {
    // Also where all of them ended with 0: they did not end their work.
    EndByKeeper(attempt, kKeeperStopped);
  } else {
    EndAfterTail(attempt, v1::END_CAUSE_EXITED, "");
  }
}

void NodeState::EndAfterTail(Attempt& attempt, v1::EndCause cause,
                             const std::string& detail) {
  if (!attempt.reading_tail) return End(attempt, cause, detail);
  attempt.end_waiting = {cause, detail};
}

void NodeState::OnRankStarted(Attempt& attempt, const RankStarted& event) {
  v1::ObservedRank* rank = FindRank(attempt, event.rank);
  if (rank == nullptr || rank->state() == v1::RANK_STATE_EXITED) return;
  rank->set_state(v1::RANK_STATE_RUNNING);
  rank->set_pid(event.pid);
  const auto& ranks = attempt.observed.ranks();
  const bool all_started =
      std::all_of(ranks.begin(), ranks.end(), [](const v1::ObservedRank& r) {
        return r.state() == v1::RANK_STATE_RUNNING ||
               r.state() == v1::RANK_STATE_EXITED;
      });
  if (all_started && attempt.observed.phase() == v1::PHASE_STARTING) {
    attempt.observed.set_phase(v1::PHASE_RUNNING);
    Save(attempt);
  }
  Changed(attempt);
}

void NodeState::OnRankExited(Attempt& attempt, const RankExited& event) {
  v1::ObservedRank* rank = FindRank(attempt, event.rank);
  if (rank == nullptr) return;
  // An order of ours that could only come as a signal is none from outside.
  const bool keeper_stopped =
      event.status.cause == ExitStatus::Cause::kKeeperStopped &&
      !attempt.ordered && !IsEnding(attempt.desired);
  attempt.keeper_stopped = attempt.keeper_stopped || keeper_stopped;
  const bool known = rank->state() == v1::RANK_STATE_EXITED;  // told again
  if (!known) {
    rank->set_state(v1::RANK_STATE_EXITED);
    rank->set_exit_order(++attempt.exits);
    rank->set_ended_by_order(EndedByOthers(event.status));
    ToWire(event.status, *rank->mutable_exit());
    if (keeper_stopped) rank->mutable_exit()->set_detail(kKeeperStopped);
    if (attempt.desired.preflight() && FailedByItself(*rank)) {
      NoteEndInPreflight(*rank, attempt.observed);
    }
  }
  attempt.observed.mutable_ran()->CopyFrom(rpc::ToWire(
      std::max(rpc::FromWire(attempt.observed.ran()), event.status.ran)));
  const bool time_is_up = event.status.cause == ExitStatus::Cause::kTimeLimit;
  attempt.time_is_up = attempt.time_is_up || time_is_up;
  const bool failed = Failed(event.status) && !EndedByOthers(event.status);
  if (time_is_up || keeper_stopped || failed) {
    // Its peers must not wait for it in a collective.
    host_.Revoke(attempt.id);
    if (!keeper_stopped && attempt.observed.stderr_tail().empty() &&
        !attempt.reading_tail) {
      ReadTail(attempt, event.rank);
    }
  }
  if (known) return;
  Changed(attempt);
  Save(attempt);
}

void NodeState::ReadTail(Attempt& attempt, int rank) {
  attempt.reading_tail = true;
  host_.ReadStderrTail(
      attempt.id, rank, [this, id = attempt.id](std::string tail) {
        Attempt* found = Find(id);
        if (found == nullptr) return;
        found->observed.set_stderr_tail(std::move(tail));
        found->words_due = !found->observed.stderr_tail().empty();
        found->reading_tail = false;
        Changed(*found);
        if (found->end_waiting.has_value()) {
          End(*found, found->end_waiting->first, found->end_waiting->second);
        }
      });
}

void NodeState::OnMetrics(const AttemptId& id, int rank, uint64_t count,
                          std::string json) {
  // Rank 0 speaks for the run; the others' would weigh on each message.
  if (rank != 0) return;
  Attempt* attempt = Find(id);
  if (attempt == nullptr) return;
  if (attempt->observed.metrics_size() == 0) attempt->observed.add_metrics();
  v1::MetricsReport* const report = attempt->observed.mutable_metrics(0);
  if (report->count() >= count) return;
  report->set_rank(rank);
  report->set_count(count);
  report->set_json(std::move(json));
  Changed(*attempt);
}

// ---- from the devices ----

void NodeState::NoteDeviceFault(const std::string& device,
                                const std::string& reason, bool lost) {
  device_faults_.Note(device, reason);
  if (reason.empty() || !lost) return;
  for (auto& [id, attempt] : attempts_) {
    const auto& ranks = attempt.desired.ranks();
    const bool has_it = std::any_of(
        ranks.begin(), ranks.end(),
        [&](const v1::DesiredRank& rank) { return HasDevice(rank, device); });
    if (has_it && IsLive(attempt.observed)) EndByLoss(attempt, reason);
  }
}

void NodeState::NoteDevicesThere(const std::set<std::string>& there) {
  std::set<std::string> gone;
  for (const auto& [id, attempt] : attempts_) {
    for (const v1::DesiredRank& rank : attempt.desired.ranks()) {
      for (const std::string& device : rank.gpu_ids()) {
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

void NodeState::EndByLoss(Attempt& attempt, const std::string& reason) {
  if (!attempt.lost_device.empty() || attempt.killed) return;
  attempt.lost_device = reason;
  attempt.ordered = true;
  COHORT_LOG(kWarning, "device_lost", {"attempt", attempt.id}, {"why", reason});
  if (attempt.starting) return;  // OnStarted ends it
  host_.Revoke(attempt.id);
  host_.Stop(attempt.id, kLostDeviceGrace);
}

// ---- from the ranks ----

absl::StatusOr<const v1::DesiredAttempt*> NodeState::FindRunning(
    const AttemptId& id, int rank, int64_t epoch) const {
  const auto found = attempts_.find(id);
  if (found == attempts_.end()) {
    return absl::NotFoundError(
        absl::StrCat("attempt ", id.ToHex(), " is not on this node"));
  }
  const Attempt& attempt = found->second;
  if (!IsLive(attempt.observed)) {
    return absl::FailedPreconditionError(
        absl::StrCat("attempt ", id.ToHex(), " does not run on this node"));
  }
  if (attempt.desired.epoch() != epoch) {
    return absl::FailedPreconditionError(
        absl::StrCat("epoch ", epoch, " is stale: the attempt is in epoch ",
                     attempt.desired.epoch()));
  }
  for (const v1::DesiredRank& desired : attempt.desired.ranks()) {
    if (desired.rank() == rank) return &attempt.desired;
  }
  return absl::NotFoundError(
      absl::StrCat("rank ", rank, " of the attempt is not on this node"));
}

void NodeState::GiveBlob(const AttemptId& id, int rank, int64_t epoch,
                         const std::string& tag, const std::string& blob,
                         Exchange::Done done) {
  const auto running = FindRunning(id, rank, epoch);
  if (!running.ok()) return std::move(done)(running.status());
  Attempt& attempt = attempts_.at(id);
  const absl::StatusOr<bool> added =
      Exchange::Give(rank, tag, blob, attempt.observed);
  if (!added.ok()) return std::move(done)(added.status());
  if (*added) Changed(attempt);
  attempt.exchange.Wait(tag, std::move(done));
}

void NodeState::CommitCheckpoint(const AttemptId& id, int rank, int64_t epoch,
                                 const v1::Checkpoint& checkpoint,
                                 AttemptHost::Done done) {
  const auto running = FindRunning(id, rank, epoch);
  if (!running.ok()) return std::move(done)(running.status());
  Attempt& attempt = attempts_.at(id);
  const auto& pending = attempt.observed.checkpoints();
  const bool known = std::any_of(pending.begin(), pending.end(),
                                 [&](const v1::Checkpoint& old) {
                                   return old.path() == checkpoint.path();
                                 });
  if (!known) *attempt.observed.add_checkpoints() = checkpoint;
  SaveAndTell(id, std::move(done));
}

void NodeState::ReportPreflight(const AttemptId& id, int rank, int64_t epoch,
                                const v1::PreflightReport& report,
                                AttemptHost::Done done) {
  const auto running = FindRunning(id, rank, epoch);
  if (!running.ok()) return std::move(done)(running.status());
  Attempt& attempt = attempts_.at(id);
  v1::ObservedRank& observed = *FindRank(attempt, rank);
  const bool failed = report.verdict() == v1::PREFLIGHT_VERDICT_FAILED;
  // What a command does is not for free.
  if (!attempt.desired.preflight() ||
      (failed && observed.through_preflight())) {
    return std::move(done)(absl::FailedPreconditionError(
        absl::StrCat("rank ", rank, " is in no preflight")));
  }
  TakePreflight(report, observed, attempt.observed);
  SaveAndTell(id, std::move(done));
}

void NodeState::ReportGpuEnd(const AttemptId& id, int rank, int64_t epoch,
                             const v1::GpuEnd& end, AttemptHost::Done done) {
  const auto running = FindRunning(id, rank, epoch);
  if (!running.ok()) return std::move(done)(running.status());
  v1::ObservedRank& observed = *FindRank(attempts_.at(id), rank);
  if (end.level() <= observed.gpu_end().level()) {
    return std::move(done)(absl::OkStatus());
  }
  *observed.mutable_gpu_end() = end;
  SaveAndTell(id, std::move(done));
}

void NodeState::SaveAndTell(const AttemptId& id, AttemptHost::Done done) {
  const Attempt& attempt = attempts_.at(id);
  host_.Save(id, {attempt.desired, attempt.observed},
             [this, id, done = std::move(done)](absl::Status saved) mutable {
               // Pushed once it would survive us.
               if (Attempt* found = Find(id); saved.ok() && found != nullptr) {
                 Changed(*found);
               }
               std::move(done)(std::move(saved));
             });
}

void NodeState::RemoveRetired(Attempt& attempt) {
  auto* removed = attempt.observed.mutable_removed_checkpoints();
  const auto& retired = attempt.desired.retired_checkpoints();
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
        !attempt.removing.insert(path).second) {
      continue;
    }
    host_.RemoveCheckpoint(
        attempt.desired, path, [this, id = attempt.id, path](auto status) {
          Attempt* found = Find(id);
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

// ---- small things ----

void NodeState::Changed(Attempt& attempt) {
  dirty_.insert(attempt.id);
  events_.on_change();
}

void NodeState::Save(Attempt& attempt) {
  if (attempt.forgetting) return;  // it would come back to life
  host_.Save(attempt.id, {attempt.desired, attempt.observed},
             [id = attempt.id](absl::Status status) {
               if (status.ok()) return;
               // What is lost is told again by the keeper's own records.
               COHORT_LOG(kWarning, "journal_not_saved",
                          {"attempt", id.ToHex()},
                          {"error", status.ToString()});
             });
}

NodeState::Attempt* NodeState::Find(const AttemptId& id) {
  const auto found = attempts_.find(id);
  return found == attempts_.end() ? nullptr : &found->second;
}

v1::ObservedRank* NodeState::FindRank(Attempt& attempt, int rank) {
  for (v1::ObservedRank& observed : *attempt.observed.mutable_ranks()) {
    if (observed.rank() == rank) return &observed;
  }
  return nullptr;
}

}  // namespace cohort::worker

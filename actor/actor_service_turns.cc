// The calls' turns, and how their results go back (actor_service_core.h).

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "actor/actor_service_core.h"
#include "actor/call_error.h"
#include "actor/call_failure.h"
#include "actor/call_limits.h"
#include "actor/ring_way.h"
#include "actor/shared_threads.h"
#include "actor/wait_observer.h"
#include "common/status_util.h"
#include "rpc/stream.h"
#include "shm/ring_pair.h"

namespace cohort::actor {
namespace {

// Calls that an actor runs before others that share the process have their
// turn.
constexpr int kTurnsMax = 64;
// And before what else was posted to the runner has its turn, where calls come
// by rings without an end.
constexpr int kRingTurnsMax = 1024;

absl::Status NoGroup(const std::string& group) {
  return SetReason(
      absl::UnimplementedError(absl::StrCat(
          "the actor has no concurrency group \"", group,
          "\" (ActorOptions::concurrency_groups names those that it has)")),
      kReasonNoMethod);
}

absl::Status NoSuchActor(uint32_t actor) {
  return SetReason(absl::UnimplementedError(absl::StrCat(
                       "this process has no actor ", actor,
                       " (a handle of another program's group, perhaps)")),
                   kReasonNoMethod);
}

}  // namespace

// While a call runs in a lane that gives way.
class ActorService::Core::GivesWay final : public WaitObserver {
 public:
  GivesWay(Core& core, Lane& lane) : core_(core), lane_(lane) {}

  absl::Status OnWait() override {
    Claims claims;
    {
      MutexLock lock(core_.mutex_);
      if (lane_.given_way >= kGivenWayMax) return TooManyWait(kGivenWayMax);
      ++lane_.given_way;
      LaneSet::Claim(lane_, claims);
    }
    core_.StartRunners(claims);
    return absl::OkStatus();
  }
  void OnWaited() override {
    MutexLock lock(core_.mutex_);
    --lane_.given_way;
  }

 private:
  Core& core_;
  Lane& lane_;
};

// ---- Running. ----

void ActorService::Core::StartRunners(const Claims& claims) {
  for (Lane* const lane : claims) {
    lane->options.runner->Post(
        [core = shared_from_this(), lane] { core->Run(*lane); });
  }
}

void ActorService::Core::Run(Lane& lane) {
  Turn turn;
  RingLooker looker(watch_);
  const bool takes_turns = lane.options.actors > 1;
  for (int turns = 0;; ++turns) {
    // Another actor has the thread.
    if (takes_turns && turns == kTurnsMax) return StartRunners({&lane});
    if (looker.is_looking() && turns > kRingTurnsMax) {
      return StartRunners({&lane});
    }
    CancelFlag cancelled;
    switch (NextTurn(lane, turn, cancelled, looker.is_looking())) {
      case Next::kEnd:
        return;
      case Next::kNothing:
        looker.Look();
        continue;
      case Next::kCall:
        break;
    }
    looker.Stop();
    const std::shared_ptr<CallStream> stream =
        EndTurn(turn, RunCall(lane, turn.call));
    // Before its caller has the result, and calls again.
    if (turn.is_last && lane.options.looks_at_rings) looker.Start();
    if (stream != nullptr) WriteHeld(*stream);
  }
}

absl::StatusOr<std::string> ActorService::Core::RunCall(
    Lane& lane, const WaitingCall& call) {
  if (!lanes_.IsThere(*call.method, call.actor)) {
    return call.method->lane == nullptr ? NoGroup(call.method->group)
                                        : NoSuchActor(call.actor);
  }
  if (!lane.options.gives_way) {
    return invoke_(call.method->name, call.arguments, call.actor);
  }
  GivesWay gives_way(*this, lane);
  const WaitObserver::Here here(gives_way);
  return invoke_(call.method->name, call.arguments, call.actor);
}

ActorService::Core::Next ActorService::Core::NextTurn(Lane& lane, Turn& turn,
                                                      CancelFlag& cancelled,
                                                      bool stays) {
  // Destroyed without the lock: the last hold on a stream.
  std::shared_ptr<CallStream> last = std::move(turn.caller);
  std::vector<std::shared_ptr<CallStream>> over;
  MutexLock lock(mutex_);
  const bool is_surplus = LaneSet::IsSurplus(lane);
  while (!is_surplus && !lane.line.empty() && !is_stopped_) {
    turn.caller = std::move(lane.line.front());
    lane.line.pop_front();
    CallStream& caller = *turn.caller;
    std::deque<WaitingCall>& waiting = caller.waiting[&lane];
    if (waiting.empty()) {
      over.push_back(std::move(turn.caller));
    } else if (caller.held_bytes > kResultsHeldBytes) {
      caller.missed_turns.push_back(&lane);
      over.push_back(std::move(turn.caller));
    } else {
      turn.call = std::move(waiting.front());
      waiting.pop_front();
      --caller.waiting_calls;
      caller.waiting_bytes -= turn.call.arguments.size();
      if (waiting.empty() && lane.options.actors > 1) {
        caller.waiting.erase(&lane);
      }
      caller.session->record.NoteBegun(lane.number + 1, turn.call.sequence);
      running_.push_back({.thread = std::this_thread::get_id(),
                          .session = caller.session.get(),
                          .sequence = turn.call.sequence,
                          .cancelled = &cancelled,
                          .note = BeginNote(turn)});
      turn.is_last = lane.line.empty();
      return Next::kCall;
    }
  }
  if (stays && !is_surplus && !is_stopped_) return Next::kNothing;
  --lane.runners;
  return Next::kEnd;
}

std::vector<RunningCall>::iterator ActorService::Core::FindRunning(
    const CallerSession& session, uint64_t sequence) {
  return std::find_if(
      running_.begin(), running_.end(), [&](const RunningCall& each) {
        return each.session == &session && each.sequence == sequence;
      });
}

std::optional<CallNotes::Note> ActorService::Core::BeginNote(const Turn& turn) {
  if (!turn.call.method->note.has_value()) return std::nullopt;
  return notes_.Begin(*turn.call.method->note, turn.caller->session->id,
                      turn.call.queued_us, turn.ended_us);
}

std::shared_ptr<CallStream> ActorService::Core::EndTurn(
    Turn& turn, absl::StatusOr<std::string> value) {
  v1::ActorResults::Result result =
      ResultOf(turn.call.sequence, std::move(value));
  turn.ended_us = notes_.Now();
  MutexLock lock(mutex_);
  const auto running = FindRunning(*turn.caller->session, turn.call.sequence);
  if (running->note.has_value()) notes_.End(*running->note, turn.ended_us);
  running_.erase(running);
  if (is_stopped_) ran_.SignalAll();
  return AddResult(std::move(result), *turn.caller->session);
}

std::shared_ptr<CallStream> ActorService::Core::AddResult(
    v1::ActorResults::Result&& result, CallerSession& session) {
  if (session.stream != nullptr) {
    Hold(std::move(result), *session.stream);
  } else {
    callers_.Keep(std::move(result), session);
  }
  return session.stream;
}

void ActorService::Core::Hold(v1::ActorResults::Result&& result,
                              CallStream& caller) {
  caller.held_bytes += BytesOf(result);
  *caller.held->add_results() = std::move(result);
}

// Writes what is held unless something waits to be written already: then all
// of it goes in one message when that has been taken.
void ActorService::Core::WriteHeld(CallStream& caller, bool was_writing) {
  bool is_kick = false;
  CallerRecord::Results results = NextMessage(caller, was_writing, is_kick);
  while (results != nullptr) {
    const absl::Status status = Write(caller, *results, is_kick);
    // Else it is over already, which this does not change.
    if (!status.ok()) return caller.writer->Close(status);
    results = NextMessage(caller, /*was_writing=*/true, is_kick);
  }
}

absl::Status ActorService::Core::Write(CallStream& caller,
                                       v1::ActorResults& results,
                                       bool is_kick) {
  auto* const ring = caller.ring.get();
  if (ring == nullptr) return caller.writer->Write(results);
  // Only of the last call that waits, whose thread looks from now on and kicks
  // if need be: results of many go together by the stream.
  const bool is_for_ring = !is_kick && ring->IsShared() && caller.is_watched;
  if (is_for_ring && ring->Push(results.SerializeAsString())) {
    if (!ring->IsLookedAt() && !watch_.WillKick(caller)) Kick(caller);
    return absl::OkStatus();
  }
  results.set_ring_messages(ring->ForStream());
  return caller.writer->Write(results);
}

CallerRecord::Results ActorService::Core::NextMessage(CallStream& caller,
                                                      bool was_writing,
                                                      bool& is_kick) {
  MutexLock lock(mutex_);
  if (was_writing) caller.is_writing = false;
  const bool has_results = !caller.held->results().empty();
  if (caller.is_over || caller.is_writing ||
      (!has_results && !caller.is_to_kick) ||
      caller.writer->QueuedBytes() > 0) {
    return nullptr;
  }
  caller.is_writing = true;
  is_kick = std::exchange(caller.is_to_kick, false);
  if (!has_results) return std::make_shared<v1::ActorResults>();
  CallerRecord& record = caller.session->record;
  CallerRecord::Results results =
      std::exchange(caller.held, record.NewMessage());
  record.NoteSent(results, std::exchange(caller.held_bytes, 0));
  return results;
}

void ActorService::Core::OnDrained(const std::shared_ptr<CallStream>& caller) {
  WriteHeld(*caller);
  Claims claims;
  {
    MutexLock lock(mutex_);
    if (caller->is_over || is_stopped_ ||
        caller->held_bytes > kResultsHeldBytes) {
      return;
    }
    for (Lane* const lane : caller->missed_turns) {
      lane->line.push_back(caller);
      LaneSet::Claim(*lane, claims);
    }
    caller->missed_turns.clear();
  }
  StartRunners(claims);
}

// ---- Rings. ----

void ActorService::Core::MakeRing(const std::shared_ptr<CallStream>& caller) {
  if (!watch_.HasRoom()) return;
  auto ring = shm::RingPair::Create();
  if (!ring.ok()) return;  // The stream does as well.
  caller->ring =
      std::make_unique<RingWay<const v1::ActorCalls>>(*std::move(ring));
  watch_.Add(caller);
}

void ActorService::Core::SettleRing(CallStream& caller) {
  if (std::exchange(caller.is_settled, true)) return;
  caller.ring->Close();
  if (!caller.ring->IsShared()) watch_.Remove(caller);
}

void ActorService::Core::TakeFromRing(
    const std::shared_ptr<CallStream>& caller) {
  const absl::Status taken = caller->ring->Drain(
      [&](const auto& each, size_t) { Handle(caller, each); });
  if (!taken.ok()) Refuse(*caller, taken);
}

// Who looks will find it, and who has it does not need to.
void ActorService::Core::Kick(CallStream& caller) {
  if (!caller.ring->HasUnread() || caller.ring->IsLookedAt()) return;
  {
    MutexLock lock(mutex_);
    caller.is_to_kick = true;
  }
  WriteHeld(caller);
}

}  // namespace cohort::actor

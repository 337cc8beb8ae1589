#include "actor/actor_service.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "actor/actor_service_core.h"
#include "actor/call_error.h"
#include "actor/call_failure.h"
#include "actor/call_limits.h"
#include "actor/call_notes.h"
#include "actor/call_stream.h"
#include "actor/caller_record.h"
#include "actor/caller_table.h"
#include "actor/group_tree.h"
#include "actor/is_cancelled.h"
#include "actor/lane_set.h"
#include "actor/ring_offer.h"
#include "actor/ring_watch.h"
#include "actor/shared_threads.h"
#include "actor/wait_observer.h"
#include "cohort/v1/actor.pb.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "rpc/methods.h"
#include "rpc/stream.h"

namespace cohort::actor {
namespace {

using Writer = ResultWriter;

// What a process answers itself, whatever its object.
bool IsForRelay(const std::string& method) {
  return method == kRelayMethod || method == kFlushMethod;
}

absl::Status NoRelay() {
  return SetReason(
      absl::UnimplementedError("this actor is in no group: it relays no calls"),
      kReasonNoMethod);
}

}  // namespace

// ---- What a caller sends: all of a message, or nothing. ----

void ActorService::Core::OnMessage(const std::shared_ptr<CallStream>& caller,
                                   const v1::ActorCalls& message) {
  if (caller->ring == nullptr) return Handle(caller, message);
  SettleRing(*caller);
  const absl::Status taken = caller->ring->OnStream(
      message, message.ByteSizeLong(),
      [&](const auto& each, size_t) { Handle(caller, each); });
  if (!taken.ok()) Refuse(*caller, taken);
}

void ActorService::Core::Handle(const std::shared_ptr<CallStream>& caller,
                                const v1::ActorCalls& message) {
  if (caller->is_refused) return;
  const absl::Status status = Take(caller, message);
  if (status.ok()) return;
  caller->is_refused = true;
  Refuse(*caller, status);
}

void ActorService::Core::Refuse(CallStream& caller, const absl::Status& why) {
  OnOver(caller);
  caller.writer->Close(why);
}

absl::Status ActorService::Core::Take(const std::shared_ptr<CallStream>& caller,
                                      const v1::ActorCalls& message) {
  if (message.has_open() == caller->is_open) {
    return Garbage("`open` is in the first message, and in no other");
  }
  if (message.has_open()) {
    COHORT_RETURN_IF_ERROR(Open(caller, message.open()));
  }
  for (const v1::ActorCalls::Method& method : message.methods()) {
    COHORT_RETURN_IF_ERROR(caller->CheckMethod(method));
    caller->methods.push_back({.name = method.name(),
                               .group = method.group(),
                               .lane = lanes_.Find(method.group()),
                               .note = NoteOf(method)});
  }
  COHORT_RETURN_IF_ERROR(caller->CheckCalls(message));
  COHORT_RETURN_IF_ERROR(Admit(*caller, message));
  for (const v1::ActorCalls::Call* call : AddCalls(caller, message)) {
    Relay(*caller, *call);
  }
  // What was answered again, or was cancelled before it began.
  if (caller->sent_before > 0 ||
      message.cancels_size() + message.withdrawals_size() > 0) {
    WriteHeld(*caller);
  }
  if (message.has_open()) AnswerOpen(*caller);
  return absl::OkStatus();
}

absl::Status ActorService::Core::Open(const std::shared_ptr<CallStream>& caller,
                                      const v1::ActorCalls::Open& open) {
  if (open.job_id() != options_.job_id ||
      open.incarnation() != options_.incarnation) {
    return SetReason(
        absl::NotFoundError(absl::StrCat(
            "not here: the actor that was meant; this process has incarnation ",
            options_.incarnation, " of ",
            open.job_id() == options_.job_id ? "it" : "another")),
        kReasonWrongActor);
  }
  caller->sent_before = open.sent();
  if (open.wants_ring()) MakeRing(caller);
  std::shared_ptr<CallStream> before;
  {
    MutexLock lock(mutex_);
    if (is_stopped_) return absl::UnavailableError("the actor is stopping");
    auto session = callers_.Open(open.caller(), open.sent());
    before = std::exchange(session->stream, caller);
    if (before != nullptr) DropWaiting(*before);
    caller->session = std::move(session);
    caller->is_writing = true;  // nothing goes before the answer
  }
  if (before != nullptr) {
    before->writer->Close(
        absl::AbortedError("the caller has opened another stream"));
  }
  caller->is_open = true;
  return absl::OkStatus();
}

// The last of what is done with that message: from then on the ring may be
// read.
void ActorService::Core::AnswerOpen(CallStream& caller) {
  v1::ActorResults answer;
  if (caller.ring != nullptr) {
    *answer.mutable_ring() = OfferOf(caller.ring->place());
  }
  // An error: the stream is over, and OnClosed comes.
  caller.writer->Write(answer).IgnoreError();
  WriteHeld(caller, /*was_writing=*/true);
}

std::optional<uint32_t> ActorService::Core::NoteOf(
    const v1::ActorCalls::Method& method) {
  if (absl::StartsWith(method.group(), kOwnGroups)) return std::nullopt;
  MutexLock lock(mutex_);
  return notes_.AddMethod(method.name());
}

// Relays are the first, so that records of those who call few actors are small.
size_t ActorService::Core::NumberOf(const Method& method, uint32_t actor) {
  if (IsForRelay(method.name)) return 0;
  return lanes_.Of(method, actor).number + 1;
}

bool ActorService::Core::HasBegun(const CallStream& caller,
                                  const v1::ActorCalls::Call& call) {
  if (call.sequence() > caller.sent_before) return false;
  const Method& method = caller.methods[call.method()];
  return caller.session->record.HasBegun(NumberOf(method, call.actor()),
                                         call.sequence());
}

absl::Status ActorService::Core::Admit(const CallStream& caller,
                                       const v1::ActorCalls& message) {
  size_t bytes = 0;
  size_t count = 0;
  std::vector<CallerRecord::Results> taken;  // destroyed without the lock
  MutexLock lock(mutex_);
  // What its ring has yet tells nothing of the stream that came after it.
  if (caller.is_over) return absl::OkStatus();
  if (!caller.session->record.NoteTaken(message.results_taken(), taken)) {
    return Garbage(absl::StrCat("more results have come than were sent: ",
                                message.results_taken()));
  }
  for (const v1::ActorCalls::Call& call : message.calls()) {
    if (HasBegun(caller, call)) continue;
    bytes += call.arguments().size();
    ++count;
  }
  if (caller.waiting_calls + caller.session->relayed.size() + count <=
          kWindowCalls &&
      caller.waiting_bytes + bytes <= kWindowBytes + kArgumentsBytesMax) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "too many calls without a result: ", caller.waiting_calls + count, " of ",
      caller.waiting_bytes + bytes, " bytes"));
}

std::vector<const v1::ActorCalls::Call*> ActorService::Core::AddCalls(
    const std::shared_ptr<CallStream>& caller, const v1::ActorCalls& message) {
  std::vector<const v1::ActorCalls::Call*> relayed;
  std::vector<Lane*> touched;
  Claims claims;
  const int64_t now = notes_.Now();
  {
    MutexLock lock(mutex_);
    if (caller->is_over || is_stopped_) return {};
    CallerSession& session = *caller->session;
    for (const v1::ActorCalls::Call& call : message.calls()) {
      const Method& method = caller->methods[call.method()];
      if (WasAnswered(*caller, call.sequence())) continue;
      if (HasBegun(*caller, call)) {
        AnswerAgain(*caller, call.sequence());
        continue;
      }
      if (IsForRelay(method.name)) {
        session.record.NoteBegun(0, call.sequence());
        session.relayed.insert(call.sequence());
        relayed.push_back(&call);
        continue;
      }
      Lane& lane = lanes_.Of(method, call.actor());
      caller->waiting[&lane].push_back({.sequence = call.sequence(),
                                        .method = &method,
                                        .actor = call.actor(),
                                        .arguments = call.arguments(),
                                        .queued_us = now});
      ++caller->waiting_calls;
      caller->waiting_bytes += call.arguments().size();
      lane.line.push_back(caller);
      if (touched.empty() || touched.back() != &lane) touched.push_back(&lane);
    }
    // It has asked for all that it asks for.
    if (caller->last_sequence > caller->sent_before) session.record.DropKept();
    for (const uint64_t sequence : message.cancels()) {
      Notice(*caller, sequence, CallNotice::kCancelled);
    }
    for (const uint64_t sequence : message.withdrawals()) {
      Notice(*caller, sequence, CallNotice::kWithdrawn);
    }
    for (Lane* const lane : touched) LaneSet::Claim(*lane, claims);
  }
  if (!touched.empty()) watch_.NoteArrival();
  StartRunners(claims);
  return relayed;
}

// It has a result of an earlier stream, also where it was cancelled before it
// began.
bool ActorService::Core::WasAnswered(CallStream& caller, uint64_t sequence) {
  if (sequence > caller.sent_before) return false;
  auto kept = caller.session->record.TakeKept(sequence);
  if (!kept.has_value()) return false;
  Hold(*std::move(kept), caller);
  return true;
}

void ActorService::Core::AnswerAgain(CallStream& caller, uint64_t sequence) {
  const CallerSession& session = *caller.session;
  const bool runs = session.relayed.contains(sequence) ||
                    FindRunning(session, sequence) != running_.end();
  if (runs) return;  // Its result comes.
  v1::ActorResults::Result forgotten;
  forgotten.set_sequence(sequence);
  forgotten.set_forgotten(true);
  Hold(std::move(forgotten), caller);
}

void ActorService::Core::Notice(CallStream& caller, uint64_t sequence,
                                CallNotice notice) {
  const bool is_cancel = notice == CallNotice::kCancelled;
  for (auto& [lane, waiting] : caller.waiting) {
    const auto at =
        std::lower_bound(waiting.begin(), waiting.end(), sequence,
                         [](const WaitingCall& call, uint64_t wanted) {
                           return call.sequence < wanted;
                         });
    if (at == waiting.end() || at->sequence != sequence) continue;
    // Its caller's window has room for another one from now on.
    --caller.waiting_calls;
    caller.waiting_bytes -= at->arguments.size();
    waiting.erase(at);
    LaneSet::DropTurn(caller, *lane);
    Hold(ResultOf(sequence, is_cancel ? CallCancelled() : CallWithdrawn()),
         caller);
    return;
  }
  // It has begun, or goes on elsewhere.
  for (const RunningCall& each : running_) {
    if (is_cancel && each.session == caller.session.get() &&
        each.sequence == sequence) {
      each.cancelled->Set();
    }
  }
}

// ---- Calls to others. ----

void ActorService::Core::Relay(const CallStream& caller,
                               const v1::ActorCalls::Call& call) {
  const std::shared_ptr<CallerSession>& session = caller.session;
  if (caller.methods[call.method()].name == kFlushMethod) {
    EndRelayed(*session, call.sequence(), std::string());
  } else if (relay_ == nullptr) {
    EndRelayed(*session, call.sequence(), NoRelay());
  } else {
    relay_(call.arguments(),
           [core = shared_from_this(), session,
            sequence = call.sequence()](absl::StatusOr<std::string> value) {
             core->EndRelayed(*session, sequence, std::move(value));
           });
  }
}

void ActorService::Core::EndRelayed(CallerSession& session, uint64_t sequence,
                                    absl::StatusOr<std::string> value) {
  std::shared_ptr<CallStream> stream;
  {
    MutexLock lock(mutex_);
    session.relayed.erase(sequence);
    stream = AddResult(ResultOf(sequence, std::move(value)), session);
  }
  if (stream != nullptr) WriteHeld(*stream);
}

// ---- Ends. ----

void ActorService::Core::OnOver(CallStream& caller, bool is_last) {
  // Destroyed without the lock.
  std::shared_ptr<CallStream> hold;
  MutexLock lock(mutex_);
  const std::shared_ptr<CallerSession> session = caller.session;
  if (session == nullptr || session->stream.get() != &caller) return;
  DropWaiting(caller);
  hold = std::move(session->stream);
  if (is_last) return callers_.Forget(*session);
  const uint64_t breakage = callers_.Break(session);
  if (breakage == 0) return;
  timers_->PostAfter(kRememberCaller, [weak = weak_from_this(), breakage] {
    if (const auto core = weak.lock()) core->ForgetUntil(breakage);
  });
}

void ActorService::Core::DropWaiting(CallStream& caller) {
  caller.is_over = true;
  // Its turns, which a method that takes long would keep here.  Whoever calls
  // this holds the caller, so that none is the last hold.
  lanes_.DropTurns(caller);
  caller.waiting.clear();
  caller.waiting_calls = 0;
  caller.waiting_bytes = 0;
  CallerRecord& record = caller.session->record;
  record.NoteStreamOver();
  for (auto& result : *caller.held->mutable_results()) {
    record.Keep(std::move(result));
  }
  caller.held->Clear();
  caller.held_bytes = 0;
}

void ActorService::Core::ForgetUntil(uint64_t breakage) {
  MutexLock lock(mutex_);
  callers_.ForgetUntil(breakage);
}

ActorServiceUsage ActorService::Core::usage() {
  ActorServiceUsage usage;
  MutexLock lock(mutex_);
  usage.running = running_.size();
  usage.callers = callers_.sessions().size();
  for (const auto& [id, session] : callers_.sessions()) {
    usage.result_bytes += session->record.bytes();
    if (session->stream == nullptr) continue;
    ++usage.streams;
    usage.waiting += session->stream->waiting_calls;
  }
  return usage;
}

void ActorService::Core::Stop() {
  std::vector<std::deque<std::shared_ptr<CallStream>>> lines;
  MutexLock lock(mutex_);
  is_stopped_ = true;
  lines = lanes_.Clear();
  const auto is_other = [](const RunningCall& call) {
    return call.thread != std::this_thread::get_id();
  };
  while (std::any_of(running_.begin(), running_.end(), is_other)) {
    ran_.Wait(mutex_);
  }
}

// ---- The service. ----

namespace {

// The Router's end of a stream.
template <typename Core>
class CallReader final : public rpc::StreamReader<v1::ActorCalls> {
 public:
  CallReader(std::shared_ptr<Core> core, std::unique_ptr<Writer> writer)
      : core_(std::move(core)),
        caller_(std::make_shared<CallStream>(std::move(writer))) {
    caller_->writer->SetOnDrained(
        [core = core_, weak = std::weak_ptr<CallStream>(caller_)] {
          if (const auto caller = weak.lock()) core->OnDrained(caller);
        });
  }
  // The Router may drop it without a word.
  ~CallReader() override { core_->OnOver(*caller_); }

  void OnMessage(const v1::ActorCalls& message) override {
    core_->OnMessage(caller_, message);
  }
  // Who sends no more waits for no results.
  void OnHalfClosed() override {
    core_->OnOver(*caller_, /*is_last=*/true);
    caller_->writer->Close(absl::OkStatus());
  }
  void OnClosed(absl::Status /*status*/) override { core_->OnOver(*caller_); }

 private:
  const std::shared_ptr<Core> core_;
  // Shared: this, the core's tables, and the call that runs.
  const std::shared_ptr<CallStream> caller_;
};

}  // namespace

ActorService::ActorService(ActorServiceOptions options,
                           std::vector<CallLane> lanes, Invoke invoke)
    : core_(std::make_shared<Core>(std::move(options), std::move(lanes),
                                   std::move(invoke))) {}

ActorService::~ActorService() { Stop(); }

void ActorService::Register(rpc::Router& router, Executor& strand) {
  core_->SetTimers(strand);
  router.HandleStream(
      rpc::kCallActor, strand,
      [core = core_](const auto&, std::unique_ptr<Writer> writer)
          -> absl::StatusOr<
              std::unique_ptr<rpc::StreamReader<v1::ActorCalls>>> {
        return std::make_unique<CallReader<Core>>(core, std::move(writer));
      });
}

ActorServiceUsage ActorService::usage() const { return core_->usage(); }

void ActorService::SetRelay(Relay relay) { core_->SetRelay(std::move(relay)); }

void ActorService::Stop() { core_->Stop(); }

}  // namespace cohort::actor

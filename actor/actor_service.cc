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

// Calls that an actor runs before others that share the process have their
// turn.
constexpr int kTurnsMax = 64;

using Writer = ResultWriter;

// A call that runs.
struct Running {
  std::thread::id thread;
  const CallerSession* session = nullptr;
  uint64_t sequence = 0;
  CancelFlag* cancelled = nullptr;
  std::optional<CallNotes::Note> note;  // none: it is not noted down
};

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

class ActorService::Core : public std::enable_shared_from_this<Core> {
 public:
  Core(ActorServiceOptions options, std::vector<CallLane> lanes, Invoke invoke)
      : options_(std::move(options)),
        invoke_(std::move(invoke)),
        notes_(options_.served, options_.clock),
        lanes_(std::move(lanes)) {}

  // Events of a caller's stream.
  void OnMessage(const std::shared_ptr<CallStream>& caller,
                 const v1::ActorCalls& message);
  void OnDrained(const std::shared_ptr<CallStream>& caller);
  // The caller may come back, or has said that it does not.
  void OnOver(CallStream& caller, bool is_last = false);

  void Stop();
  void SetRelay(Relay relay) { relay_ = std::move(relay); }
  void SetTimers(Executor& timers) { timers_ = &timers; }
  ActorServiceUsage usage();

 private:
  struct Turn {
    std::shared_ptr<CallStream> caller;
    WaitingCall call;
    int64_t ended_us = 0;  // the one before
  };
  using Claims = LaneSet::Claims;
  class GivesWay;

  absl::Status Take(const std::shared_ptr<CallStream>& caller,
                    const v1::ActorCalls& message);
  absl::Status Open(const std::shared_ptr<CallStream>& caller,
                    const v1::ActorCalls::Open& open);
  // Notes which results have come, and whether there is room.
  absl::Status Admit(const CallStream& caller, const v1::ActorCalls& message);
  std::optional<uint32_t> NoteOf(const v1::ActorCalls::Method& method);
  // In the callers' records.
  size_t NumberOf(const Method& method, uint32_t actor);
  // Whether the call has begun already, perhaps on an earlier stream.
  bool HasBegun(const CallStream& caller, const v1::ActorCalls::Call& call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool WasAnswered(CallStream& caller, uint64_t sequence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerAgain(CallStream& caller, uint64_t sequence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Answers those that are for others.
  std::vector<const v1::ActorCalls::Call*> AddCalls(
      const std::shared_ptr<CallStream>& caller, const v1::ActorCalls& message);
  void Notice(CallStream& caller, uint64_t sequence, CallNotice notice)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // What is not for the object: goes on at once.
  void Relay(const CallStream& caller, const v1::ActorCalls::Call& call);
  void EndRelayed(CallerSession& session, uint64_t sequence,
                  absl::StatusOr<std::string> value);
  // To the caller's present stream, which is to be written, or its record.
  std::shared_ptr<CallStream> AddResult(v1::ActorResults::Result&& result,
                                        CallerSession& session)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Hold(v1::ActorResults::Result&& result, CallStream& caller);

  void Run(Lane& lane);
  absl::StatusOr<std::string> RunCall(Lane& lane, const WaitingCall& call);
  // The next call to run, which runs from now on; false when none is to, and
  // the runner ends.
  bool NextTurn(Lane& lane, Turn& turn, CancelFlag& cancelled);
  std::vector<Running>::iterator FindRunning(const CallerSession& session,
                                             uint64_t sequence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<CallNotes::Note> BeginNote(const Turn& turn)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Answers the stream that is to be written.
  std::shared_ptr<CallStream> EndTurn(Turn& turn,
                                      absl::StatusOr<std::string> value);
  void WriteHeld(CallStream& caller);
  // Null: there is nothing to write, or another thread writes.
  CallerRecord::Results NextMessage(CallStream& caller, bool was_writing);

  void DropWaiting(CallStream& caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetUntil(uint64_t breakage);
  void StartRunners(const Claims& claims);

  const ActorServiceOptions options_;
  Invoke invoke_;
  ActorService::Relay relay_;  // events of streams; null: none
  Executor* timers_ = nullptr;

  Mutex mutex_;
  CallerTable callers_ ABSL_GUARDED_BY(mutex_);
  CallNotes notes_;  // its methods but Now: the mutex
  LaneSet lanes_;    // what changes of it: the mutex
  bool is_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Running> running_ ABSL_GUARDED_BY(mutex_);
  CondVar ran_;
};

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

// ---- What a caller sends: all of a message, or nothing. ----

void ActorService::Core::OnMessage(const std::shared_ptr<CallStream>& caller,
                                   const v1::ActorCalls& message) {
  const absl::Status status = Take(caller, message);
  if (status.ok()) return;
  OnOver(*caller);
  caller->writer->Close(status);
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
  std::shared_ptr<CallStream> before;
  {
    MutexLock lock(mutex_);
    if (is_stopped_) return absl::UnavailableError("the actor is stopping");
    auto session = callers_.Open(open.caller(), open.sent());
    before = std::exchange(session->stream, caller);
    if (before != nullptr) DropWaiting(*before);
    caller->session = std::move(session);
  }
  if (before != nullptr) {
    before->writer->Close(
        absl::AbortedError("the caller has opened another stream"));
  }
  caller->is_open = true;
  // The answer to `open`.  An error: the stream is over, and OnClosed comes.
  caller->writer->Write(v1::ActorResults()).IgnoreError();
  return absl::OkStatus();
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
  for (const Running& each : running_) {
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

// ---- Running. ----

void ActorService::Core::StartRunners(const Claims& claims) {
  for (Lane* const lane : claims) {
    lane->options.runner->Post(
        [core = shared_from_this(), lane] { core->Run(*lane); });
  }
}

void ActorService::Core::Run(Lane& lane) {
  Turn turn;
  const bool takes_turns = lane.options.actors > 1;
  for (int turns = 0;; ++turns) {
    // Another actor has the thread.
    if (takes_turns && turns == kTurnsMax) return StartRunners({&lane});
    CancelFlag cancelled;
    if (!NextTurn(lane, turn, cancelled)) return;
    const std::shared_ptr<CallStream> stream =
        EndTurn(turn, RunCall(lane, turn.call));
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

bool ActorService::Core::NextTurn(Lane& lane, Turn& turn,
                                  CancelFlag& cancelled) {
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
      return true;
    }
  }
  --lane.runners;
  return false;
}

std::vector<Running>::iterator ActorService::Core::FindRunning(
    const CallerSession& session, uint64_t sequence) {
  return std::find_if(
      running_.begin(), running_.end(), [&](const Running& each) {
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
void ActorService::Core::WriteHeld(CallStream& caller) {
  CallerRecord::Results results = NextMessage(caller, /*was_writing=*/false);
  while (results != nullptr) {
    const absl::Status status = caller.writer->Write(*results);
    // Else it is over already, which this does not change.
    if (!status.ok()) return caller.writer->Close(status);
    results = NextMessage(caller, /*was_writing=*/true);
  }
}

CallerRecord::Results ActorService::Core::NextMessage(CallStream& caller,
                                                      bool was_writing) {
  MutexLock lock(mutex_);
  if (was_writing) caller.is_writing = false;
  if (caller.is_over || caller.is_writing || caller.held->results().empty() ||
      caller.writer->QueuedBytes() > 0) {
    return nullptr;
  }
  caller.is_writing = true;
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

// ---- Ends. ----

void ActorService::Core::Stop() {
  std::vector<std::deque<std::shared_ptr<CallStream>>> lines;
  MutexLock lock(mutex_);
  is_stopped_ = true;
  lines = lanes_.Clear();
  const auto is_other = [](const Running& call) {
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

#include "actor/actor_service.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "actor/call_error.h"
#include "actor/call_failure.h"
#include "actor/call_limits.h"
#include "actor/group_tree.h"
#include "actor/wait_observer.h"
#include "cohort/v1/actor.pb.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "rpc/methods.h"
#include "rpc/stream.h"

namespace cohort::actor {
namespace {

using Writer = rpc::StreamWriter<v1::ActorResults>;

struct Caller;

// A lane at work.
struct Lane {
  CallLane options;
  // Whose call is next, once for each call that waits or waited.
  std::deque<std::shared_ptr<Caller>> line;
  int runners = 0;    // that were posted and have not ended
  int given_way = 0;  // of these, in a call that waits for a future
};

struct Method {
  std::string name;
  std::string group;
  Lane* lane = nullptr;  // null: the actor has no such group
};

struct WaitingCall {
  uint64_t sequence = 0;
  const Method* method = nullptr;  // of its caller's
  std::string arguments;
  bool is_cancelled = false;
};

// One stream.
struct Caller {
  explicit Caller(std::unique_ptr<Writer> w) : writer(std::move(w)) {}

  const std::unique_ptr<Writer> writer;  // thread-safe

  // Its stream's events.
  bool is_open = false;
  uint64_t last_sequence = 0;
  // By number; they stay where they are.
  std::deque<Method> methods;

  // The core's mutex.
  std::string id;
  bool is_over = false;  // nothing of it begins any more
  absl::flat_hash_map<const Lane*, std::deque<WaitingCall>> waiting;
  size_t waiting_calls = 0;
  size_t waiting_bytes = 0;
  size_t relayed = 0;  // that have no result yet
  v1::ActorResults held;
  size_t held_bytes = 0;
  // Turns that came while too many results were held.
  std::vector<Lane*> missed_turns;
};

absl::Status Garbage(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("calls to an actor cannot be sent like this: ", what));
}

absl::Status NoGroup(const std::string& group) {
  return SetReason(
      absl::UnimplementedError(absl::StrCat(
          "the actor has no concurrency group \"", group,
          "\" (ActorOptions::concurrency_groups names those that it has)")),
      kReasonNoMethod);
}

absl::Status TooManyWait(int waiting) {
  return SetReason(
      absl::ResourceExhaustedError(absl::StrCat(
          waiting,
          " tasks of this process wait for others already, which is "
          "all that it can hold (let tasks start fewer tasks that "
          "wait in turn)")),
      kReasonQueueFull);
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

void SetResult(uint64_t sequence, absl::StatusOr<std::string> value,
               v1::ActorResults::Result& result) {
  result.set_sequence(sequence);
  if (value.ok() && value->size() > kResultBytesMax) {
    value = TooLarge("the result is", value->size(), kResultBytesMax);
  }
  if (value.ok()) {
    result.set_value(*std::move(value));
  } else {
    *result.mutable_failure() = ToCallFailure(value.status());
  }
}

}  // namespace

class ActorService::Core : public std::enable_shared_from_this<Core> {
 public:
  Core(ActorServiceOptions options, std::vector<CallLane> lanes, Invoke invoke)
      : options_(std::move(options)), invoke_(std::move(invoke)) {
    for (CallLane& lane : lanes) {
      lanes_.emplace_back().options = std::move(lane);
    }
  }

  // Events of a caller's stream.
  void OnOpened(const std::shared_ptr<Caller>& caller);
  void OnMessage(const std::shared_ptr<Caller>& caller,
                 const v1::ActorCalls& message);
  void OnDrained(const std::shared_ptr<Caller>& caller);
  void OnOver(Caller& caller);

  void Stop();
  void SetRelay(Relay relay) { relay_ = std::move(relay); }

 private:
  struct Turn {
    std::shared_ptr<Caller> caller;
    WaitingCall call;
  };
  // Runners to be posted.
  using Claims = std::vector<Lane*>;
  class GivesWay;

  absl::Status Take(const std::shared_ptr<Caller>& caller,
                    const v1::ActorCalls& message);
  absl::Status Open(const std::shared_ptr<Caller>& caller,
                    const v1::ActorCalls::Open& open);
  absl::Status CheckRoom(const Caller& caller, const v1::ActorCalls& message);
  Lane* LaneOf(const std::string& group);
  // False: the stream is over.
  bool AddCalls(const std::shared_ptr<Caller>& caller,
                const v1::ActorCalls& message);
  static void Cancel(Caller& caller, uint64_t sequence);

  // What is not for the object: goes on at once.
  void Relay(const std::shared_ptr<Caller>& caller,
             const v1::ActorCalls& message);
  void EndRelayed(Caller& caller, uint64_t sequence,
                  absl::StatusOr<std::string> value);
  void AddResult(uint64_t sequence, absl::StatusOr<std::string> value,
                 Caller& caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void Run(Lane& lane);
  absl::StatusOr<std::string> RunCall(Lane& lane, const WaitingCall& call);
  // The next call to run, which runs from now on; false when none is to, and
  // the runner ends.
  bool NextTurn(Lane& lane, Turn& turn);
  void EndTurn(const Turn& turn, absl::StatusOr<std::string> value);
  void WriteHeld(Caller& caller);

  void DropWaiting(Caller& caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasRoom(const Lane& lane) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // As many runners as the lane has work and room for.
  void ClaimRunners(Lane& lane, Claims& claims)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartRunners(const Claims& claims);

  const ActorServiceOptions options_;
  Invoke invoke_;
  ActorService::Relay relay_;  // events of streams; null: none

  Mutex mutex_;
  // They stay where they are; `options` is set in the constructor.
  std::deque<Lane> lanes_;
  absl::flat_hash_map<std::string, std::shared_ptr<Caller>> by_id_
      ABSL_GUARDED_BY(mutex_);
  bool is_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  // The threads of the calls that run.
  std::vector<std::thread::id> running_ ABSL_GUARDED_BY(mutex_);
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
      core_.ClaimRunners(lane_, claims);
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

void ActorService::Core::OnMessage(const std::shared_ptr<Caller>& caller,
                                   const v1::ActorCalls& message) {
  const absl::Status status = Take(caller, message);
  if (status.ok()) return;
  OnOver(*caller);
  caller->writer->Close(status);
}

absl::Status ActorService::Core::Take(const std::shared_ptr<Caller>& caller,
                                      const v1::ActorCalls& message) {
  if (message.has_open() == caller->is_open) {
    return Garbage("`open` is in the first message, and in no other");
  }
  if (message.has_open()) {
    COHORT_RETURN_IF_ERROR(Open(caller, message.open()));
  }
  for (const v1::ActorCalls::Method& method : message.methods()) {
    if (method.number() != caller->methods.size() ||
        caller->methods.size() >= kMethodsMax ||
        method.name().size() + method.group().size() > kMethodNameBytesMax) {
      return Garbage(absl::StrCat("method ", method.number(), " after ",
                                  caller->methods.size(), " of at most ",
                                  kMethodsMax));
    }
    caller->methods.push_back({.name = method.name(),
                               .group = method.group(),
                               .lane = LaneOf(method.group())});
  }
  for (const v1::ActorCalls::Call& call : message.calls()) {
    if (call.method() >= caller->methods.size()) {
      return Garbage(absl::StrCat("method ", call.method(), " has no name"));
    }
    if (call.sequence() != caller->last_sequence + 1) {
      return Garbage(absl::StrCat("call ", call.sequence(), " after ",
                                  caller->last_sequence));
    }
    if (call.arguments().size() > kArgumentsBytesMax) {
      return TooLarge("arguments are", call.arguments().size(),
                      kArgumentsBytesMax);
    }
    ++caller->last_sequence;
  }
  COHORT_RETURN_IF_ERROR(CheckRoom(*caller, message));
  if (AddCalls(caller, message)) Relay(caller, message);
  return absl::OkStatus();
}

Lane* ActorService::Core::LaneOf(const std::string& group) {
  for (Lane& lane : lanes_) {
    if (lane.options.group == group) return &lane;
  }
  return nullptr;
}

absl::Status ActorService::Core::Open(const std::shared_ptr<Caller>& caller,
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
  std::shared_ptr<Caller> before;
  {
    MutexLock lock(mutex_);
    if (is_stopped_) return absl::UnavailableError("the actor is stopping");
    caller->id = open.caller();
    if (!caller->id.empty()) {
      before = std::exchange(by_id_[caller->id], caller);
    }
    if (before != nullptr) DropWaiting(*before);
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

absl::Status ActorService::Core::CheckRoom(const Caller& caller,
                                           const v1::ActorCalls& message) {
  size_t bytes = 0;
  for (const v1::ActorCalls::Call& call : message.calls()) {
    bytes += call.arguments().size();
  }
  const auto count = static_cast<size_t>(message.calls_size());
  MutexLock lock(mutex_);
  if (caller.waiting_calls + caller.relayed + count <= kWindowCalls &&
      caller.waiting_bytes + bytes <= kWindowBytes + kArgumentsBytesMax) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "too many calls without a result: ", caller.waiting_calls + count, " of ",
      caller.waiting_bytes + bytes, " bytes"));
}

bool ActorService::Core::AddCalls(const std::shared_ptr<Caller>& caller,
                                  const v1::ActorCalls& message) {
  Claims claims;
  {
    MutexLock lock(mutex_);
    if (caller->is_over || is_stopped_) return false;
    for (const v1::ActorCalls::Call& call : message.calls()) {
      const Method& method = caller->methods[call.method()];
      if (IsForRelay(method.name)) {
        ++caller->relayed;
        continue;
      }
      Lane& lane = method.lane == nullptr ? lanes_.front() : *method.lane;
      caller->waiting[&lane].push_back({.sequence = call.sequence(),
                                        .method = &method,
                                        .arguments = call.arguments()});
      ++caller->waiting_calls;
      caller->waiting_bytes += call.arguments().size();
      lane.line.push_back(caller);
    }
    for (const uint64_t sequence : message.cancels()) Cancel(*caller, sequence);
    for (Lane& lane : lanes_) ClaimRunners(lane, claims);
  }
  StartRunners(claims);
  return true;
}

void ActorService::Core::Cancel(Caller& caller, uint64_t sequence) {
  for (auto& [lane, waiting] : caller.waiting) {
    const auto at =
        std::lower_bound(waiting.begin(), waiting.end(), sequence,
                         [](const WaitingCall& call, uint64_t wanted) {
                           return call.sequence < wanted;
                         });
    // Else it has begun, is of another lane, or goes on elsewhere.
    if (at != waiting.end() && at->sequence == sequence) {
      at->is_cancelled = true;
    }
  }
}

// ---- Calls to others. ----

void ActorService::Core::Relay(const std::shared_ptr<Caller>& caller,
                               const v1::ActorCalls& message) {
  for (const v1::ActorCalls::Call& call : message.calls()) {
    const std::string& method = caller->methods[call.method()].name;
    if (!IsForRelay(method)) continue;
    if (method == kFlushMethod) {
      EndRelayed(*caller, call.sequence(), std::string());
    } else if (relay_ == nullptr) {
      EndRelayed(*caller, call.sequence(), NoRelay());
    } else {
      relay_(call.arguments(),
             [core = shared_from_this(), caller,
              sequence = call.sequence()](absl::StatusOr<std::string> value) {
               core->EndRelayed(*caller, sequence, std::move(value));
             });
    }
  }
}

void ActorService::Core::EndRelayed(Caller& caller, uint64_t sequence,
                                    absl::StatusOr<std::string> value) {
  {
    MutexLock lock(mutex_);
    --caller.relayed;
    AddResult(sequence, std::move(value), caller);
  }
  WriteHeld(caller);
}

// ---- Running. ----

bool ActorService::Core::HasRoom(const Lane& lane) const {
  return lane.runners - lane.given_way < lane.options.max_concurrency;
}

void ActorService::Core::ClaimRunners(Lane& lane, Claims& claims) {
  size_t free = lane.line.size();
  for (; free > 0 && HasRoom(lane); --free) {
    ++lane.runners;
    claims.push_back(&lane);
  }
}

void ActorService::Core::StartRunners(const Claims& claims) {
  for (Lane* const lane : claims) {
    lane->options.runner->Post(
        [core = shared_from_this(), lane] { core->Run(*lane); });
  }
}

void ActorService::Core::Run(Lane& lane) {
  Turn turn;
  while (NextTurn(lane, turn)) {
    EndTurn(turn, RunCall(lane, turn.call));
    WriteHeld(*turn.caller);
  }
}

absl::StatusOr<std::string> ActorService::Core::RunCall(
    Lane& lane, const WaitingCall& call) {
  if (call.is_cancelled) return CallCancelled();
  if (call.method->lane == nullptr) return NoGroup(call.method->group);
  if (!lane.options.gives_way) {
    return invoke_(call.method->name, call.arguments);
  }
  GivesWay gives_way(*this, lane);
  const WaitObserver::Here here(gives_way);
  return invoke_(call.method->name, call.arguments);
}

bool ActorService::Core::NextTurn(Lane& lane, Turn& turn) {
  // Destroyed without the lock: the last hold on a stream.
  std::shared_ptr<Caller> last = std::move(turn.caller);
  std::vector<std::shared_ptr<Caller>> over;
  MutexLock lock(mutex_);
  // One that gave way for this runner may run again, and be one too many.
  const bool is_surplus =
      lane.runners - lane.given_way > lane.options.max_concurrency;
  while (!is_surplus && !lane.line.empty() && !is_stopped_) {
    turn.caller = std::move(lane.line.front());
    lane.line.pop_front();
    Caller& caller = *turn.caller;
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
      running_.push_back(std::this_thread::get_id());
      return true;
    }
  }
  --lane.runners;
  return false;
}

void ActorService::Core::EndTurn(const Turn& turn,
                                 absl::StatusOr<std::string> value) {
  MutexLock lock(mutex_);
  running_.erase(
      std::find(running_.begin(), running_.end(), std::this_thread::get_id()));
  if (is_stopped_) ran_.SignalAll();
  AddResult(turn.call.sequence, std::move(value), *turn.caller);
}

void ActorService::Core::AddResult(uint64_t sequence,
                                   absl::StatusOr<std::string> value,
                                   Caller& caller) {
  if (caller.is_over) return;
  v1::ActorResults::Result& result = *caller.held.add_results();
  SetResult(sequence, std::move(value), result);
  // Those without a value are bounded, too.
  caller.held_bytes += sizeof(result) + result.value().size() +
                       result.failure().message().size();
}

// Writes what is held unless something waits to be written already: then all
// of it goes in one message when that has been taken.
void ActorService::Core::WriteHeld(Caller& caller) {
  v1::ActorResults results;
  {
    MutexLock lock(mutex_);
    if (caller.held.results().empty()) return;
    if (caller.writer->QueuedBytes() > 0) return;
    caller.held.Swap(&results);
    caller.held_bytes = 0;
  }
  const absl::Status status = caller.writer->Write(results);
  // Else it is over already, which this does not change.
  if (!status.ok()) caller.writer->Close(status);
}

void ActorService::Core::OnDrained(const std::shared_ptr<Caller>& caller) {
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
      ClaimRunners(*lane, claims);
    }
    caller->missed_turns.clear();
  }
  StartRunners(claims);
}

// ---- Ends. ----

void ActorService::Core::OnOver(Caller& caller) {
  // Destroyed without the lock.
  std::shared_ptr<Caller> hold;
  MutexLock lock(mutex_);
  DropWaiting(caller);
  const auto found = by_id_.find(caller.id);
  if (found == by_id_.end() || found->second.get() != &caller) return;
  hold = std::move(found->second);
  by_id_.erase(found);
}

void ActorService::Core::DropWaiting(Caller& caller) {
  caller.is_over = true;
  // Its turns, which a method that takes long would keep here.  Whoever calls
  // this holds the caller, so that none is the last hold.
  for (Lane& lane : lanes_) {
    std::erase_if(lane.line,
                  [&](const auto& each) { return each.get() == &caller; });
  }
  caller.waiting.clear();
  caller.waiting_calls = 0;
  caller.waiting_bytes = 0;
  caller.held.Clear();
  caller.held_bytes = 0;
}

void ActorService::Core::Stop() {
  std::vector<std::deque<std::shared_ptr<Caller>>> lines;
  MutexLock lock(mutex_);
  is_stopped_ = true;
  for (Lane& lane : lanes_) lines.push_back(std::move(lane.line));
  for (Lane& lane : lanes_) lane.line.clear();
  const auto is_other = [](std::thread::id id) {
    return id != std::this_thread::get_id();
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
        caller_(std::make_shared<Caller>(std::move(writer))) {
    caller_->writer->SetOnDrained(
        [core = core_, weak = std::weak_ptr<Caller>(caller_)] {
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
    core_->OnOver(*caller_);
    caller_->writer->Close(absl::OkStatus());
  }
  void OnClosed(absl::Status /*status*/) override { core_->OnOver(*caller_); }

 private:
  const std::shared_ptr<Core> core_;
  // Shared: this, the core's tables, and the call that runs.
  const std::shared_ptr<Caller> caller_;
};

}  // namespace

ActorService::ActorService(ActorServiceOptions options,
                           std::vector<CallLane> lanes, Invoke invoke)
    : core_(std::make_shared<Core>(std::move(options), std::move(lanes),
                                   std::move(invoke))) {}

ActorService::~ActorService() { Stop(); }

void ActorService::Register(rpc::Router& router, Executor& strand) {
  router.HandleStream(
      rpc::kCallActor, rpc::Access::kCluster, strand,
      [core = core_](const auto&, std::unique_ptr<Writer> writer)
          -> absl::StatusOr<
              std::unique_ptr<rpc::StreamReader<v1::ActorCalls>>> {
        return std::make_unique<CallReader<Core>>(core, std::move(writer));
      });
}

void ActorService::SetRelay(Relay relay) { core_->SetRelay(std::move(relay)); }

void ActorService::Stop() { core_->Stop(); }

}  // namespace cohort::actor

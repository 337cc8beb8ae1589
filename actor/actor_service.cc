#include "actor/actor_service.h"

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
#include "cohort/v1/actor.pb.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "rpc/methods.h"
#include "rpc/stream.h"

namespace cohort::actor {
namespace {

using Writer = rpc::StreamWriter<v1::ActorResults>;

struct WaitingCall {
  uint64_t sequence = 0;
  const std::string* method = nullptr;  // of its caller's
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
  // By number; names stay where they are.
  std::deque<std::string> methods;

  // The core's mutex.
  std::string id;
  bool is_over = false;  // nothing of it begins any more
  std::deque<WaitingCall> waiting;
  size_t waiting_bytes = 0;
  v1::ActorResults held;
  size_t held_bytes = 0;
  // Turns that came while too many results were held.
  size_t missed_turns = 0;
};

absl::Status Garbage(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("calls to an actor cannot be sent like this: ", what));
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
  Core(ActorServiceOptions options, Executor& runner, Invoke invoke)
      : options_(std::move(options)),
        runner_(runner),
        invoke_(std::move(invoke)) {}

  // Events of a caller's stream.
  void OnOpened(const std::shared_ptr<Caller>& caller);
  void OnMessage(const std::shared_ptr<Caller>& caller,
                 const v1::ActorCalls& message);
  void OnDrained(const std::shared_ptr<Caller>& caller);
  void OnOver(Caller& caller);

  void Stop();

 private:
  struct Turn {
    std::shared_ptr<Caller> caller;
    WaitingCall call;
  };

  absl::Status Take(const std::shared_ptr<Caller>& caller,
                    const v1::ActorCalls& message);
  absl::Status Open(const std::shared_ptr<Caller>& caller,
                    const v1::ActorCalls::Open& open);
  absl::Status CheckRoom(const Caller& caller, const v1::ActorCalls& message);
  // Whether the runner is to be started for them.
  bool AddCalls(const std::shared_ptr<Caller>& caller,
                const v1::ActorCalls& message);

  void Run();
  // The next call to run, which runs from now on; none when none waits.
  bool NextTurn(Turn& turn);
  void EndTurn(const Turn& turn, absl::StatusOr<std::string> value);
  void WriteHeld(Caller& caller);

  void DropWaiting(Caller& caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the runner is to be started.
  bool ClaimRunner() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartRunner();

  const ActorServiceOptions options_;
  Executor& runner_;
  Invoke invoke_;  // who runs: one at a time

  Mutex mutex_;
  // Whose call is next, once for each call that waits or waited.
  std::deque<std::shared_ptr<Caller>> line_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::shared_ptr<Caller>> by_id_
      ABSL_GUARDED_BY(mutex_);
  bool has_runner_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  // The thread of the call that runs.
  std::thread::id running_ ABSL_GUARDED_BY(mutex_);
  CondVar ran_;
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
        method.name().size() > kMethodNameBytesMax) {
      return Garbage(absl::StrCat("method ", method.number(), " after ",
                                  caller->methods.size(), " of at most ",
                                  kMethodsMax));
    }
    caller->methods.push_back(method.name());
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
  if (AddCalls(caller, message)) StartRunner();
  return absl::OkStatus();
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
  if (caller.waiting.size() + count <= kWindowCalls &&
      caller.waiting_bytes + bytes <= kWindowBytes + kArgumentsBytesMax) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "too many calls without a result: ", caller.waiting.size() + count,
      " of ", caller.waiting_bytes + bytes, " bytes"));
}

bool ActorService::Core::AddCalls(const std::shared_ptr<Caller>& caller,
                                  const v1::ActorCalls& message) {
  MutexLock lock(mutex_);
  if (caller->is_over || is_stopped_) return false;
  for (const v1::ActorCalls::Call& call : message.calls()) {
    caller->waiting.push_back({.sequence = call.sequence(),
                               .method = &caller->methods[call.method()],
                               .arguments = call.arguments()});
    caller->waiting_bytes += call.arguments().size();
    line_.push_back(caller);
  }
  for (const uint64_t sequence : message.cancels()) {
    if (caller->waiting.empty()) break;
    // Of one that has begun: below the first, so beyond the last.
    const uint64_t index = sequence - caller->waiting.front().sequence;
    if (index < caller->waiting.size()) {
      caller->waiting[index].is_cancelled = true;
    }
  }
  return ClaimRunner();
}

// ---- Running. ----

bool ActorService::Core::ClaimRunner() {
  return !line_.empty() && !std::exchange(has_runner_, true);
}

void ActorService::Core::StartRunner() {
  runner_.Post([core = shared_from_this()] { core->Run(); });
}

void ActorService::Core::Run() {
  Turn turn;
  while (NextTurn(turn)) {
    EndTurn(turn, turn.call.is_cancelled
                      ? absl::StatusOr<std::string>(CallCancelled())
                      : invoke_(*turn.call.method, turn.call.arguments));
    WriteHeld(*turn.caller);
  }
}

bool ActorService::Core::NextTurn(Turn& turn) {
  // Destroyed without the lock: the last hold on a stream.
  std::shared_ptr<Caller> last = std::move(turn.caller);
  std::vector<std::shared_ptr<Caller>> over;
  MutexLock lock(mutex_);
  while (!line_.empty() && !is_stopped_) {
    turn.caller = std::move(line_.front());
    line_.pop_front();
    Caller& caller = *turn.caller;
    if (caller.waiting.empty()) {
      over.push_back(std::move(turn.caller));
    } else if (caller.held_bytes > kResultsHeldBytes) {
      ++caller.missed_turns;
      over.push_back(std::move(turn.caller));
    } else {
      turn.call = std::move(caller.waiting.front());
      caller.waiting.pop_front();
      caller.waiting_bytes -= turn.call.arguments.size();
      running_ = std::this_thread::get_id();
      return true;
    }
  }
  has_runner_ = false;
  return false;
}

void ActorService::Core::EndTurn(const Turn& turn,
                                 absl::StatusOr<std::string> value) {
  MutexLock lock(mutex_);
  running_ = std::thread::id();
  if (is_stopped_) ran_.SignalAll();
  Caller& caller = *turn.caller;
  if (caller.is_over) return;
  v1::ActorResults::Result& result = *caller.held.add_results();
  SetResult(turn.call.sequence, std::move(value), result);
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
  bool start = false;
  {
    MutexLock lock(mutex_);
    if (caller->is_over || caller->held_bytes > kResultsHeldBytes) return;
    for (; caller->missed_turns > 0; --caller->missed_turns) {
      line_.push_back(caller);
    }
    start = !is_stopped_ && ClaimRunner();
  }
  if (start) StartRunner();
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
  std::erase_if(line_, [&](const auto& each) { return each.get() == &caller; });
  caller.waiting.clear();
  caller.waiting_bytes = 0;
  caller.held.Clear();
  caller.held_bytes = 0;
}

void ActorService::Core::Stop() {
  std::deque<std::shared_ptr<Caller>> line;
  MutexLock lock(mutex_);
  is_stopped_ = true;
  line.swap(line_);
  while (running_ != std::thread::id() &&
         running_ != std::this_thread::get_id()) {
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

ActorService::ActorService(ActorServiceOptions options, Executor& runner,
                           Invoke invoke)
    : core_(std::make_shared<Core>(std::move(options), runner,
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

void ActorService::Stop() { core_->Stop(); }

}  // namespace cohort::actor

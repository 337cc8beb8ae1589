#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "actor/actor_service.h"
#include "actor/call_notes.h"
#include "actor/call_stream.h"
#include "actor/caller_record.h"
#include "actor/caller_table.h"
#include "actor/is_cancelled.h"
#include "actor/lane_set.h"
#include "actor/ring_watch.h"
#include "cohort/v1/actor.pb.h"
#include "common/executor.h"
#include "common/mutex.h"

namespace cohort::actor {

// A call that runs.
struct RunningCall {
  std::thread::id thread;
  const CallerSession* session = nullptr;
  uint64_t sequence = 0;
  CancelFlag* cancelled = nullptr;
  std::optional<CallNotes::Note> note;  // none: it is not noted down
};

class ActorService::Core : public std::enable_shared_from_this<Core>,
                           private RingWatch::Owner {
 public:
  Core(ActorServiceOptions options, std::vector<CallLane> lanes, Invoke invoke)
      : options_(std::move(options)),
        invoke_(std::move(invoke)),
        notes_(options_.served, options_.clock),
        watch_(options_.spinner, *this),
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
    bool is_last = false;  // none waits behind it
  };
  enum class Next { kCall, kNothing, kEnd };
  using Claims = LaneSet::Claims;
  class GivesWay;

  void Handle(const std::shared_ptr<CallStream>& caller,
              const v1::ActorCalls& message);
  void Refuse(CallStream& caller, const absl::Status& why);
  // RingWatch::Owner.
  void TakeFromRing(const std::shared_ptr<CallStream>& caller) override;
  void Kick(CallStream& caller) override;
  void MakeRing(const std::shared_ptr<CallStream>& caller);
  // The caller has opened its ring by now, or does not.
  void SettleRing(CallStream& caller);
  absl::Status Take(const std::shared_ptr<CallStream>& caller,
                    const v1::ActorCalls& message);
  absl::Status Open(const std::shared_ptr<CallStream>& caller,
                    const v1::ActorCalls::Open& open);
  void AnswerOpen(CallStream& caller);
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
  // The next call to run, which runs from now on.  kNothing: none waits, and
  // the runner stays.  kEnd: it ends.
  Next NextTurn(Lane& lane, Turn& turn, CancelFlag& cancelled, bool stays);
  std::vector<RunningCall>::iterator FindRunning(const CallerSession& session,
                                                 uint64_t sequence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<CallNotes::Note> BeginNote(const Turn& turn)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Answers the stream that is to be written.
  std::shared_ptr<CallStream> EndTurn(Turn& turn,
                                      absl::StatusOr<std::string> value);
  void WriteHeld(CallStream& caller, bool was_writing = false);
  // By the ring where somebody looks at it, unless it `is_kick`.
  absl::Status Write(CallStream& caller, v1::ActorResults& results,
                     bool is_kick);
  // Null: there is nothing to write, or another thread writes.
  CallerRecord::Results NextMessage(CallStream& caller, bool was_writing,
                                    bool& is_kick);

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
  RingWatch watch_;
  LaneSet lanes_;  // what changes of it: the mutex
  bool is_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<RunningCall> running_ ABSL_GUARDED_BY(mutex_);
  CondVar ran_;
};

}  // namespace cohort::actor

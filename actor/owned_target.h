#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "actor/call_channel.h"
#include "actor/call_target.h"
#include "actor/inline_executor.h"
#include "common/mutex.h"
#include "common/random.h"
#include "common/real_clock.h"
#include "common/thread_pool.h"
#include "shm/spinner.h"

// The ways of a driver to its actors, which may outlive its Runtime in handles.
namespace cohort::actor {

// What calls need, also those that are being made while their Runtime goes.
struct Machinery {
  MachineClock clock;
  SystemRandom random;
  shm::MachineSpinner spinner;
  ThreadPool events{1};  // of the session; timers of calls
  InlineExecutor calls{events};
};

// A channel and what it stands on.
struct Line {
  std::shared_ptr<Machinery> machinery;  // shared: with all others
  CallChannel channel;
};

// A handle's hold on a channel, until its Runtime lets it go.  Thread-safe.
class OwnedTarget final : public CallTarget {
 public:
  OwnedTarget(std::shared_ptr<Line> line, ActorRef ref);
  // Of an actor that could not be created.
  explicit OwnedTarget(absl::Status why);

  uint64_t Call(CalledMethod method, std::string arguments, Done done) override;
  void Cancel(uint64_t call) override;
  void Tell(uint64_t call, CallNotice notice) override;
  void Look(uint64_t call, absl::FunctionRef<bool()> finished) override;
  absl::StatusOr<ActorRef> Ref() const override;
  std::string WaitReason(uint64_t call) const override;

  // Null once it was dropped.
  std::shared_ptr<Line> line() const;

  // All calls end, and later ones, as `why`.
  void Drop(const absl::Status& why);

 private:
  absl::Status dropped() const;

  const ActorRef ref_;

  mutable Mutex mutex_;
  // Shared: this and calls that are being made.
  std::shared_ptr<Line> line_ ABSL_GUARDED_BY(mutex_);
  absl::Status dropped_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::actor

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "actor/actor_finder.h"
#include "actor/call_channel.h"
#include "actor/driver_session.h"
#include "common/clock.h"
#include "common/executor.h"
#include "common/mutex.h"
#include "common/random.h"
#include "rpc/channel.h"
#include "shm/spinner.h"

namespace cohort::actor {

// The ways to other actors of a process that is an actor, or runs tasks: to
// those to which it was given handles.  The head tells it where they stand,
// since it shows their secrets; nothing of this is there before the first
// handle comes.
//
// PA-1: a handle's calls go to the actor over all its incarnations, or end with
//       why not, as those of a driver do.
// PA-2: channels are bounded: beyond `channels_max` actors whose handles live
//       a further one's calls end as RESOURCE_EXHAUSTED.
// PA-3: a handle whose secret is wrong ends its own calls, and no others.
//
// Thread-safe.
class PeerActors final : public ActorFinder {
 public:
  struct Options {
    size_t channels_max = 1024;
    shm::Spinner* spinner = nullptr;  // CallChannelOptions::spinner
  };
  // Makes the way to the head, or says why there is none.
  using ConnectHead =
      std::function<absl::StatusOr<std::unique_ptr<rpc::Channel>>()>;

  // `connect`, `calls`, `clock`, `random`: as CallChannel's, outlive it.
  // `session` runs one task at a time, and stops before this is destroyed.
  PeerActors(Options options, ConnectHead connect_head, ActorConnect connect,
             Executor& session, Executor& calls, const Clock& clock,
             Random& random);
  ~PeerActors() override;

  std::shared_ptr<CallTarget> TargetOf(const ActorRef& ref) override;

  // Of actors that are called, for tests.
  size_t channels() const;

 private:
  class Peer;
  // A handle with a wrong secret is none of those with the right one.
  using Key = std::tuple<JobId, std::string, uint32_t>;

  absl::Status OpenSession() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetUnused() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnStanding(const v1::ActorStanding& told);
  void OnOver(const absl::Status& why);

  const Options options_;
  const ConnectHead connect_head_;
  // Shared: with the channels.
  const std::shared_ptr<ActorConnect> connect_;
  Executor& session_executor_;
  Executor& calls_;
  const Clock& clock_;
  Random& random_;

  mutable Mutex mutex_;
  // Shared: their handles.
  std::map<Key, std::shared_ptr<Peer>> peers_ ABSL_GUARDED_BY(mutex_);
  // Beyond as many those that nobody holds are looked for.
  size_t look_at_ ABSL_GUARDED_BY(mutex_) = 16;
  absl::Status over_ ABSL_GUARDED_BY(mutex_);
  // From the first handle on; the session goes before its channel.
  std::unique_ptr<rpc::Channel> head_ ABSL_GUARDED_BY(mutex_);
  SystemRandom session_random_;
  std::optional<DriverSession> session_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::actor

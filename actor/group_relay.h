#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"

#include "actor/call_channel.h"
#include "actor/call_target.h"
#include "actor/group_tree.h"
#include "common/clock.h"
#include "common/executor.h"
#include "common/mutex.h"
#include "common/random.h"

namespace cohort::actor {

// A rank's part in calls to its group: sends those that come to it on to its
// branches, and what they answer back as one (group_tree.h).
//
// Lives in an actor's process; runs on the threads that bring calls and
// results, never on those that run methods: a busy rank holds nobody up.  Calls
// of one stream go on in their order.  Thread-safe.
class GroupRelay {
 public:
  struct Options {
    std::string job_id;  // the group's
    std::string secret;  // of all ranks
    // Channels to other ranks.  A tree needs 8; with 64 several slices have
    // theirs.  Beyond, one without calls is closed; when all have calls, a call
    // ends as RESOURCE_EXHAUSTED.
    size_t channels_max = 64;
  };

  // As CallChannel's.
  GroupRelay(Options options, ActorConnect connect, Executor& executor,
             const Clock& clock, Random& random);

  // `arguments`: of kRelayMethod.  `done` comes once, perhaps within this.
  void Relay(const std::string& arguments, CallTarget::Done done);

 private:
  struct Peer {
    // Shared: with calls that are being made.
    std::shared_ptr<CallChannel> channel;
    uint64_t incarnation = 0;
    uint64_t last_used = 0;
  };

  absl::StatusOr<std::shared_ptr<CallTarget>> PeerTo(const Member& member);
  absl::Status MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<CallChannel> NewChannel() const;

  const Options options_;
  // Shared: with the channels.
  const std::shared_ptr<ActorConnect> connect_;
  Executor& executor_;
  const Clock& clock_;
  Random& random_;

  Mutex mutex_;
  std::map<int, Peer> peers_ ABSL_GUARDED_BY(mutex_);  // by rank
  uint64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cohort::actor

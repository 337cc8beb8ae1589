#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"

#include "actor/call_limits.h"
#include "actor/call_target.h"
#include "actor/group_calls.h"
#include "actor/options.h"
#include "actor/owned_target.h"
#include "cohort/v1/actor.pb.h"
#include "common/job_id.h"
#include "common/mutex.h"
#include "common/spread.h"

namespace cohort::actor {

// The processes of actors that a Runtime has handles of, by job and slot, and
// the groups that they make.  Thread-safe.
class OwnedActors {
 public:
  struct Group {
    std::shared_ptr<GroupCalls> calls;
    std::vector<std::shared_ptr<CallTarget>> processes;
  };

  explicit OwnedActors(std::shared_ptr<Machinery> machinery)
      : machinery_(std::move(machinery)) {}

  // The way to that process, a new one where there is none; after DropAll one
  // whose calls end.  The options are those of its actor.
  std::shared_ptr<OwnedTarget> TargetOf(const ActorRef& ref,
                                        const ActorOptions& options,
                                        size_t window_bytes = kWindowBytes);
  // Null: there is none.
  std::shared_ptr<OwnedTarget> Known(const ActorRef& ref);

  Group AddGroup(const JobId& id, const std::string& secret,
                 const ActorOptions& options, const Spread& spread);
  // Null: there is none, or nobody holds it.
  std::shared_ptr<GroupCalls> KnownGroup(const JobId& id);

  // None: no handle of it was given, or all are gone.
  std::vector<std::shared_ptr<Line>> LinesTo(const JobId& id);

  // What the head says of that job.
  void Tell(const JobId& id, const v1::ActorStanding& standing);

  // All calls end as `why`, and so do those of handles that are asked for from
  // now on; of several the first counts.
  void DropAll(const absl::Status& why);

  // Of the actors that are over those to which no handle is left: a few at a
  // time, in turn.  REQUIRES: not within a call's end, which their destruction
  // waits for.
  void ForgetSome();

 private:
  // With the slot of a group, 0 of an actor; and the secret that is shown, ""
  // for an executor: one who has a wrong one has another way, which ends.
  using Slot = std::tuple<JobId, uint32_t, std::string>;
  // Whom a word of the head is for, and what it says there.
  using Told = std::pair<std::shared_ptr<OwnedTarget>, v1::ActorStanding>;

  // What it says to those of that job in slots first to second.
  void TellSlots(const JobId& id, const v1::ActorStanding& standing,
                 std::pair<uint32_t, uint32_t> slots, std::vector<Told>& told)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Shared: with lines that calls hold yet.
  const std::shared_ptr<Machinery> machinery_;

  Mutex mutex_;
  // Shared: their handles.
  std::map<Slot, std::shared_ptr<OwnedTarget>> targets_ ABSL_GUARDED_BY(mutex_);
  Slot looked_at_ ABSL_GUARDED_BY(mutex_);  // by ForgetSome
  // Those whose handles are gone go when another group is created.
  std::map<JobId, std::weak_ptr<GroupCalls>> groups_ ABSL_GUARDED_BY(mutex_);
  absl::Status over_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::actor

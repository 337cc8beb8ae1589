#pragma once

#include <memory>

#include "absl/status/status.h"

#include "actor/call_target.h"

// Handles that come to this process as values.
namespace cohort::actor {

// Who makes ways to actors: a driver's Runtime, or the process of an actor or a
// task (PeerActors).  Thread-safe.
class ActorFinder {
 public:
  virtual ~ActorFinder() = default;

  // The way to that actor, whether or not it is there: calls say so.  Does not
  // block.  Never null.
  virtual std::shared_ptr<CallTarget> TargetOf(const ActorRef& ref) = 0;
};

// That of this process: of those that were added and not removed the first;
// null: there is none.  Thread-safe.
std::shared_ptr<ActorFinder> ProcessActorFinder();
void AddActorFinder(std::shared_ptr<ActorFinder> finder);
// Nothing for one that was not added.
void RemoveActorFinder(const std::shared_ptr<ActorFinder>& finder);

// A target whose calls end with `why`.
std::shared_ptr<CallTarget> NoTarget(absl::Status why);

}  // namespace cohort::actor

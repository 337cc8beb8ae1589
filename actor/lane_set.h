#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "actor/call_stream.h"

namespace cohort::actor {

// The lanes of a process: for each group one of each actor.  ActorService's
// own.  What does not change is thread-safe, the rest thread-compatible.
class LaneSet {
 public:
  // Runners to be posted.
  using Claims = std::vector<Lane*>;

  // REQUIRES: one at least, the first with all actors.
  explicit LaneSet(std::vector<CallLane> lanes);

  // These stay as they were made.
  size_t size() const { return lanes_.size(); }
  // That of the group's first actor; null: there is no such group.
  Lane* Find(const std::string& group);
  // Where a call of that actor waits; that of what nobody has, too: IsThere.
  Lane& Of(const Method& method, uint32_t actor);
  bool IsThere(const Method& method, uint32_t actor) const;

  // As many runners as the lane has work and room for.
  static void Claim(Lane& lane, Claims& claims);
  // Whether one that gave way for this runner runs again, and it is one too
  // many.
  static bool IsSurplus(const Lane& lane);

  // One of the caller's turns, which are all the same; or all of them.
  static void DropTurn(const CallStream& caller, Lane& lane);
  void DropTurns(const CallStream& caller);
  // All turns, to be destroyed elsewhere.
  std::vector<std::deque<std::shared_ptr<CallStream>>> Clear();

 private:
  // They stay where they are.
  std::deque<Lane> lanes_;
};

}  // namespace cohort::actor

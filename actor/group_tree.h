#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "actor/call_target.h"
#include "actor/codec.h"
#include "actor/fan_out.h"

// The way of a call to many ranks: down a tree, each branch of which is a rank
// that calls the others of its part (GroupRelay).
namespace cohort::actor {

// Names of what an actor's process answers itself (ActorService::Relay): a call
// that goes on from there, and one whose answer says that all before it on its
// stream have been read.
inline constexpr char kRelayMethod[] = "cohort.relay";
inline constexpr char kFlushMethod[] = "cohort.flush";

// How many branches a rank has, beside itself.  1,024 ranks are four calls
// away; more branches would make each rank encode more, fewer the way longer.
inline constexpr size_t kBranchesMax = 8;

// A rank as it is reached; where several share a process, that process.
struct Member {
  int rank = 0;  // of the first of the process
  uint64_t incarnation = 0;
  std::vector<std::string> addresses;
  // Which of those of the process are meant; empty: the first.
  std::vector<uint32_t> actors;
  COHORT_FIELDS(rank, incarnation, addresses, actors)

  uint32_t actor() const { return actors.empty() ? 0 : actors.front(); }
  // The first that is meant.
  int first_rank() const { return rank + static_cast<int>(actor()); }
};

// A call on its way to some ranks.
struct GroupCall {
  std::string method;  // as in method.h, or kFlushMethod
  std::string group;   // concurrency group
  std::string arguments;
  std::string reducer;  // as in FanOut
  // In the order of their results.
  std::vector<Member> members;
  COHORT_FIELDS(method, group, arguments, reducer, members)
};

using Parts = std::vector<std::span<const Member>>;

// `members` in at most kBranchesMax parts, whose sizes differ by one at most.
Parts BranchesOf(std::span<const Member> members);

// The first of `members`, to which a call has come, and branches of the others.
// Where it has several actors it becomes as many, in place.
Parts SelfAndBranchesOf(std::vector<Member>& members);

// Each member for itself.
Parts EachOf(std::span<const Member> members);

// Where a member takes calls.
using Peers = std::function<absl::StatusOr<std::shared_ptr<CallTarget>>(
    const Member& member)>;

// For what the parts of a call answer.
std::shared_ptr<FanOut> FanOutOf(const GroupCall& call, const Parts& parts,
                                 FanOut::Done done);

// Sends `call` to all parts of its members.
void SendParts(const GroupCall& call, const Parts& parts, const Peers& peers,
               const std::shared_ptr<FanOut>& all);

}  // namespace cohort::actor

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "actor/call_target.h"
#include "actor/fan_out.h"
#include "actor/group_target.h"
#include "actor/group_tree.h"
#include "cohort/v1/actor.pb.h"
#include "common/executor.h"
#include "common/mutex.h"
#include "common/spread.h"

namespace cohort::actor {

// The caller's end of the calls to a group: to each rank, or down a tree.
//
// A call to at most kDirectMax ranks, or to some that do not serve yet or any
// more, goes to each of them; a call to more, of which all serve, goes to
// kBranchesMax of them, which send it on.
//
// GC-1: a call to several ranks ends once; with the first rank that failed, or
//       when all have answered.
// GC-2: calls of one thread begin in their order on each rank, whichever ways
//       they take.  One that takes another way than those before it, of which
//       some may still be on theirs, waits until these are flushed: each rank
//       on that way has said that it has read what came before.
// GC-3: what waits is bounded: beyond `waiting_max` a call ends as
// "queue_full".
//
// A cancelled call that went down the tree is not withdrawn from ranks where it
// has not begun.  Thread-safe.
class GroupCalls final : public GroupTarget,
                         public std::enable_shared_from_this<GroupCalls> {
 public:
  // Fewer calls do not become one faster than they are made.
  static constexpr size_t kDirectMax = 8;

  struct Options {
    // Whether calls may go down the tree; else each goes to its rank, always.
    // One that may run again must not, since a part would.
    bool may_relay = true;
    size_t waiting_max = 10'000;
    // How many share the processes (Spread); 0: each has its own.
    int ranks = 0;
  };

  // `processes`: the ways to them, in the order of their ranks.
  GroupCalls(Options options,
             std::vector<std::shared_ptr<CallTarget>> processes,
             std::shared_ptr<Executor> timers);

  // What the head says of a process.
  void SetStanding(const v1::ActorStanding& standing);
  // The head will say no more: what waits for its word ends.
  void EndStandings();

  // GroupTarget.
  std::shared_ptr<CallTarget> Rank(int rank) override;
  std::shared_ptr<CallTarget> Slice(std::vector<int> ranks,
                                    const char* reducer) override;

 private:
  class SliceTarget;
  class RankTarget;
  using Done = FanOut::Done;

  struct Way {
    bool is_tree = false;
    std::vector<int> ranks;  // of a tree, which they make; else none

    friend bool operator==(const Way&, const Way&) = default;
  };
  struct Pending {
    uint64_t number = 0;
    uint64_t turn = 0;
    Way way;
    GroupCall call;
    Done done;
  };
  // What a tree's error waits for: the head's word of that rank.
  struct Unexplained {
    Member to;
    SliceResult result;
    Done done;
  };

  uint64_t Call(const std::vector<int>& ranks, CalledMethod method,
                std::string arguments, const char* reducer, Done done);
  void Cancel(uint64_t number);

  // From now on it is on its way.
  void Enter(Pending& pending) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Send(Pending pending);
  void OnEnd(uint64_t number, uint64_t turn, bool has_result);
  // Sends what waits for as long as it may go the way that is taken, and
  // flushes that where it must.
  void SendWaiting();
  void Flush();
  void OnFlushed();
  // The end of a call down the tree, at once or when the head has said why.
  void EndOfTree(SliceResult result, const std::vector<Member>& members,
                 Done done);
  void Explain(uint64_t unexplained);

  // The process that has this rank, as it is reached now.
  Member ProcessWith(int rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A member for each, or for each process that has some.
  std::vector<Member> Each(const std::vector<int>& ranks) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Member> Processes(const std::vector<int>& ranks) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AllServe(const std::vector<int>& ranks) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const v1::ActorStanding& StandingOf(int rank) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasEnded(const Member& member) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<CallTarget> WayTo(int rank) const;

  // Set in the constructor.
  const Options options_;
  // Shared: with handles.
  const std::vector<std::shared_ptr<CallTarget>> processes_;
  const Spread spread_;
  const Peers peers_;
  const std::shared_ptr<Executor> timers_;  // shared: with the session

  Mutex mutex_;
  std::vector<v1::ActorStanding> standings_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_number_ ABSL_GUARDED_BY(mutex_) = 1;
  std::deque<Pending> waiting_ ABSL_GUARDED_BY(mutex_);
  bool sending_waiting_ ABSL_GUARDED_BY(mutex_) = false;
  // Shared: with their parts.
  std::map<uint64_t, std::shared_ptr<FanOut>> under_way_
      ABSL_GUARDED_BY(mutex_);

  // The way that calls take now, and since when: it grows with each flush.
  Way way_ ABSL_GUARDED_BY(mutex_);
  uint64_t turn_ ABSL_GUARDED_BY(mutex_) = 1;
  // Calls of this turn that are not known to have reached all of their ranks;
  // and, when they went to each, the first of each process that has some.
  size_t unsettled_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<int> touched_ ABSL_GUARDED_BY(mutex_);
  size_t sending_ ABSL_GUARDED_BY(mutex_) = 0;  // threads within Send
  bool flushing_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_word_ ABSL_GUARDED_BY(mutex_) = true;  // until EndStandings
  std::map<uint64_t, Unexplained> unexplained_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::actor

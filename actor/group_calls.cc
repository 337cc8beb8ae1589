#include "actor/group_calls.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "actor/actor_at.h"
#include "actor/actor_end.h"
#include "actor/call_error.h"
#include "actor/call_failure.h"
#include "actor/call_limits.h"
#include "client/job.h"
#include "common/status_util.h"

namespace cohort::actor {
namespace {

// How long an error that came up the tree waits for the head's word that the
// process ended, as a CallChannel's do.
constexpr absl::Duration kWordTimeout = absl::Seconds(1);

absl::Status GroupQueueFull(size_t waiting) {
  return SetReason(
      absl::ResourceExhaustedError(absl::StrCat(
          "too many calls: ", waiting,
          " of this group wait (wait, or raise max_pending_calls)")),
      kReasonQueueFull);
}

// What a tree cannot know: why a process ended.
bool LacksReason(const SliceResult& result) {
  const std::string reason = GetReason(result.status);
  return result.failed_rank >= 0 &&
         (reason == kReasonMayHaveRun || reason == kReasonNotStarted);
}

// As a CallTarget::Done has it.
absl::StatusOr<std::string> BytesOf(SliceResult result, bool is_reduced) {
  if (!result.status.ok()) {
    if (result.failed_rank < 0) return result.status;
    return Annotate(result.status, absl::StrCat("rank ", result.failed_rank));
  }
  if (!is_reduced) return EncodeValue(result.values);
  return std::move(result.values.front());
}

}  // namespace

// Several ranks, as one.
class GroupCalls::SliceTarget final : public CallTarget {
 public:
  SliceTarget(std::shared_ptr<GroupCalls> calls, std::vector<int> ranks,
              const char* reducer)
      : calls_(std::move(calls)), ranks_(std::move(ranks)), reducer_(reducer) {}

  uint64_t Call(CalledMethod method, std::string arguments,
                Done done) override {
    const bool is_reduced = *reducer_ != '\0';
    return calls_->Call(
        ranks_, method, std::move(arguments), reducer_,
        [is_reduced, done = std::move(done)](SliceResult result) mutable {
          std::move(done)(BytesOf(std::move(result), is_reduced));
        });
  }
  void Cancel(uint64_t call) override { calls_->Cancel(call); }
  // They are placed together.
  std::string WaitReason(uint64_t call) const override {
    return calls_->WayTo(ranks_.front())->WaitReason(call);
  }

 private:
  const std::shared_ptr<GroupCalls> calls_;  // shared: with other handles
  const std::vector<int> ranks_;
  const char* const reducer_;
};

// One rank, in the order of the group's calls.
class GroupCalls::RankTarget final : public CallTarget {
 public:
  RankTarget(std::shared_ptr<GroupCalls> calls, int rank)
      : calls_(std::move(calls)), rank_(rank) {}

  uint64_t Call(CalledMethod method, std::string arguments,
                Done done) override {
    return calls_->Call({rank_}, method, std::move(arguments), "",
                        [done = std::move(done)](SliceResult result) mutable {
                          if (!result.status.ok())
                            return std::move(done)(result.status);
                          std::move(done)(std::move(result.values.front()));
                        });
  }
  void Cancel(uint64_t call) override { calls_->Cancel(call); }
  void Look(uint64_t call, absl::FunctionRef<bool()> finished) override {
    calls_->WayTo(rank_)->Look(call, finished);
  }
  std::string WaitReason(uint64_t call) const override {
    return calls_->WayTo(rank_)->WaitReason(call);
  }
  absl::StatusOr<ActorRef> Ref() const override {
    return calls_->WayTo(rank_)->Ref();
  }

 private:
  const std::shared_ptr<GroupCalls> calls_;  // shared: with other handles
  const int rank_;
};

GroupCalls::GroupCalls(Options options,
                       std::vector<std::shared_ptr<CallTarget>> processes,
                       std::shared_ptr<Executor> timers)
    : options_(options),
      processes_(std::move(processes)),
      spread_(options.ranks == 0 ? static_cast<int>(processes_.size())
                                 : options.ranks,
              static_cast<int>(processes_.size())),
      peers_([this](const Member& member) { return WayTo(member.rank); }),
      timers_(std::move(timers)),
      standings_(processes_.size()) {}

std::shared_ptr<CallTarget> GroupCalls::WayTo(int rank) const {
  return ActorAt(processes_[static_cast<size_t>(spread_.ProcessOf(rank))],
                 spread_.ActorOf(rank));
}

std::shared_ptr<CallTarget> GroupCalls::Rank(int rank) {
  const bool has_trees =
      options_.may_relay && spread_.ranks() > static_cast<int>(kDirectMax);
  if (!has_trees) return WayTo(rank);
  return std::make_shared<RankTarget>(shared_from_this(), rank);
}

std::shared_ptr<CallTarget> GroupCalls::Slice(std::vector<int> ranks,
                                              const char* reducer) {
  return std::make_shared<SliceTarget>(shared_from_this(), std::move(ranks),
                                       reducer);
}

// ---- What the head says. ----

void GroupCalls::SetStanding(const v1::ActorStanding& standing) {
  std::vector<uint64_t> explained;
  {
    MutexLock lock(mutex_);
    if (standing.slot() >= standings_.size()) return;
    standings_[standing.slot()] = standing;
    for (const auto& [number, each] : unexplained_) {
      if (HasEnded(each.to)) explained.push_back(number);
    }
  }
  for (const uint64_t number : explained) Explain(number);
}

void GroupCalls::EndStandings() {
  std::vector<uint64_t> numbers;
  {
    MutexLock lock(mutex_);
    has_word_ = false;
    for (const auto& [number, each] : unexplained_) numbers.push_back(number);
  }
  for (const uint64_t number : numbers) Explain(number);
}

bool GroupCalls::AllServe(const std::vector<int>& ranks) const {
  for (const int rank : ranks) {
    const v1::ActorStanding& standing = StandingOf(rank);
    if (cohort::HasEnded(standing.state()) || standing.incarnation() == 0 ||
        standing.addresses().empty()) {
      return false;
    }
  }
  return true;
}

const v1::ActorStanding& GroupCalls::StandingOf(int rank) const {
  return standings_[static_cast<size_t>(spread_.ProcessOf(rank))];
}

bool GroupCalls::HasEnded(const Member& member) const {
  const v1::ActorStanding& standing = StandingOf(member.rank);
  return standing.ended_incarnation() >= member.incarnation ||
         standing.incarnation() > member.incarnation;
}

Member GroupCalls::ProcessWith(int rank) const {
  const v1::ActorStanding& standing = StandingOf(rank);
  return {
      .rank = spread_.FirstOf(spread_.ProcessOf(rank)),
      .incarnation = standing.incarnation(),
      .addresses = {standing.addresses().begin(), standing.addresses().end()},
      .actors = {}};
}

std::vector<Member> GroupCalls::Each(const std::vector<int>& ranks) const {
  std::vector<Member> members;
  for (const int rank : ranks) {
    members.push_back(ProcessWith(rank));
    if (spread_.is_shared()) {
      members.back().actors.push_back(spread_.ActorOf(rank));
    }
  }
  return members;
}

std::vector<Member> GroupCalls::Processes(const std::vector<int>& ranks) const {
  if (!spread_.is_shared()) return Each(ranks);
  std::vector<Member> members;
  int process = -1;
  for (const int rank : ranks) {
    if (std::exchange(process, spread_.ProcessOf(rank)) !=
        spread_.ProcessOf(rank)) {
      members.push_back(ProcessWith(rank));
    }
    members.back().actors.push_back(spread_.ActorOf(rank));
  }
  return members;
}

// ---- Calls. ----

uint64_t GroupCalls::Call(const std::vector<int>& ranks, CalledMethod method,
                          std::string arguments, const char* reducer,
                          Done done) {
  if (arguments.size() > kArgumentsBytesMax) {
    std::move(done)({.status = TooLarge("arguments are", arguments.size(),
                                        kArgumentsBytesMax),
                     .values = {}});
    return 0;
  }
  std::optional<Pending> now;
  uint64_t number = 0;
  size_t refused = 0;
  {
    MutexLock lock(mutex_);
    number = next_number_++;
    Pending pending = {.number = number, .call = {}};
    // What makes the way must fit beside the arguments.
    const bool fits = arguments.size() <= kArgumentsBytesMax / 2;
    if (options_.may_relay && ranks.size() > kDirectMax && fits &&
        AllServe(ranks)) {
      pending.way = {.is_tree = true, .ranks = ranks};
    }
    pending.call.members = pending.way.is_tree ? Processes(ranks) : Each(ranks);
    pending.call.method = method.name;
    pending.call.group = method.group;
    pending.call.arguments = std::move(arguments);
    pending.call.reducer = reducer;
    pending.done = std::move(done);
    const bool may_go = waiting_.empty() && !sending_waiting_ &&
                        (pending.way == way_ || unsettled_ == 0);
    if (may_go) {
      Enter(pending);
      now = std::move(pending);
    } else if (waiting_.size() >= options_.waiting_max) {
      refused = waiting_.size();
      done = std::move(pending.done);
    } else {
      waiting_.push_back(std::move(pending));
    }
  }
  if (now.has_value()) {
    Send(*std::move(now));
  } else if (refused > 0) {
    std::move(done)({.status = GroupQueueFull(refused), .values = {}});
  } else {
    SendWaiting();
  }
  return number;
}

void GroupCalls::Enter(Pending& pending) {
  way_ = pending.way;
  pending.turn = turn_;
  ++unsettled_;
  ++sending_;
  if (pending.way.is_tree) return;
  for (const Member& member : pending.call.members)
    touched_.insert(member.rank);
}

void GroupCalls::Send(Pending pending) {
  const bool is_tree = pending.way.is_tree;
  const GroupCall& call = pending.call;
  const Parts parts = is_tree ? BranchesOf(call.members) : EachOf(call.members);
  auto all = FanOutOf(
      call, parts,
      [self = shared_from_this(), number = pending.number, turn = pending.turn,
       members = is_tree ? call.members : std::vector<Member>(),
       done = std::move(pending.done)](SliceResult result) mutable {
        self->OnEnd(number, turn, result.status.ok());
        self->EndOfTree(std::move(result), members, std::move(done));
        self->SendWaiting();
      });
  {
    MutexLock lock(mutex_);
    under_way_[pending.number] = all;
  }
  SendParts(call, parts, peers_, all);
  {
    MutexLock lock(mutex_);
    --sending_;
  }
  SendWaiting();
}

void GroupCalls::OnEnd(uint64_t number, uint64_t turn, bool has_result) {
  // Destroyed without the lock.
  std::shared_ptr<FanOut> last;
  MutexLock lock(mutex_);
  const auto found = under_way_.find(number);
  if (found != under_way_.end()) {
    last = std::move(found->second);
    under_way_.erase(found);
  }
  // Of one that failed, a part may be on its way yet.
  if (!has_result || turn != turn_) return;
  if (--unsettled_ == 0) touched_.clear();
}

void GroupCalls::Cancel(uint64_t number) {
  std::shared_ptr<FanOut> under_way;
  Done waited;
  {
    MutexLock lock(mutex_);
    const auto found = under_way_.find(number);
    if (found != under_way_.end()) under_way = found->second;
    for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
      if (it->number != number) continue;
      waited = std::move(it->done);
      waiting_.erase(it);
      break;
    }
  }
  if (under_way != nullptr) under_way->Cancel();
  if (waited != nullptr) {
    std::move(waited)({.status = CallCancelled(), .values = {}});
  }
}

// ---- Changes of the way. ----

void GroupCalls::SendWaiting() {
  for (;;) {
    std::optional<Pending> next;
    {
      MutexLock lock(mutex_);
      if (waiting_.empty() || sending_waiting_ || flushing_) return;
      Pending& first = waiting_.front();
      if (first.way == way_ || unsettled_ == 0) {
        Enter(first);
        next = std::move(first);
        waiting_.pop_front();
        sending_waiting_ = true;
      } else if (sending_ > 0) {
        return;  // the thread that sends goes on from here
      } else {
        flushing_ = true;
      }
    }
    if (!next.has_value()) return Flush();
    Send(*std::move(next));
    MutexLock lock(mutex_);
    sending_waiting_ = false;
  }
}

void GroupCalls::Flush() {
  GroupCall flush;
  bool is_tree = false;
  {
    MutexLock lock(mutex_);
    is_tree = way_.is_tree;
    flush.members = is_tree ? Processes(way_.ranks)
                            : Each({touched_.begin(), touched_.end()});
  }
  // All have ended meanwhile.
  if (flush.members.empty()) return OnFlushed();
  flush.method = kFlushMethod;
  const Parts parts =
      is_tree ? BranchesOf(flush.members) : EachOf(flush.members);
  SendParts(flush, parts, peers_,
            FanOutOf(flush, parts, [self = shared_from_this()](SliceResult) {
              self->OnFlushed();
            }));
}

void GroupCalls::OnFlushed() {
  {
    MutexLock lock(mutex_);
    ++turn_;
    unsettled_ = 0;
    touched_.clear();
    flushing_ = false;
  }
  SendWaiting();
}

// ---- Errors that come up the tree. ----

void GroupCalls::EndOfTree(SliceResult result,
                           const std::vector<Member>& members, Done done) {
  if (result.status.ok() || !LacksReason(result) ||
      result.failed_rank >= spread_.ranks()) {
    return std::move(done)(std::move(result));
  }
  const int first = spread_.FirstOf(spread_.ProcessOf(result.failed_rank));
  const auto to = std::find_if(
      members.begin(), members.end(),
      [first](const Member& member) { return member.rank == first; });
  if (to == members.end()) return std::move(done)(std::move(result));
  uint64_t number = 0;
  bool is_known = false;
  {
    MutexLock lock(mutex_);
    number = next_number_++;
    is_known = HasEnded(*to) || !has_word_;
    unexplained_[number] = {*to, std::move(result), std::move(done)};
  }
  if (is_known) return Explain(number);
  timers_->PostAfter(kWordTimeout, [weak = weak_from_this(), number] {
    if (const auto self = weak.lock()) self->Explain(number);
  });
}

void GroupCalls::Explain(uint64_t unexplained) {
  Unexplained each;
  {
    MutexLock lock(mutex_);
    const auto found = unexplained_.find(unexplained);
    if (found == unexplained_.end()) return;
    each = std::move(found->second);
    unexplained_.erase(found);
    const v1::ActorStanding& standing = StandingOf(each.to.rank);
    if (HasEnded(each.to)) {
      v1::ActorStanding to;
      to.set_incarnation(each.to.incarnation);
      to.set_node_name(standing.node_name());
      each.result.status = EndedDuringCall(standing, to);
    }
  }
  std::move(each.done)(std::move(each.result));
}

}  // namespace cohort::actor

#include "actor/group_calls.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "actor/call_error.h"
#include "actor/method.h"
#include "common/status_util.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"

namespace cohort::group_calls_test {

using actor::CallTarget;
using actor::GroupCalls;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kRanks = 12;

class Worker {
 public:
  int Do() { return 0; }
};
COHORT_ACTOR(Worker, &Worker::Do);

// The way to one rank: keeps calls until they are answered.
class HeldTarget final : public CallTarget {
 public:
  struct Held {
    std::string method;
    std::string arguments;
    Done done;
    uint32_t actor = 0;
  };

  uint64_t Call(actor::CalledMethod method, std::string arguments,
                Done done) override {
    held.push_back(
        {method.name, std::move(arguments), std::move(done), method.actor});
    return ++calls;
  }
  void Cancel(uint64_t call) override { cancelled.push_back(call); }

  void Answer(absl::StatusOr<std::string> result) {
    Held first = std::move(held.front());
    held.pop_front();
    std::move(first.done)(std::move(result));
  }

  std::deque<Held> held;
  std::vector<uint64_t> cancelled;
  uint64_t calls = 0;
};

class GroupCallsTest : public ::testing::Test {
 protected:
  using End = absl::StatusOr<std::string>;

  GroupCallsTest() { Make({}); }
  // Every call ends at last; one that did not would own its target.
  ~GroupCallsTest() override {
    for (bool any = true; std::exchange(any, false);) {
      for (const auto& rank : ranks_) {
        if (rank->held.empty()) continue;
        any = true;
        rank->Answer(absl::CancelledError("the end"));
      }
    }
  }

  void Make(GroupCalls::Options options) {
    ranks_.clear();
    std::vector<std::shared_ptr<CallTarget>> targets;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks_.push_back(std::make_shared<HeldTarget>());
      targets.push_back(ranks_.back());
    }
    calls_ = std::make_shared<GroupCalls>(options, targets, executor_);
  }

  void Serve(uint64_t incarnation) {
    for (uint32_t slot = 0; slot < kRanks; ++slot) {
      v1::ActorStanding standing;
      standing.set_state(v1::JOB_STATE_RUNNING);
      standing.set_slot(slot);
      standing.set_incarnation(incarnation + slot);
      standing.add_addresses("unix:/x");
      calls_->SetStanding(standing);
    }
  }
  static std::vector<int> All() {
    std::vector<int> all;
    for (int rank = 0; rank < kRanks; ++rank) all.push_back(rank);
    return all;
  }
  static const char* Method() {
    return actor::AutoMethod<Worker, &Worker::Do>::Name();
  }
  // Its end is in ends_, at what this answers.
  size_t Call(const std::shared_ptr<CallTarget>& target) {
    const size_t index = ends_.size();
    ends_.emplace_back();
    target->Call(Method(), std::to_string(index),
                 [this, index](End end) { ends_[index] = {std::move(end)}; });
    return index;
  }
  size_t CallAll() { return Call(calls_->Slice(All(), "")); }
  // All branches of the first call that is held.
  void AnswerTree() {
    for (int rank = 0; rank < kRanks; ++rank) {
      HeldTarget& target = *ranks_[static_cast<size_t>(rank)];
      if (target.held.empty()) continue;
      const bool is_relay = target.held.front().method == actor::kRelayMethod;
      actor::SliceResult result;
      result.values = {absl::StrCat("v", rank), absl::StrCat("v", rank + 1)};
      target.Answer(is_relay ? *EncodeValue(result) : absl::StrCat("v", rank));
    }
  }
  std::vector<std::string> Methods(int rank) const {
    std::vector<std::string> methods;
    for (const auto& each : ranks_[static_cast<size_t>(rank)]->held) {
      methods.push_back(each.method);
    }
    return methods;
  }

  const std::shared_ptr<ManualExecutor> executor_ =
      std::make_shared<ManualExecutor>();
  std::vector<std::shared_ptr<HeldTarget>> ranks_;
  std::shared_ptr<GroupCalls> calls_;
  std::vector<std::vector<End>> ends_;
};

TEST_F(GroupCallsTest, GoesToEachWhileSomeDoNotServe) {
  const size_t call = CallAll();
  for (int rank = 0; rank < kRanks; ++rank) {
    ASSERT_THAT(Methods(rank), ElementsAre(Method()));
    ranks_[static_cast<size_t>(rank)]->Answer(absl::StrCat(rank));
  }
  ASSERT_THAT(ends_[call], SizeIs(1));
  const auto values = DecodeValue<std::vector<std::string>>(*ends_[call][0]);
  ASSERT_THAT(*values, SizeIs(kRanks));
  EXPECT_EQ((*values)[11], "11");
}

TEST_F(GroupCallsTest, GoesDownTheTreeOnceAllServe) {
  Serve(1);
  const size_t call = CallAll();
  int messages = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    messages += static_cast<int>(Methods(rank).size());
  }
  EXPECT_EQ(messages, 8);
  AnswerTree();
  ASSERT_THAT(ends_[call], SizeIs(1));
  const auto values = DecodeValue<std::vector<std::string>>(*ends_[call][0]);
  EXPECT_THAT(*values, SizeIs(kRanks));
}

TEST_F(GroupCallsTest, GoesOnceToAProcessThatSeveralShare) {
  Make({.ranks = 2 * kRanks});
  Serve(1);
  // One process, ranks 6 and 7, and that of ranks 8 and 9.
  const size_t seven = Call(calls_->Rank(7));
  ASSERT_THAT(Methods(3), ElementsAre(Method()));
  EXPECT_EQ(ranks_[3]->held.front().actor, 1u);
  ranks_[3]->Answer("a");
  EXPECT_THAT(ends_[seven], ElementsAre(IsOkAndHolds("a")));
  Call(calls_->Slice({6, 7, 8, 9, 10, 11, 12, 13, 14}, ""));
  for (const int process : {3, 4, 5, 6, 7}) {
    SCOPED_TRACE(process);
    const bool is_alone = process == 7;
    ASSERT_THAT(Methods(process),
                ElementsAre(is_alone ? Method() : actor::kRelayMethod));
    if (is_alone) continue;
    const auto call = DecodeValue<actor::GroupCall>(
        ranks_[static_cast<size_t>(process)]->held.front().arguments);
    ASSERT_THAT(call->members, SizeIs(1));
    EXPECT_EQ(call->members.front().rank, 2 * process);
    EXPECT_THAT(call->members.front().actors, ElementsAre(0, 1));
  }
}

TEST_F(GroupCallsTest, TheReasonOfAnErrorIsThatOfItsProcess) {
  Make({.ranks = 2 * kRanks});
  Serve(1);
  std::vector<int> all;
  for (int rank = 0; rank < 2 * kRanks; ++rank) all.push_back(rank);
  const size_t call = Call(calls_->Slice(all, ""));
  v1::ActorStanding standing;
  standing.set_state(v1::JOB_STATE_RUNNING);
  standing.set_slot(4);
  standing.set_ended_incarnation(5);
  standing.mutable_exit()->set_signal(9);
  calls_->SetStanding(standing);
  actor::SliceResult failed;
  failed.failed_rank = 9;
  failed.status = SetReason(absl::UnavailableError("broke"), kReasonMayHaveRun);
  for (const auto& process : ranks_) {
    if (process->held.empty()) continue;
    process->Answer(*EncodeValue(failed));
    break;
  }
  ASSERT_THAT(ends_[call], SizeIs(1));
  EXPECT_THAT(ends_[call][0].status().message(),
              ::testing::AllOf(HasSubstr("rank 9: "), HasSubstr("signal 9")));
}

TEST_F(GroupCallsTest, WhatMayRunAgainGoesToEach) {
  Make({.may_relay = false});
  Serve(1);
  CallAll();
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_THAT(Methods(rank), ElementsAre(Method()));
  }
}

TEST_F(GroupCallsTest, ACallOnAnotherWayWaitsForTheFlush) {
  Serve(1);
  CallAll();
  const size_t one = Call(calls_->Rank(11));
  // Behind the call on its way, to all that it went to.
  EXPECT_THAT(Methods(0), ElementsAre(Method(), actor::kFlushMethod));
  EXPECT_THAT(Methods(10),
              ElementsAre(actor::kRelayMethod, actor::kRelayMethod));
  EXPECT_THAT(Methods(11), IsEmpty());
  // The flush is over before the call is.
  for (const auto& rank : ranks_) {
    if (rank->held.size() < 2) continue;
    HeldTarget::Held flush = std::move(rank->held.back());
    rank->held.pop_back();
    const bool is_relay = flush.method == actor::kRelayMethod;
    std::move(flush.done)(is_relay ? *EncodeValue(actor::SliceResult())
                                   : std::string());
  }
  EXPECT_THAT(Methods(11), ElementsAre(Method()));
  ranks_[11]->Answer("b");
  EXPECT_THAT(ends_[one], ElementsAre(IsOkAndHolds("b")));
}

TEST_F(GroupCallsTest, NeedsNoFlushOnceAllHaveAnswered) {
  Serve(1);
  CallAll();
  AnswerTree();
  Call(calls_->Rank(11));
  EXPECT_THAT(Methods(11), ElementsAre(Method()));
  EXPECT_THAT(Methods(0), IsEmpty());
}

TEST_F(GroupCallsTest, WaitingCallsAreBoundedAndCancelled) {
  Make({.waiting_max = 1});
  Serve(1);
  CallAll();
  const std::shared_ptr<CallTarget> one = calls_->Rank(11);
  std::vector<End> ends;
  const uint64_t waits = one->Call(
      Method(), "", [&ends](End end) { ends.push_back(std::move(end)); });
  const size_t refused = Call(one);
  ASSERT_THAT(ends_[refused], SizeIs(1));
  EXPECT_EQ(GetReason(ends_[refused][0].status()), kReasonQueueFull);
  one->Cancel(waits);
  ASSERT_THAT(ends, SizeIs(1));
  EXPECT_EQ(GetReason(ends[0].status()), kReasonCancelled);
}

TEST_F(GroupCallsTest, NamesTheRankOfAnError) {
  Serve(1);
  const size_t call = CallAll();
  actor::SliceResult failed{
      .failed_rank = 11, .status = absl::AbortedError("no"), .values = {}};
  ranks_[10]->Answer(EncodeValue(failed));
  EXPECT_THAT(ends_[call], ElementsAre(StatusIs(absl::StatusCode::kAborted,
                                                HasSubstr("rank 11: no"))));
}

TEST_F(GroupCallsTest, AnErrorOfATreeWaitsForTheHeadsReason) {
  Serve(1);
  const size_t call = CallAll();
  const actor::SliceResult failed{
      .failed_rank = 11,
      .status = SetReason(absl::UnavailableError("the stream broke"),
                          kReasonMayHaveRun),
      .values = {}};
  ranks_[10]->Answer(EncodeValue(failed));
  EXPECT_THAT(ends_[call], IsEmpty());
  v1::ActorStanding ended;
  ended.set_state(v1::JOB_STATE_RUNNING);
  ended.set_slot(11);
  ended.set_ended_incarnation(12);
  ended.mutable_exit()->set_signal(9);
  calls_->SetStanding(ended);
  ASSERT_THAT(ends_[call], SizeIs(1));
  EXPECT_THAT(ends_[call][0].status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("rank 11: the actor may have run the call: "
                                 "its process was killed by signal 9")));
}

TEST_F(GroupCallsTest, AnErrorOfATreeWaitsNoLongerThanASecond) {
  Serve(1);
  const size_t call = CallAll();
  ranks_[10]->Answer(
      SetReason(absl::UnavailableError("the stream broke"), kReasonMayHaveRun));
  EXPECT_THAT(ends_[call], IsEmpty());
  executor_->AdvanceBy(absl::Seconds(1));
  EXPECT_THAT(ends_[call],
              ElementsAre(StatusIs(absl::StatusCode::kUnavailable,
                                   HasSubstr("rank 10: the stream broke"))));
}

TEST_F(GroupCallsTest, AnErrorOfATreeEndsWithTheSession) {
  Serve(1);
  const size_t before = CallAll();
  const absl::Status broke =
      SetReason(absl::UnavailableError("the stream broke"), kReasonMayHaveRun);
  ranks_[10]->Answer(broke);
  EXPECT_THAT(ends_[before], IsEmpty());
  calls_->EndStandings();
  EXPECT_THAT(ends_[before], SizeIs(1));
  const size_t after = CallAll();
  ranks_[10]->Answer(broke);
  EXPECT_THAT(ends_[after], SizeIs(1));
}

}  // namespace cohort::group_calls_test

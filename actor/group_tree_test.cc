#include "actor/group_tree.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "actor/method.h"
#include "actor/reducer.h"
#include "common/testing/status_matchers.h"

namespace cohort::group_tree_test {

using actor::BranchesOf;
using actor::FanOutOf;
using actor::GroupCall;
using actor::Member;
using actor::Parts;
using actor::SliceResult;
using ::testing::AllOf;
using ::testing::Ge;
using ::testing::Le;
using ::testing::SizeIs;

class Worker {
 public:
  int Rank() { return 0; }
};

// Registers them.
COHORT_ACTOR(Worker, &Worker::Rank);
[[maybe_unused]] const bool kRegistered =
    actor::AutoReducer<Sum, int>::kRegistered;

std::vector<Member> Members(int count) {
  std::vector<Member> members;
  for (int rank = 0; rank < count; ++rank) {
    members.push_back({.rank = rank, .addresses = {}});
  }
  return members;
}

// Ranks that answer their number, and relay.
class Ranks {
 public:
  // What each call is to fail with.
  std::map<int, absl::Status> fails;
  // How many processes the longest way went through.
  int hops = 0;
  int messages = 0;

  SliceResult Call(const GroupCall& call) {
    SliceResult end{.failed_rank = -2, .values = {}};
    Send(call, BranchesOf(call.members), 1,
         [&end](SliceResult result) { end = std::move(result); });
    return end;
  }

 private:
  // One rank, as it is called by one that is `hop` away from the caller.
  class Rank final : public actor::CallTarget {
   public:
    Rank(Ranks& all, int rank, int hop) : all_(all), rank_(rank), hop_(hop) {}

    uint64_t Call(actor::CalledMethod method, std::string arguments,
                  Done done) override {
      ++all_.messages;
      all_.hops = std::max(all_.hops, hop_);
      if (method.name != std::string(actor::kRelayMethod)) {
        const auto failed = all_.fails.find(rank_);
        if (failed != all_.fails.end()) {
          std::move(done)(failed->second);
        } else {
          std::move(done)(EncodeValue(rank_));
        }
        return 0;
      }
      GroupCall call = *DecodeValue<GroupCall>(arguments);
      EXPECT_EQ(call.members.front().rank, rank_);
      all_.Send(call, actor::SelfAndBranchesOf(call.members), hop_ + 1,
                [done = std::move(done)](SliceResult result) mutable {
                  std::move(done)(EncodeValue(result));
                });
      return 0;
    }
    void Cancel(uint64_t /*call*/) override {}

   private:
    Ranks& all_;
    const int rank_;
    const int hop_;
  };

  void Send(const GroupCall& call, const Parts& parts, int hop,
            actor::FanOut::Done done) {
    actor::SendParts(
        call, parts,
        [this, hop](const Member& member) {
          return std::make_shared<Rank>(*this, member.rank, hop);
        },
        FanOutOf(call, parts, std::move(done)));
  }
};

std::string MethodName() {
  return actor::AutoMethod<Worker, &Worker::Rank>::Name();
}

TEST(GroupTreeTest, AProcessIsCalledOnceAndCallsItsActors) {
  actor::Member process{.rank = 4, .addresses = {}, .actors = {0, 2, 3}};
  const std::vector<Member> one = {process};
  EXPECT_THAT(BranchesOf(one), SizeIs(1));
  std::vector<Member> members = {process,
                                 {.rank = 9, .addresses = {}, .actors = {}}};
  const Parts parts = actor::SelfAndBranchesOf(members);
  std::vector<int> ranks;
  for (const auto& part : parts) {
    ASSERT_THAT(part, SizeIs(1));
    ranks.push_back(part.front().first_rank());
    EXPECT_LE(part.front().actors.size(), 1u);
  }
  EXPECT_THAT(ranks, ::testing::ElementsAre(4, 6, 7, 9));
}

TEST(GroupTreeTest, PartsAreEvenAndInOrder) {
  for (const int count : {1, 7, 8, 9, 64, 100, 1024}) {
    const std::vector<Member> members = Members(count);
    int next = 0;
    for (const auto& part : BranchesOf(members)) {
      EXPECT_THAT(part, SizeIs(AllOf(Ge(count / 8), Le(count / 8 + 1))));
      for (const Member& member : part) EXPECT_EQ(member.rank, next++);
    }
    EXPECT_EQ(next, count);
  }
}

TEST(GroupTreeTest, ThousandRanksAreFewHopsAway) {
  Ranks ranks;
  const SliceResult result =
      ranks.Call({.method = MethodName(), .members = Members(1024)});
  COHORT_EXPECT_OK(result.status);
  ASSERT_THAT(result.values, SizeIs(1024));
  for (int rank = 0; rank < 1024; ++rank) {
    EXPECT_THAT(DecodeValue<int>(result.values[static_cast<size_t>(rank)]),
                IsOkAndHolds(rank));
  }
  // A relay calls itself, too.
  EXPECT_LE(ranks.hops, 5);
  EXPECT_LE(ranks.messages, 1024 + 1024 / 2);
}

TEST(GroupTreeTest, ReducesOnTheWayUp) {
  Ranks ranks;
  const SliceResult result =
      ranks.Call({.method = MethodName(),
                  .reducer = actor::AutoReducer<Sum, int>::Name(),
                  .members = Members(1000)});
  COHORT_EXPECT_OK(result.status);
  ASSERT_THAT(result.values, SizeIs(1));
  EXPECT_THAT(DecodeValue<int>(result.values[0]), IsOkAndHolds(999 * 500));
}

TEST(GroupTreeTest, NamesTheRankThatFailed) {
  for (const int failed : {0, 1, 500, 999}) {
    Ranks ranks;
    ranks.fails[failed] = absl::AbortedError("no");
    const SliceResult result =
        ranks.Call({.method = MethodName(), .members = Members(1000)});
    EXPECT_THAT(result.status, StatusIs(absl::StatusCode::kAborted));
    EXPECT_EQ(result.failed_rank, failed);
  }
}

TEST(GroupTreeTest, SaysWhatThisProgramDoesNotHave) {
  Ranks ranks;
  EXPECT_THAT(ranks.Call({.method = "none", .members = Members(20)}).status,
              StatusIs(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(ranks
                  .Call({.method = MethodName(),
                         .reducer = "none",
                         .members = Members(20)})
                  .status,
              StatusIs(absl::StatusCode::kUnimplemented));
}

TEST(GroupTreeTest, AFlushGoesOnPastWhoFails) {
  Ranks ranks;
  ranks.fails[3] = absl::UnavailableError("gone");
  const SliceResult result =
      ranks.Call({.method = actor::kFlushMethod, .members = Members(100)});
  COHORT_EXPECT_OK(result.status);
  EXPECT_GE(ranks.messages, 100);
}

}  // namespace cohort::group_tree_test

#include "head/state/run_controller.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "head/state/attempt_table.h"
#include "head/state/job_spec.h"
#include "head/state/job_table.h"
#include "head/state/reconciler.h"
#include "head/state/testing/run_controller_fixture.h"
#include "head/store/enum_text.h"
#include "head/testing/messages.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr AttemptState kStates[] = {
    v1::ATTEMPT_STATE_PREPARING, v1::ATTEMPT_STATE_RUNNING,
    v1::ATTEMPT_STATE_ENDING, v1::ATTEMPT_STATE_ENDED};

// Each pair, legal and illegal.
TEST(AttemptEdgeTest, AreAsDrawn) {
  const std::set<std::pair<AttemptState, AttemptState>> edges = {
      {v1::ATTEMPT_STATE_PREPARING, v1::ATTEMPT_STATE_RUNNING},
      {v1::ATTEMPT_STATE_PREPARING, v1::ATTEMPT_STATE_ENDING},
      {v1::ATTEMPT_STATE_RUNNING, v1::ATTEMPT_STATE_ENDING},
      {v1::ATTEMPT_STATE_RUNNING, v1::ATTEMPT_STATE_ENDED},
      {v1::ATTEMPT_STATE_ENDING, v1::ATTEMPT_STATE_ENDED},
  };
  for (const AttemptState from : kStates) {
    for (const AttemptState to : kStates) {
      EXPECT_EQ(MayMove(from, to), edges.contains({from, to}))
          << EnumText(from) << " " << EnumText(to);
    }
  }
}

TEST_F(RunControllerTest, AgreesOnTheMasterBeforeAnyRankStarts) {
  Say(b_, At(v1::PHASE_PREPARED));
  EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_PREPARING);
  ObservedAttempt with_port = At(v1::PHASE_PREPARED);
  with_port.master_port = 29500;
  const RunOutcome outcome = Say(a_, with_port);
  EXPECT_TRUE(outcome.goals_changed);
  EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_RUNNING);
  EXPECT_EQ(attempt_.master_address, "host-a");
  EXPECT_EQ(attempt_.master_port, 29500);
  EXPECT_EQ(job_.state, v1::JOB_STATE_STARTING);
}

TEST_F(RunControllerTest, WaitsAgainForANodeThatPreparesAnew) {
  Say(a_, At(v1::PHASE_PREPARED));
  Say(a_, At(v1::PHASE_PREPARING));
  Say(b_, At(v1::PHASE_PREPARED));
  EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_PREPARING);
  Say(a_, At(v1::PHASE_PREPARED));
  EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_RUNNING);
}

TEST_F(RunControllerTest, SucceedsWhenAllRanksExitWithZero) {
  Run();
  EXPECT_THAT(Say(a_, Exited(0, 0)).parts_over, ElementsAre(a_));
  EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_RUNNING);
  const RunOutcome outcome = Say(b_, Exited(1, 0));
  EXPECT_TRUE(outcome.attempt_ended);
  EXPECT_EQ(job_.state, v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job_.exit, ExitStatus{});
  EXPECT_EQ(attempt_.cause, v1::ATTEMPT_CAUSE_SUCCEEDED);
  EXPECT_EQ(job_.failures, 0);
}

TEST_F(RunControllerTest,
       SucceedsThroughRunningWhenRanksAreQuickerThanReports) {
  Say(a_, At(v1::PHASE_PREPARED));
  Say(b_, At(v1::PHASE_PREPARED));
  Say(a_, Exited(0, 0));
  EXPECT_THAT(Say(b_, Exited(1, 0)).job_moves,
              ElementsAre(v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED));
}

// JB-2.
TEST_F(RunControllerTest, ChargesAFailureOnceAndOnlyWhenTheAttemptHasEnded) {
  job_.spec.Own().mutable_run()->set_max_failures(1);
  Run();
  Say(b_, Exited(1, 3));
  EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_ENDING);
  EXPECT_EQ(job_.failures, 0);
  Say(a_, Exited(0, 143, /*by_order=*/true));
  EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_ENDED);
  EXPECT_EQ(job_.failures, 1);
  EXPECT_EQ(job_.state, v1::JOB_STATE_PENDING);
  EXPECT_EQ(job_.failed_rank, 1);
  EXPECT_EQ(job_.exit->code(), 3);
  EXPECT_THAT(job_.reason, HasSubstr("rank 1 exited with code 3"));

  Begin();
  EXPECT_EQ(job_.attempts, 2);
  // Why it failed last is told while it runs again.
  EXPECT_EQ(job_.exit->code(), 3);
  EXPECT_EQ(job_.failure_class, v1::FAILURE_CLASS_USER);
  Run();
  Say(a_, Exited(0, 4));
  Say(b_, Exited(1, 143, /*by_order=*/true));
  EXPECT_EQ(job_.failures, 2);
  EXPECT_EQ(job_.state, v1::JOB_STATE_FAILED);
  EXPECT_EQ(job_.failed_rank, 0);
}

TEST_F(RunControllerTest, HasNoLimitWithMinusOne) {
  job_.spec.Own().mutable_run()->set_max_failures(-1);
  for (int i = 1; i <= 20; ++i) {
    if (i > 1) Begin();
    Run();
    Say(a_, Exited(0, 1));
    Say(b_, Exited(1, 1, /*by_order=*/true));
    EXPECT_EQ(job_.state, v1::JOB_STATE_PENDING);
    EXPECT_EQ(job_.failures, i);
  }
}

TEST_F(RunControllerTest, TakesTheRankThatFailedFirstOnItsNode) {
  attempt_.parts[0].ranks.push_back({.rank = 2, .local_rank = 1});
  Run();
  ObservedAttempt both = Exited(0, 1);
  both.ranks[0].exit_order = 2;
  both.ranks.push_back(both.ranks[0]);
  both.ranks[1].rank = 2;
  both.ranks[1].exit = ExitOf({.code = 0, .signal = 11});
  both.ranks[1].exit_order = 1;
  Say(a_, both);
  EXPECT_EQ(attempt_.failed_rank, 2);
  EXPECT_EQ(attempt_.exit->signal(), 11);
  // Between nodes the first report counts.
  Say(b_, Exited(1, 7));
  EXPECT_EQ(attempt_.failed_rank, 2);
}

TEST_F(RunControllerTest, ChargesAPrepareThatFails) {
  ObservedAttempt failed = At(v1::PHASE_ENDED);
  failed.end = v1::END_CAUSE_PREPARE_FAILED;
  failed.detail = "no such package";
  Say(a_, failed);
  EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_ENDING);
  ObservedAttempt stopped = At(v1::PHASE_ENDED);
  stopped.end = v1::END_CAUSE_EXITED;
  Say(b_, stopped);
  EXPECT_EQ(job_.failures, 1);
  EXPECT_EQ(job_.state, v1::JOB_STATE_FAILED);
  EXPECT_THAT(job_.reason, HasSubstr("no such package"));
}

// BG-1: not the user's failure, and nothing that another attempt mends.
TEST_F(RunControllerTest, EndsAJobWhosePackageIsLostWithoutCharge) {
  job_.spec.Own().mutable_run()->set_max_failures(-1);
  ObservedAttempt failed = At(v1::PHASE_ENDED);
  failed.end = v1::END_CAUSE_PACKAGE_LOST;
  failed.detail = "fetching package 68: the head has no file 68; upload it";
  Say(a_, failed);
  EXPECT_EQ(attempt_.cause, v1::ATTEMPT_CAUSE_PACKAGE_LOST);
  ObservedAttempt stopped = At(v1::PHASE_ENDED);
  stopped.end = v1::END_CAUSE_EXITED;
  Say(b_, stopped);
  EXPECT_EQ(job_.state, v1::JOB_STATE_FAILED);
  EXPECT_EQ(job_.failure_class, v1::FAILURE_CLASS_INFRA);
  EXPECT_EQ(job_.failures, 0);
  EXPECT_EQ(job_.infra_restarts, 0);
  EXPECT_THAT(job_.reason, HasSubstr("fetching package 68"));
  EXPECT_THAT(job_.causes.front(), HasSubstr("fetching package 68"));
  EXPECT_THAT(job_.causes.back(), HasSubstr("without its package"));
}

TEST_F(RunControllerTest, StartsAgainThreeTimesAfterLossesBeforeItCharges) {
  for (int loss = 1; loss <= 4; ++loss) {
    if (loss > 1) Begin();
    Run();
    Made(controller_.LosePart(job_, attempt_, b_, "node b was silent"));
    EXPECT_EQ(attempt_.cause, v1::ATTEMPT_CAUSE_NODE_LOST);
    EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_ENDING);
    Say(a_, Exited(0, 143, /*by_order=*/true));
    EXPECT_EQ(job_.infra_restarts, std::min(loss, 3));
    EXPECT_EQ(job_.failures, loss <= 3 ? 0 : 1);
    EXPECT_EQ(job_.state,
              loss <= 3 ? v1::JOB_STATE_PENDING : v1::JOB_STATE_FAILED);
    EXPECT_EQ(absl::StrContains(job_.reason, "it started again 3 times"),
              loss > 3)
        << job_.reason;
  }
}

// A sibling's report of the broken gang may come before the loss is known.
TEST_F(RunControllerTest, AttributesASiblingsFailureToTheLossThatCausedIt) {
  Run();
  Say(a_, Exited(0, 1));
  EXPECT_EQ(attempt_.cause, v1::ATTEMPT_CAUSE_RANK_FAILED);
  ObservedAttempt lost = At(v1::PHASE_ENDED);
  lost.end = v1::END_CAUSE_KEEPER_LOST;
  Say(b_, lost);
  EXPECT_EQ(attempt_.cause, v1::ATTEMPT_CAUSE_KEEPER_LOST);
  EXPECT_EQ(job_.failures, 0);
  EXPECT_EQ(job_.infra_restarts, 1);
  EXPECT_EQ(job_.state, v1::JOB_STATE_PENDING);
}

TEST_F(RunControllerTest, CountsNothingWhenTheDaemonsWereShutDown) {
  Run();
  ObservedAttempt shut_down = Exited(0, 143, /*by_order=*/true);
  shut_down.end = v1::END_CAUSE_DAEMON_SHUTDOWN;
  Say(a_, shut_down);
  Say(b_, Exited(1, 1, /*by_order=*/true));
  EXPECT_EQ(job_.state, v1::JOB_STATE_PENDING);
  EXPECT_EQ(job_.failures, 0);
  EXPECT_EQ(job_.infra_restarts, 0);
}

TEST_F(RunControllerTest, StopsAlsoWhenAllRanksHappenToSucceed) {
  Run();
  const RunOutcome outcome = Made(controller_.Stop(job_, attempt_));
  EXPECT_TRUE(outcome.goals_changed);
  EXPECT_EQ(job_.state, v1::JOB_STATE_STOPPING);
  Say(a_, Exited(0, 0));
  Say(b_, Exited(1, 0));
  EXPECT_EQ(job_.state, v1::JOB_STATE_STOPPED);
  EXPECT_EQ(job_.failures, 0);
}

TEST_F(RunControllerTest, StopsWhileAFailedAttemptIsEnding) {
  job_.spec.Own().mutable_run()->set_max_failures(5);
  Run();
  Say(a_, Exited(0, 1));
  Made(controller_.Stop(job_, attempt_));
  EXPECT_EQ(attempt_.cause, v1::ATTEMPT_CAUSE_RANK_FAILED);
  Say(b_, Exited(1, 1, /*by_order=*/true));
  EXPECT_EQ(job_.state, v1::JOB_STATE_STOPPED);
  EXPECT_EQ(job_.failures, 0);
}

// ---- classes and causes ----

TEST_F(RunControllerTest, TellsTheChainThatBeganWithTheLossOfANode) {
  job_.spec.Own().mutable_run()->set_max_failures(1);
  Run();
  Say(a_, Exited(0, 1));  // torn by the loss, and reported before it
  Made(controller_.LosePart(job_, attempt_, b_, "node b was silent for 10s"));
  EXPECT_EQ(job_.failure_class, v1::FAILURE_CLASS_INFRA);
  EXPECT_THAT(job_.failures_by_class,
              ElementsAre(Pair(v1::FAILURE_CLASS_INFRA, 1)));
  EXPECT_THAT(job_.causes,
              ElementsAre("node b was silent for 10s", "rank 1 on b was lost",
                          "rank 0 on a exited with code 1", "attempt 1 ended"));
  EXPECT_EQ(attempt_.causes, job_.causes);
}

TEST_F(RunControllerTest, TellsTheChainThatBeganWithARank) {
  Run();
  Say(b_, Exited(1, 3));
  Say(a_, Exited(0, 143, /*by_order=*/true));
  EXPECT_EQ(job_.failure_class, v1::FAILURE_CLASS_USER);
  EXPECT_THAT(job_.causes,
              ElementsAre("rank 1 on b exited with code 3",
                          "attempt 1 ended; 1 sibling was stopped",
                          "--max-failures 0 allows no other attempt"));
}

TEST_F(RunControllerTest, ANodeThatPreparesWhatRanHasLostIt) {
  Run();
  const RunOutcome outcome = Say(b_, At(v1::PHASE_PREPARING));
  EXPECT_THAT(outcome.parts_over, ElementsAre(b_));
  EXPECT_TRUE(outcome.attempt_changed);
  EXPECT_EQ(attempt_.cause, v1::ATTEMPT_CAUSE_NODE_LOST);
  EXPECT_EQ(PartOn(attempt_, b_)->phase, v1::PART_PHASE_LOST);
  Say(a_, Exited(0, 143, /*by_order=*/true));
  EXPECT_EQ(job_.state, v1::JOB_STATE_PENDING);
  EXPECT_EQ(job_.infra_restarts, 1);
}

TEST_F(RunControllerTest, ARankThatDiedWithItsKeeperIsNoStoppedSibling) {
  Run();
  ObservedAttempt lost = Exited(0, 0, /*by_order=*/true);
  lost.end = v1::END_CAUSE_KEEPER_LOST;
  lost.detail = "the keeper died";
  lost.ranks[0].exit = ExitOf({.signal = 9, .detail = "the keeper died"});
  Say(a_, lost);
  Say(b_, Exited(1, 143, /*by_order=*/true));
  EXPECT_THAT(job_.causes,
              ElementsAre("a: the keeper died", "rank 0 on a was lost",
                          "attempt 1 ended; 1 sibling was "
                          "stopped"));
}

TEST_F(RunControllerTest, ARankThatWasStoppedWithItsKeeperIsNoStoppedSibling) {
  Run();
  ObservedAttempt lost = Exited(0, 0, /*by_order=*/true);
  lost.end = v1::END_CAUSE_KEEPER_LOST;
  lost.detail = "the keeper was told to stop";
  lost.ranks[0].exit = ExitOf({.code = 1, .detail = lost.detail});
  Say(a_, lost);
  Say(b_, Exited(1, 0, /*by_order=*/true));
  EXPECT_EQ(job_.failure_class, v1::FAILURE_CLASS_INFRA);
  EXPECT_EQ(job_.failures, 0);
  EXPECT_EQ(job_.state, v1::JOB_STATE_PENDING);
  EXPECT_THAT(job_.causes,
              ElementsAre("a: the keeper was told to stop",
                          "rank 0 on a was lost", "attempt 1 ended"));
}

TEST_F(RunControllerTest, TellsWhatIsOutOfMemoryFromTheUsersFailures) {
  Run();
  ObservedAttempt oom = Exited(1, 0);
  oom.ranks[0].exit = ExitOf({.signal = 9, .oom_killed = true});
  Say(b_, oom);
  // Died of it, not charged beside it.
  Say(a_, Exited(0, 1));
  EXPECT_EQ(job_.failure_class, v1::FAILURE_CLASS_OOM);
  EXPECT_THAT(job_.failures_by_class,
              ElementsAre(Pair(v1::FAILURE_CLASS_OOM, 1)));
  EXPECT_EQ(job_.failures, 1);
  EXPECT_EQ(job_.failed_rank, 1);
}

// A keeper that dies after a rank of its own did not take that rank along.
TEST_F(RunControllerTest, LetsARanksFailureStandWhenItsOwnKeeperIsLostLater) {
  Run();
  ObservedAttempt failed = Exited(0, 3);
  failed.phase = v1::PHASE_RUNNING;
  Say(a_, failed);
  failed.phase = v1::PHASE_ENDED;
  failed.end = v1::END_CAUSE_KEEPER_LOST;
  Say(a_, failed);
  Say(b_, Exited(1, 143, /*by_order=*/true));
  EXPECT_EQ(attempt_.cause, v1::ATTEMPT_CAUSE_RANK_FAILED);
  EXPECT_EQ(job_.failure_class, v1::FAILURE_CLASS_USER);
  EXPECT_EQ(job_.failures, 1);
}

TEST_F(RunControllerTest, CountsASecondLossOfOneAttemptOnce) {
  Run();
  Made(controller_.LosePart(job_, attempt_, b_, "node b was silent"));
  Made(controller_.LosePart(job_, attempt_, a_, "node a was silent"));
  EXPECT_EQ(job_.infra_restarts, 1);
  EXPECT_THAT(job_.failures_by_class,
              ElementsAre(Pair(v1::FAILURE_CLASS_INFRA, 1)));
  EXPECT_THAT(job_.causes,
              ElementsAre("node b was silent", "rank 1 on b was lost",
                          "node a was silent", "rank 0 on a was lost",
                          "attempt 1 ended"));
}

TEST_F(RunControllerTest, BoundsTheChainOfCauses) {
  Run();
  attempt_.causes.assign(kCausesMax, "x");
  attempt_.causes[0] = "first";
  Made(controller_.LosePart(job_, attempt_, b_, std::string(9'000, 'y')));
  EXPECT_EQ(attempt_.causes.size(), kCausesMax);
  EXPECT_EQ(attempt_.causes[0], "first");
  EXPECT_EQ(attempt_.causes[1], "... 3 more");
  EXPECT_EQ(attempt_.causes.back(), "rank 1 on b was lost");
  attempt_.causes.push_back("z");
  attempt_.causes.push_back("z");
  Shorten(attempt_.causes);
  EXPECT_EQ(attempt_.causes.size(), kCausesMax);
  EXPECT_EQ(attempt_.causes[1], "... 5 more");
  Say(a_, Exited(0, 143, /*by_order=*/true));
  EXPECT_EQ(job_.causes.size(), kCausesMax + 1);
  for (const std::string& cause : job_.causes) {
    EXPECT_LE(cause.size(), kCauseBytesMax);
  }
}

TEST_F(RunControllerTest, EvictsWithoutACharge) {
  Run();
  const RunOutcome outcome =
      Made(controller_.Evict(job_, attempt_, "node b is drained: new kernel"));
  EXPECT_TRUE(outcome.goals_changed);
  EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_ENDING);
  EXPECT_FALSE(Made(controller_.Evict(job_, attempt_, "again")).goals_changed);
  Say(b_, Exited(1, 143, /*by_order=*/true));
  Say(a_, Exited(0, 1));  // torn
  EXPECT_EQ(job_.state, v1::JOB_STATE_PENDING);
  EXPECT_EQ(job_.failure_class, v1::FAILURE_CLASS_PREEMPTED);
  EXPECT_EQ(job_.failures, 0);
  EXPECT_EQ(job_.infra_restarts, 0);
  EXPECT_THAT(job_.causes,
              ElementsAre("node b is drained: new kernel",
                          "attempt 1 ended; 2 ranks were stopped"));
}

TEST_F(RunControllerTest, EvictsWhatHasNotStarted) {
  Made(controller_.Evict(job_, attempt_, "node b is drained"));
  ObservedAttempt stopped = At(v1::PHASE_ENDED);
  stopped.end = v1::END_CAUSE_EXITED;
  Say(a_, stopped);
  Say(b_, stopped);
  EXPECT_EQ(job_.state, v1::JOB_STATE_PENDING);
  EXPECT_EQ(job_.failure_class, v1::FAILURE_CLASS_PREEMPTED);
}

TEST_F(RunControllerTest, KeepsTheLastFailureUntilTheNextOneOrSuccess) {
  job_.spec.Own().mutable_run()->set_max_failures(2);
  Run();
  ObservedAttempt failed = Exited(0, 1);
  failed.stderr_tail = "first";
  Say(a_, failed);
  Say(b_, Exited(1, 143, /*by_order=*/true));
  Begin();
  Run();
  EXPECT_EQ(job_.stderr_tail, "first");
  EXPECT_EQ(job_.failed_rank, 0);
  failed = Exited(1, 2);
  failed.phase = v1::PHASE_RUNNING;
  Say(b_, failed);
  EXPECT_EQ(job_.stderr_tail, "");  // never that of another failure
  failed.phase = v1::PHASE_ENDED;
  failed.stderr_tail = "second";
  Say(b_, failed);
  Say(a_, Exited(0, 143, /*by_order=*/true));
  EXPECT_EQ(job_.stderr_tail, "second");
  EXPECT_EQ(job_.failed_rank, 1);
  Begin();
  Run();
  Say(a_, Exited(0, 0));
  Say(b_, Exited(1, 0));
  EXPECT_EQ(job_.state, v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job_.stderr_tail, "");
  EXPECT_EQ(job_.failed_rank, -1);
  EXPECT_EQ(job_.failure_class, v1::FAILURE_CLASS_NONE);
  EXPECT_THAT(job_.causes, IsEmpty());
  EXPECT_THAT(job_.failures_by_class,
              ElementsAre(Pair(v1::FAILURE_CLASS_USER, 2)));
}

TEST_F(RunControllerTest, DropsTheWordsOfAnEarlierFailureWhenANodeIsLost) {
  job_.spec.Own().mutable_run()->set_max_failures(1);
  Run();
  ObservedAttempt failed = Exited(0, 1);
  failed.stderr_tail = "first";
  Say(a_, failed);
  Say(b_, Exited(1, 143, /*by_order=*/true));
  Begin();
  Run();
  Made(controller_.LosePart(job_, attempt_, b_, "node b was silent"));
  Say(a_, Exited(0, 143, /*by_order=*/true));
  EXPECT_EQ(job_.failure_class, v1::FAILURE_CLASS_INFRA);
  EXPECT_EQ(job_.stderr_tail, "");
  EXPECT_EQ(job_.exit, std::nullopt);
}

// ---- the time limit ----

TEST_F(RunControllerTest, EndsTheJobAtItsTimeLimitWithoutAnotherAttempt) {
  job_.spec.Own().mutable_run()->set_max_failures(-1);
  job_.spec.Own().mutable_run()->set_time_limit_us(
      absl::ToInt64Microseconds(absl::Minutes(5)));
  Run();
  ObservedAttempt limit = Exited(1, 143, /*by_order=*/true);
  limit.end = v1::END_CAUSE_TIME_LIMIT;
  limit.ran = absl::Minutes(5);
  limit.stderr_tail = "step 9";
  Say(b_, limit);
  EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_ENDING);
  ObservedAttempt stopped = Exited(0, 143, /*by_order=*/true);
  stopped.ran = absl::Minutes(5) + absl::Milliseconds(200);
  Say(a_, stopped);
  EXPECT_EQ(job_.state, v1::JOB_STATE_FAILED);
  EXPECT_EQ(job_.failure_class, v1::FAILURE_CLASS_TIMEOUT);
  EXPECT_EQ(job_.reason, "ran for 5m, its --time-limit");
  EXPECT_EQ(job_.failures, 0);
  EXPECT_EQ(job_.exit->code(), 143);
  EXPECT_EQ(job_.failed_rank, 1);
  EXPECT_EQ(job_.stderr_tail, "step 9");
  EXPECT_EQ(job_.ran, absl::Minutes(5) + absl::Milliseconds(200));
  EXPECT_THAT(job_.causes,
              ElementsAre("it ran for 5m, its --time-limit, on b",
                          "attempt 1 ended; 2 ranks were stopped"));
}

// The limit on one node tears the ranks of another, which may report first.
TEST_F(RunControllerTest, AttributesASiblingsFailureToTheTimeLimitElsewhere) {
  job_.spec.Own().mutable_run()->set_time_limit_us(
      absl::ToInt64Microseconds(absl::Minutes(5)));
  Run();
  Say(a_, Exited(0, 1));
  ObservedAttempt limit = Exited(1, 143, /*by_order=*/true);
  limit.end = v1::END_CAUSE_TIME_LIMIT;
  Say(b_, limit);
  EXPECT_EQ(job_.failure_class, v1::FAILURE_CLASS_TIMEOUT);
}

TEST_F(RunControllerTest, SumsTheRunningTimeOverAttempts) {
  job_.spec.Own().mutable_run()->set_max_failures(9);
  job_.spec.Own().mutable_run()->set_time_limit_us(
      absl::ToInt64Microseconds(absl::Minutes(5)));
  Run();
  ObservedAttempt failed = Exited(0, 1);
  failed.ran = absl::Minutes(2);
  Say(a_, failed);
  Say(b_, Exited(1, 143, /*by_order=*/true));
  EXPECT_EQ(job_.ran, absl::Minutes(2));
  EXPECT_EQ(job_.state, v1::JOB_STATE_PENDING);
  Begin();
  Run();
  const DesiredAttempt desired = DesiredFor(job_, attempt_, attempt_.parts[0]);
  EXPECT_EQ(desired.time_limit, absl::Minutes(3));
  EXPECT_EQ(desired.grace, GraceOf(*job_.spec));
  failed = Exited(0, 1);
  failed.ran = absl::Minutes(3);
  Say(a_, failed);
  Say(b_, Exited(1, 143, /*by_order=*/true));
  // It failed just before; no time is left for another attempt.
  EXPECT_EQ(job_.state, v1::JOB_STATE_FAILED);
  EXPECT_EQ(job_.failure_class, v1::FAILURE_CLASS_USER);
  EXPECT_THAT(job_.reason, HasSubstr("nothing is left of its --time-limit 5m"));
}

TEST_F(RunControllerTest, TakesNoNodesWordForTimesThatCannotBe) {
  Run();
  ObservedAttempt done = Exited(0, 0);
  done.ran = -absl::InfiniteDuration();
  Say(a_, done);
  Say(b_, Exited(1, 0));
  EXPECT_EQ(job_.ran, absl::ZeroDuration());
  EXPECT_EQ(job_.state, v1::JOB_STATE_SUCCEEDED);
}

TEST_F(RunControllerTest, GivesTheJobsGraceToAStopAndLittleToASibling) {
  job_.spec.Own().mutable_run()->set_grace_us(
      absl::ToInt64Microseconds(absl::Seconds(42)));
  Run();
  AttemptRecord stopped = attempt_;
  JobRecord job = job_;
  controller_.Stop(job, stopped);
  EXPECT_EQ(DesiredFor(job, stopped, stopped.parts[0]).grace,
            absl::Seconds(42));
  AttemptRecord evicted = attempt_;
  controller_.Evict(job, evicted, "drained");
  EXPECT_EQ(DesiredFor(job, evicted, evicted.parts[0]).grace,
            absl::Seconds(42));
  Say(b_, Exited(1, 3));
  EXPECT_EQ(DesiredFor(job_, attempt_, attempt_.parts[0]).grace,
            absl::Seconds(1));
}

// CK-1.
TEST_F(RunControllerTest, CommitsCheckpointsFencedByAttemptAndEpoch) {
  Run();
  const RunOutcome outcome = Say(a_, Committing(10));
  EXPECT_THAT(outcome.acknowledged, ElementsAre(Path(10)));
  ASSERT_EQ(job_.checkpoints.size(), 1);
  EXPECT_EQ(job_.checkpoints[0].step(), 10);

  // Repeated, of another epoch, of another attempt's directory.
  Say(a_, Committing(10));
  ObservedAttempt stale = Committing(11);
  stale.checkpoints[0].set_epoch(stale.checkpoints[0].epoch() - 1);
  Say(a_, stale);
  ObservedAttempt foreign = Committing(12);
  foreign.checkpoints[0].set_path("/s/j/attempt-9.9/step-12");
  EXPECT_THAT(Say(a_, foreign).acknowledged,
              ElementsAre("/s/j/attempt-9.9/step-12"));
  EXPECT_EQ(job_.checkpoints.size(), 1);
}

TEST_F(RunControllerTest,
       RetiresAllButTheLastOnesUntilTheirDirectoriesAreGone) {
  job_.spec.Own().mutable_run()->set_num_to_keep(1);
  Run();
  Say(a_, Committing(1));
  const RunOutcome outcome = Say(a_, Committing(2));
  EXPECT_TRUE(outcome.retired_changed);
  EXPECT_EQ(job_.checkpoints.size(), 1);
  EXPECT_THAT(job_.retired, ElementsAre(Path(1)));

  ObservedAttempt removed = At(v1::PHASE_RUNNING);
  removed.removed_checkpoints = {Path(1)};
  EXPECT_TRUE(Say(a_, removed).retired_changed);
  EXPECT_THAT(job_.retired, IsEmpty());
  // The worker repeats a record whose acknowledgement was lost.
  Say(a_, Committing(1));
  EXPECT_EQ(job_.checkpoints.size(), 1);
  EXPECT_EQ(job_.checkpoints[0].step(), 2);
}

TEST_F(RunControllerTest, KeepsRankZerosLastMetrics) {
  Run();
  ObservedAttempt report = At(v1::PHASE_RUNNING);
  report.metrics = {{.rank = 0, .count = 2, .json = "{\"loss\":2}"}};
  EXPECT_TRUE(Say(a_, report).metrics_changed);
  EXPECT_FALSE(Say(a_, report).metrics_changed);
  ObservedAttempt other = At(v1::PHASE_RUNNING);
  other.metrics = {{.rank = 1, .count = 9, .json = "{\"loss\":9}"}};
  EXPECT_FALSE(Say(b_, other).metrics_changed);
  // Not even under rank 0's name.
  other.metrics[0].rank = 0;
  EXPECT_FALSE(Say(b_, other).metrics_changed);
  EXPECT_EQ(job_.metrics_json, "{\"loss\":2}");
  EXPECT_EQ(job_.metrics_count, 2);
}

TEST_F(RunControllerTest, KeepsTheFailedRanksStderrAlsoWhenItComesLate) {
  Run();
  Say(a_, Exited(0, 1));
  ObservedAttempt tail = Exited(0, 1);
  tail.stderr_tail = "Traceback";
  controller_.ObserveAfterwards(job_, attempt_, attempt_, b_, tail);
  EXPECT_EQ(job_.stderr_tail, "");
  controller_.ObserveAfterwards(job_, attempt_, attempt_, a_, tail);
  EXPECT_EQ(job_.stderr_tail, "Traceback");
}

TEST_F(RunControllerTest, CutsTextBetweenCharacters) {
  const RunController small({.detail_bytes_max = 4, .stderr_bytes_max = 4},
                            NamesFor(a_, "a"));
  Run();
  ObservedAttempt failed = Exited(0, 1);
  failed.stderr_tail = "abc\xC3\xA9";  // ends with a character of two bytes
  small.Observe(job_, attempt_, a_, failed);
  EXPECT_EQ(job_.stderr_tail, "abc");
}

TEST_F(RunControllerTest, IgnoresRanksThatAreNotOfThePart) {
  Run();
  ObservedAttempt wrong = Exited(1, 9);  // rank 1 is on b
  wrong.phase = v1::PHASE_RUNNING;
  Say(a_, wrong);
  EXPECT_EQ(attempt_.cause, v1::ATTEMPT_CAUSE_NONE);
  EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_RUNNING);
}

}  // namespace
}  // namespace cohort::head

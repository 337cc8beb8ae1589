#include "head/state/run_controller.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/exception_text.h"
#include "common/random.h"
#include "head/state/attempt_table.h"
#include "head/state/end_reason.h"
#include "head/state/failure_class.h"
#include "head/state/job_spec.h"
#include "head/state/job_table.h"
#include "head/state/reconciler.h"
#include "head/state/testing/run_controller_fixture.h"
#include "head/testing/messages.h"
#include "rpc/enum_text.h"

namespace cohort::head {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr AttemptState kAttemptStates[] = {
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
  for (const AttemptState from : kAttemptStates) {
    for (const AttemptState to : kAttemptStates) {
      EXPECT_EQ(MayMove(from, to), edges.contains({from, to}))
          << EnumText(from) << " " << EnumText(to);
    }
  }
}

TEST_F(RunControllerTest, AgreesOnTheMasterBeforeAnyRankStarts) {
  Say(b_, At(Stage::kPrepared));
  EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_PREPARING);
  v1::ObservedPlace with_port = At(Stage::kPrepared);
  with_port.set_master_port(29501);
  const RunOutcome outcome = Say(a_, with_port);
  EXPECT_TRUE(outcome.goals_changed);
  EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_RUNNING);
  EXPECT_EQ(attempt_.master_address, "host-a");
  EXPECT_EQ(attempt_.master_port, 29501);
  EXPECT_EQ(job_.row.state(), v1::JOB_STATE_STARTING);
}

TEST_F(RunControllerTest, WaitsAgainForANodeThatPreparesAnew) {
  Say(a_, At(Stage::kPrepared));
  Say(a_, At(Stage::kPreparing));
  Say(b_, At(Stage::kPrepared));
  EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_PREPARING);
  Say(a_, At(Stage::kPrepared));
  EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_RUNNING);
}

TEST_F(RunControllerTest, SucceedsWhenAllRanksExitWithZero) {
  Run();
  EXPECT_THAT(Say(a_, Exited(0, 0)).over, ElementsAre(Pair(_, a_)));
  EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_RUNNING);
  const RunOutcome outcome = Say(b_, Exited(1, 0));
  EXPECT_TRUE(outcome.attempt_ended);
  EXPECT_EQ(job_.row.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(job_.row.has_exit());
  EXPECT_EQ(job_.row.exit(), ExitStatus());
  EXPECT_EQ(attempt_.cause, v1::ATTEMPT_CAUSE_SUCCEEDED);
  EXPECT_EQ(job_.row.failures(), 0);
}

TEST_F(RunControllerTest,
       SucceedsThroughRunningWhenRanksAreQuickerThanReports) {
  Say(a_, At(Stage::kPrepared));
  Say(b_, At(Stage::kPrepared));
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
  EXPECT_EQ(job_.row.failures(), 0);
  Say(a_, Exited(0, 143, /*by_order=*/true));
  EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_ENDED);
  EXPECT_EQ(job_.row.failures(), 1);
  EXPECT_EQ(job_.row.state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(job_.row.failed_rank(), 1);
  EXPECT_EQ(job_.row.exit().code(), 3);
  EXPECT_THAT(job_.row.reason(), HasSubstr("rank 1 exited with code 3"));

  Begin();
  EXPECT_EQ(job_.row.attempts(), 2);
  // Why it failed last is told while it runs again.
  EXPECT_EQ(job_.row.exit().code(), 3);
  EXPECT_EQ(job_.row.failure_class(), v1::FAILURE_CLASS_USER);
  Run();
  Say(a_, Exited(0, 4));
  Say(b_, Exited(1, 143, /*by_order=*/true));
  EXPECT_EQ(job_.row.failures(), 2);
  EXPECT_EQ(job_.row.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job_.row.failed_rank(), 0);
}

TEST_F(RunControllerTest, HasNoLimitWithMinusOne) {
  job_.spec.Own().mutable_run()->set_max_failures(-1);
  for (int i = 1; i <= 20; ++i) {
    if (i > 1) Begin();
    Run();
    Say(a_, Exited(0, 1));
    Say(b_, Exited(1, 1, /*by_order=*/true));
    EXPECT_EQ(job_.row.state(), v1::JOB_STATE_PENDING);
    EXPECT_EQ(job_.row.failures(), i);
  }
}

TEST_F(RunControllerTest, TakesTheRankThatFailedFirstOnItsNode) {
  attempt_.processes.push_back(
      {.slot = 2, .incarnation = 3, .node = a_, .local_rank = 1});
  Run();
  v1::ObservedPlace both = ExitedAt(attempt_, 1);
  both.mutable_processes(0)->set_exit_order(2);
  both.mutable_processes(2)->mutable_exit()->set_code(0);
  both.mutable_processes(2)->mutable_exit()->set_signal(11);
  both.mutable_processes(2)->set_exit_order(1);
  Say(a_, both);
  EXPECT_EQ(attempt_.failed_rank, 2);
  EXPECT_EQ(attempt_.exit->signal(), 11);
  // Between nodes the first report counts.
  Say(b_, Exited(1, 7));
  EXPECT_EQ(attempt_.failed_rank, 2);
}

TEST_F(RunControllerTest, TakesTheRankThatRaisedFirstWhereTheySayWhen) {
  const auto raised = [this](int slot, int code, int second, bool by_order) {
    v1::ObservedPlace place = Exited(slot, code, by_order);
    place.mutable_processes(0)->mutable_exit()->set_detail(absl::StrCat(
        "E", slot, RaisedText(absl::FromUnixSeconds(second)), "\nTraceback"));
    return place;
  };
  Run();
  Say(a_, raised(0, 1, 60, false));
  EXPECT_EQ(attempt_.failed_rank, 0);
  // It hung in its teardown and was stopped.
  Say(b_, raised(1, 143, 59, true));
  EXPECT_EQ(job_.row.failed_rank(), 1);
  EXPECT_EQ(job_.row.exit().code(), 143);
  EXPECT_EQ(job_.row.reason(),
            "attempt 1: rank 1 exited with code 143: E1 (raised at "
            "1970-01-01T00:00:59.000000Z)");
  ASSERT_EQ(job_.row.causes_size(), 4);
  EXPECT_THAT(job_.row.causes(0), HasSubstr("rank 1 on "));
  EXPECT_THAT(job_.row.causes(1), HasSubstr("rank 0 on "));
}

TEST_F(RunControllerTest, TakesTheRankThatRaisedBeforeAnotherOneEnded) {
  Run();
  Say(a_, EndedAt(0, 143, 60));
  EXPECT_EQ(attempt_.failed_rank, 0);
  Say(b_, Raised(EndedAt(1, 1, 62), 58));
  EXPECT_EQ(job_.row.failed_rank(), 1);
}

// Its keeper sees an end later than a rank whose collective breaks by it.
TEST_F(RunControllerTest, WhoRaisesOverARanksEndIsNotTheFirst) {
  Run();
  Say(a_, EndedAt(0, 3, 60));
  Say(b_, Raised(EndedAt(1, 143, 62), 59.9));
  EXPECT_EQ(job_.row.failed_rank(), 0);
}

TEST_F(RunControllerTest, SaysWhichRanksEndedWellWhileOthersRun) {
  Run();
  Say(b_, EndedAt(1, 0, 60));
  const auto text = [this](int second) {
    return EarlyExitText(attempt_, absl::FromUnixSeconds(second));
  };
  EXPECT_EQ(text(65), "");
  EXPECT_THAT(text(100), HasSubstr("rank 1 exited with 0 40s ago, while "
                                   "rank 0 still runs"));
}

TEST_F(RunControllerTest, AddsEachWarningOnce) {
  Run();
  v1::ObservedPlace warns = At(Stage::kRunning);
  warns.add_warnings("1 file\nwas not kept");
  Say(a_, warns);
  Say(a_, warns);
  EXPECT_THAT(job_.row.warnings(), ElementsAre("1 file was not kept"));
}

TEST_F(RunControllerTest, ChargesAPrepareThatFails) {
  v1::ObservedPlace failed = FailedBy(
      At(Stage::kPrepared), v1::END_CAUSE_PREPARE_FAILED, "no such package");
  Say(a_, failed);
  EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_ENDING);
  v1::ObservedPlace stopped =
      EndedBy(At(Stage::kRunning), v1::END_CAUSE_EXITED);
  Say(b_, stopped);
  EXPECT_EQ(job_.row.failures(), 1);
  EXPECT_EQ(job_.row.state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(job_.row.reason(), HasSubstr("no such package"));
}

// BG-1: not the user's failure, and nothing that another attempt mends.
TEST_F(RunControllerTest, EndsAJobWhosePackageIsLostWithoutCharge) {
  job_.spec.Own().mutable_run()->set_max_failures(-1);
  v1::ObservedPlace failed =
      FailedBy(At(Stage::kPrepared), v1::END_CAUSE_PACKAGE_LOST);
  failed.set_detail("fetching package 68: the head has no file 68; upload it");
  Say(a_, failed);
  EXPECT_EQ(attempt_.cause, v1::ATTEMPT_CAUSE_PACKAGE_LOST);
  v1::ObservedPlace stopped =
      EndedBy(At(Stage::kRunning), v1::END_CAUSE_EXITED);
  Say(b_, stopped);
  EXPECT_EQ(job_.row.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job_.row.failure_class(), v1::FAILURE_CLASS_INFRA);
  EXPECT_EQ(job_.row.failures(), 0);
  EXPECT_EQ(job_.row.infra_restarts(), 0);
  EXPECT_THAT(job_.row.reason(), HasSubstr("fetching package 68"));
  EXPECT_THAT(job_.row.causes()[0], HasSubstr("fetching package 68"));
  EXPECT_THAT(*job_.row.causes().rbegin(), HasSubstr("without its package"));
}

TEST_F(RunControllerTest, StartsAgainThreeTimesAfterLossesBeforeItCharges) {
  for (int loss = 1; loss <= 4; ++loss) {
    if (loss > 1) Begin();
    Run();
    Made(controller_.LosePlace(job_, attempt_, b_, "node b was silent"));
    EXPECT_EQ(attempt_.cause, v1::ATTEMPT_CAUSE_NODE_LOST);
    EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_ENDING);
    Say(a_, Exited(0, 143, /*by_order=*/true));
    EXPECT_EQ(job_.row.infra_restarts(), std::min(loss, 3));
    EXPECT_EQ(job_.row.failures(), loss <= 3 ? 0 : 1);
    EXPECT_EQ(job_.row.state(),
              loss <= 3 ? v1::JOB_STATE_PENDING : v1::JOB_STATE_FAILED);
    EXPECT_EQ(absl::StrContains(job_.row.reason(), "it started again 3 times"),
              loss > 3)
        << job_.row.reason();
  }
}

// A sibling's report of the broken gang may come before the loss is known.
TEST_F(RunControllerTest, AttributesASiblingsFailureToTheLossThatCausedIt) {
  Run();
  Say(a_, Exited(0, 1));
  EXPECT_EQ(attempt_.cause, v1::ATTEMPT_CAUSE_RANK_FAILED);
  v1::ObservedPlace lost =
      EndedBy(At(Stage::kRunning), v1::END_CAUSE_KEEPER_LOST);
  Say(b_, lost);
  EXPECT_EQ(attempt_.cause, v1::ATTEMPT_CAUSE_KEEPER_LOST);
  EXPECT_EQ(job_.row.failures(), 0);
  EXPECT_EQ(job_.row.infra_restarts(), 1);
  EXPECT_EQ(job_.row.state(), v1::JOB_STATE_PENDING);
}

TEST_F(RunControllerTest, CountsNothingWhenTheDaemonsWereShutDown) {
  Run();
  v1::ObservedPlace shut_down = Exited(0, 143, /*by_order=*/true);
  shut_down = EndedBy(shut_down, v1::END_CAUSE_DAEMON_SHUTDOWN);
  Say(a_, shut_down);
  Say(b_, Exited(1, 1, /*by_order=*/true));
  EXPECT_EQ(job_.row.state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(job_.row.failures(), 0);
  EXPECT_EQ(job_.row.infra_restarts(), 0);
}

TEST_F(RunControllerTest, StopsAlsoWhenAllRanksHappenToSucceed) {
  Run();
  const RunOutcome outcome = Made(controller_.Stop(job_, attempt_));
  EXPECT_TRUE(outcome.goals_changed);
  EXPECT_EQ(job_.row.state(), v1::JOB_STATE_STOPPING);
  Say(a_, Exited(0, 0));
  Say(b_, Exited(1, 0));
  EXPECT_EQ(job_.row.state(), v1::JOB_STATE_STOPPED);
  EXPECT_EQ(job_.row.failures(), 0);
}

TEST_F(RunControllerTest, StopsWhileAFailedAttemptIsEnding) {
  job_.spec.Own().mutable_run()->set_max_failures(5);
  Run();
  Say(a_, Exited(0, 1));
  Made(controller_.Stop(job_, attempt_));
  EXPECT_EQ(attempt_.cause, v1::ATTEMPT_CAUSE_RANK_FAILED);
  Say(b_, Exited(1, 1, /*by_order=*/true));
  EXPECT_EQ(job_.row.state(), v1::JOB_STATE_STOPPED);
  EXPECT_EQ(job_.row.failures(), 0);
}

// ---- classes and causes ----

TEST_F(RunControllerTest, TellsTheChainThatBeganWithTheLossOfANode) {
  job_.spec.Own().mutable_run()->set_max_failures(1);
  Run();
  Say(a_, Exited(0, 1));  // torn by the loss, and reported before it
  Made(controller_.LosePlace(job_, attempt_, b_, "node b was silent for 10s"));
  EXPECT_EQ(job_.row.failure_class(), v1::FAILURE_CLASS_INFRA);
  EXPECT_EQ(job_.row.failures_by_class_size(), 1);
  EXPECT_EQ(FailuresOf(job_, v1::FAILURE_CLASS_INFRA), 1);
  EXPECT_THAT(job_.row.causes(),
              ElementsAre("node b was silent for 10s", "rank 1 on b was lost",
                          "rank 0 on a exited with code 1", "attempt 1 ended"));
  EXPECT_THAT(job_.row.causes(), ElementsAreArray(attempt_.causes));
}

TEST_F(RunControllerTest, TellsTheChainThatBeganWithARank) {
  Run();
  Say(b_, Exited(1, 3));
  Say(a_, Exited(0, 143, /*by_order=*/true));
  EXPECT_EQ(job_.row.failure_class(), v1::FAILURE_CLASS_USER);
  EXPECT_THAT(job_.row.causes(),
              ElementsAre("rank 1 on b exited with code 3",
                          "attempt 1 ended; 1 sibling was stopped",
                          "--max-failures 0 allows no other attempt"));
}

TEST_F(RunControllerTest, ANodeThatPreparesWhatRanHasLostIt) {
  Run();
  const RunOutcome outcome = Say(b_, At(Stage::kPreparing));
  EXPECT_THAT(outcome.over, ElementsAre(Pair(_, b_)));
  EXPECT_TRUE(outcome.attempt_changed);
  EXPECT_EQ(attempt_.cause, v1::ATTEMPT_CAUSE_NODE_LOST);
  EXPECT_TRUE(attempt_.processes[1].over());
  Say(a_, Exited(0, 143, /*by_order=*/true));
  EXPECT_EQ(job_.row.state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(job_.row.infra_restarts(), 1);
}

TEST_F(RunControllerTest, ARankThatDiedWithItsKeeperIsNoStoppedSibling) {
  Run();
  v1::ObservedPlace lost = Exited(0, 0, /*by_order=*/true);
  lost = EndedBy(lost, v1::END_CAUSE_KEEPER_LOST, "the keeper died");
  lost = WithExit(lost, ExitOf({.signal = 9, .detail = "the keeper died"}));
  Say(a_, lost);
  Say(b_, Exited(1, 143, /*by_order=*/true));
  EXPECT_THAT(job_.row.causes(),
              ElementsAre("a: the keeper died", "rank 0 on a was lost",
                          "attempt 1 ended; 1 sibling was "
                          "stopped"));
}

TEST_F(RunControllerTest, ARankThatWasStoppedWithItsKeeperIsNoStoppedSibling) {
  Run();
  v1::ObservedPlace lost = Exited(0, 0, /*by_order=*/true);
  const std::string why = "the keeper was told to stop";
  lost = EndedBy(lost, v1::END_CAUSE_KEEPER_LOST, why);
  lost = WithExit(lost, ExitOf({.code = 1, .detail = why}));
  Say(a_, lost);
  Say(b_, Exited(1, 0, /*by_order=*/true));
  EXPECT_EQ(job_.row.failure_class(), v1::FAILURE_CLASS_INFRA);
  EXPECT_EQ(job_.row.failures(), 0);
  EXPECT_EQ(job_.row.state(), v1::JOB_STATE_PENDING);
  EXPECT_THAT(job_.row.causes(),
              ElementsAre("a: the keeper was told to stop",
                          "rank 0 on a was lost", "attempt 1 ended"));
}

TEST_F(RunControllerTest, TellsWhatIsOutOfMemoryFromTheUsersFailures) {
  Run();
  v1::ObservedPlace oom = Exited(1, 0);
  oom = WithExit(oom, ExitOf({.signal = 9, .oom_killed = true}));
  Say(b_, oom);
  // Died of it, not charged beside it.
  Say(a_, Exited(0, 1));
  EXPECT_EQ(job_.row.failure_class(), v1::FAILURE_CLASS_OOM);
  EXPECT_EQ(job_.row.failures_by_class_size(), 1);
  EXPECT_EQ(FailuresOf(job_, v1::FAILURE_CLASS_OOM), 1);
  EXPECT_EQ(job_.row.failures(), 1);
  EXPECT_EQ(job_.row.failed_rank(), 1);
}

// A keeper that dies after a rank of its own did not take that rank along.
TEST_F(RunControllerTest, LetsARanksFailureStandWhenItsOwnKeeperIsLostLater) {
  Run();
  v1::ObservedPlace failed = Exited(0, 3);
  failed.mutable_processes(0)->set_state(v1::PROCESS_STATE_EXITED);
  Say(a_, failed);
  failed = EndedBy(failed, v1::END_CAUSE_KEEPER_LOST);
  Say(a_, failed);
  Say(b_, Exited(1, 143, /*by_order=*/true));
  EXPECT_EQ(attempt_.cause, v1::ATTEMPT_CAUSE_RANK_FAILED);
  EXPECT_EQ(job_.row.failure_class(), v1::FAILURE_CLASS_USER);
  EXPECT_EQ(job_.row.failures(), 1);
}

TEST_F(RunControllerTest, CountsASecondLossOfOneAttemptOnce) {
  Run();
  Made(controller_.LosePlace(job_, attempt_, b_, "node b was silent"));
  Made(controller_.LosePlace(job_, attempt_, a_, "node a was silent"));
  EXPECT_EQ(job_.row.infra_restarts(), 1);
  EXPECT_EQ(job_.row.failures_by_class_size(), 1);
  EXPECT_EQ(FailuresOf(job_, v1::FAILURE_CLASS_INFRA), 1);
  EXPECT_THAT(job_.row.causes(),
              ElementsAre("node b was silent", "rank 1 on b was lost",
                          "node a was silent", "rank 0 on a was lost",
                          "attempt 1 ended"));
}

TEST_F(RunControllerTest, BoundsTheChainOfCauses) {
  Run();
  attempt_.causes.assign(kCausesMax, "x");
  attempt_.causes[0] = "first";
  Made(controller_.LosePlace(job_, attempt_, b_, std::string(9'000, 'y')));
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
  EXPECT_THAT(job_.row.causes(), ::testing::SizeIs(kCausesMax + 1));
  for (const std::string& cause : job_.row.causes()) {
    EXPECT_LE(cause.size(), kCauseBytesMax);
  }
}

TEST_F(RunControllerTest, EvictsWithoutACharge) {
  Run();
  const RunOutcome outcome = Made(
      controller_.Evict(job_, attempt_, b_, "node b is drained: new kernel"));
  EXPECT_TRUE(outcome.goals_changed);
  EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_ENDING);
  EXPECT_FALSE(
      Made(controller_.Evict(job_, attempt_, b_, "again")).goals_changed);
  Say(b_, Exited(1, 143, /*by_order=*/true));
  Say(a_, Exited(0, 1));  // torn
  EXPECT_EQ(job_.row.state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(job_.row.failure_class(), v1::FAILURE_CLASS_PREEMPTED);
  EXPECT_EQ(job_.row.failures(), 0);
  EXPECT_EQ(job_.row.infra_restarts(), 0);
  EXPECT_THAT(job_.row.causes(),
              ElementsAre("node b is drained: new kernel",
                          "attempt 1 ended; 2 ranks were stopped"));
}

TEST_F(RunControllerTest, EvictsWhatHasNotStarted) {
  Made(controller_.Evict(job_, attempt_, b_, "node b is drained"));
  v1::ObservedPlace stopped =
      EndedBy(At(Stage::kRunning), v1::END_CAUSE_EXITED);
  Say(a_, stopped);
  Say(b_, stopped);
  EXPECT_EQ(job_.row.state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(job_.row.failure_class(), v1::FAILURE_CLASS_PREEMPTED);
}

TEST_F(RunControllerTest, KeepsTheLastFailureUntilTheNextOneOrSuccess) {
  job_.spec.Own().mutable_run()->set_max_failures(2);
  Run();
  v1::ObservedPlace failed = WithTail(Exited(0, 1), "first");
  Say(a_, failed);
  Say(b_, Exited(1, 143, /*by_order=*/true));
  Begin();
  Run();
  EXPECT_EQ(job_.row.stderr_tail(), "first");
  EXPECT_EQ(job_.row.failed_rank(), 0);
  failed = Exited(1, 2);
  failed.mutable_processes(0)->set_state(v1::PROCESS_STATE_EXITED);
  Say(b_, failed);
  EXPECT_EQ(job_.row.stderr_tail(), "");  // never that of another failure
  failed.mutable_processes(0)->set_state(v1::PROCESS_STATE_ENDED);
  Say(b_, WithTail(failed, "second"));
  Say(a_, Exited(0, 143, /*by_order=*/true));
  EXPECT_EQ(job_.row.stderr_tail(), "second");
  EXPECT_EQ(job_.row.failed_rank(), 1);
  Begin();
  Run();
  Say(a_, Exited(0, 0));
  Say(b_, Exited(1, 0));
  EXPECT_EQ(job_.row.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job_.row.stderr_tail(), "");
  EXPECT_EQ(job_.row.failed_rank(), -1);
  EXPECT_EQ(job_.row.failure_class(), v1::FAILURE_CLASS_NONE);
  EXPECT_THAT(job_.row.causes(), IsEmpty());
  EXPECT_EQ(job_.row.failures_by_class_size(), 1);
  EXPECT_EQ(FailuresOf(job_, v1::FAILURE_CLASS_USER), 2);
}

TEST_F(RunControllerTest, DropsTheWordsOfAnEarlierFailureWhenANodeIsLost) {
  job_.spec.Own().mutable_run()->set_max_failures(1);
  Run();
  v1::ObservedPlace failed = WithTail(Exited(0, 1), "first");
  Say(a_, failed);
  Say(b_, Exited(1, 143, /*by_order=*/true));
  Begin();
  Run();
  Made(controller_.LosePlace(job_, attempt_, b_, "node b was silent"));
  Say(a_, Exited(0, 143, /*by_order=*/true));
  EXPECT_EQ(job_.row.failure_class(), v1::FAILURE_CLASS_INFRA);
  EXPECT_EQ(job_.row.stderr_tail(), "");
  EXPECT_FALSE(job_.row.has_exit());
}

// ---- the time limit ----

TEST_F(RunControllerTest, EndsTheJobAtItsTimeLimitWithoutAnotherAttempt) {
  job_.spec.Own().mutable_run()->set_max_failures(-1);
  job_.spec.Own().mutable_run()->set_time_limit_us(
      absl::ToInt64Microseconds(absl::Minutes(5)));
  Run();
  v1::ObservedPlace limit = Exited(1, 143, /*by_order=*/true);
  limit = EndedBy(limit, v1::END_CAUSE_TIME_LIMIT);
  Say(b_, WithTail(WithRan(limit, absl::Minutes(5)), "step 9"));
  EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_ENDING);
  Say(a_, WithRan(Exited(0, 143, /*by_order=*/true),
                  absl::Minutes(5) + absl::Milliseconds(200)));
  EXPECT_EQ(job_.row.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job_.row.failure_class(), v1::FAILURE_CLASS_TIMEOUT);
  EXPECT_EQ(job_.row.reason(), "exceeded its --time-limit of 5m");
  EXPECT_EQ(job_.row.failures(), 0);
  EXPECT_EQ(job_.row.exit().code(), 143);
  EXPECT_EQ(job_.row.failed_rank(), 1);
  EXPECT_EQ(job_.row.stderr_tail(), "step 9");
  EXPECT_EQ(job_.ran(), absl::Minutes(5) + absl::Milliseconds(200));
  EXPECT_THAT(job_.row.causes(),
              ElementsAre("it exceeded its --time-limit of 5m on b",
                          "attempt 1 ended; 2 ranks were stopped"));
}

// The limit on one node tears the ranks of another, which may report first.
TEST_F(RunControllerTest, AttributesASiblingsFailureToTheTimeLimitElsewhere) {
  job_.spec.Own().mutable_run()->set_time_limit_us(
      absl::ToInt64Microseconds(absl::Minutes(5)));
  Run();
  Say(a_, Exited(0, 1));
  v1::ObservedPlace limit = Exited(1, 143, /*by_order=*/true);
  limit = EndedBy(limit, v1::END_CAUSE_TIME_LIMIT);
  Say(b_, limit);
  EXPECT_EQ(job_.row.failure_class(), v1::FAILURE_CLASS_TIMEOUT);
}

TEST_F(RunControllerTest, SumsTheRunningTimeOverAttempts) {
  job_.spec.Own().mutable_run()->set_max_failures(9);
  job_.spec.Own().mutable_run()->set_time_limit_us(
      absl::ToInt64Microseconds(absl::Minutes(5)));
  Run();
  Say(a_, WithRan(Exited(0, 1), absl::Minutes(2)));
  Say(b_, Exited(1, 143, /*by_order=*/true));
  EXPECT_EQ(job_.ran(), absl::Minutes(2));
  EXPECT_EQ(job_.row.state(), v1::JOB_STATE_PENDING);
  Begin();
  Run();
  const v1::DesiredProcess desired = DesiredOfA(job_, attempt_);
  EXPECT_EQ(rpc::FromWire(desired.time_limit()), absl::Minutes(3));
  EXPECT_EQ(rpc::FromWire(desired.grace()), GraceOf(*job_.spec));
  Say(a_, WithRan(Exited(0, 1), absl::Minutes(3)));
  Say(b_, Exited(1, 143, /*by_order=*/true));
  // It failed just before; no time is left for another attempt.
  EXPECT_EQ(job_.row.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job_.row.failure_class(), v1::FAILURE_CLASS_USER);
  EXPECT_THAT(job_.row.reason(),
              HasSubstr("its --time-limit of 5m is used up"));
}

TEST_F(RunControllerTest, TakesNoNodesWordForTimesThatCannotBe) {
  Run();
  Say(a_, WithRan(Exited(0, 0), -absl::InfiniteDuration()));
  Say(b_, Exited(1, 0));
  EXPECT_EQ(job_.ran(), absl::ZeroDuration());
  EXPECT_EQ(job_.row.state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(RunControllerTest, GivesTheJobsGraceToAStopAndToASibling) {
  job_.spec.Own().mutable_run()->set_grace_us(
      absl::ToInt64Microseconds(absl::Seconds(42)));
  Run();
  AttemptRecord stopped = attempt_;
  JobRecord job = job_;
  controller_.Stop(job, stopped);
  EXPECT_EQ(rpc::FromWire(DesiredOfA(job, stopped).grace()), absl::Seconds(42));
  AttemptRecord evicted = attempt_;
  controller_.Evict(job, evicted, a_, "drained");
  EXPECT_EQ(rpc::FromWire(DesiredOfA(job, evicted).grace()), absl::Seconds(42));
  Say(b_, Exited(1, 3));
  EXPECT_EQ(rpc::FromWire(DesiredOfA(job_, attempt_).grace()),
            absl::Seconds(42));
}

// CK-1.
TEST_F(RunControllerTest, CommitsCheckpointsFencedByAttemptAndEpoch) {
  Run();
  const RunOutcome outcome = Say(a_, Committing(10));
  EXPECT_THAT(outcome.acknowledged, ElementsAre(Path(10)));
  ASSERT_EQ(job_.row.checkpoints().size(), 1);
  EXPECT_EQ(job_.row.checkpoints()[0].step(), 10);

  // Repeated, of another epoch, of another attempt's directory.
  Say(a_, Committing(10));
  v1::ObservedPlace stale = Committing(11);
  stale.mutable_checkpoints(0)->set_epoch(attempt_.epoch - 1);
  Say(a_, stale);
  v1::ObservedPlace foreign = Committing(12);
  foreign.mutable_checkpoints(0)->set_path("/s/j/attempt-9.9/step-12");
  EXPECT_THAT(Say(a_, foreign).acknowledged,
              ElementsAre("/s/j/attempt-9.9/step-12"));
  EXPECT_EQ(job_.row.checkpoints().size(), 1);
}

TEST_F(RunControllerTest,
       RetiresAllButTheLastOnesUntilTheirDirectoriesAreGone) {
  job_.spec.Own().mutable_run()->set_num_to_keep(1);
  Run();
  Say(a_, Committing(1));
  const RunOutcome outcome = Say(a_, Committing(2));
  EXPECT_TRUE(outcome.retired_changed);
  EXPECT_EQ(job_.row.checkpoints().size(), 1);
  EXPECT_THAT(job_.row.retired(), ElementsAre(Path(1)));

  v1::ObservedPlace removed = At(Stage::kRunning);
  removed.add_removed_checkpoints(Path(1));
  EXPECT_TRUE(Say(a_, removed).retired_changed);
  EXPECT_THAT(job_.row.retired(), IsEmpty());
  // The worker repeats a record whose acknowledgement was lost.
  Say(a_, Committing(1));
  EXPECT_EQ(job_.row.checkpoints().size(), 1);
  EXPECT_EQ(job_.row.checkpoints()[0].step(), 2);
}

TEST_F(RunControllerTest, KeepsTheBestCheckpointsAndTheLast) {
  job_.spec.Own().mutable_run()->set_num_to_keep(2);
  Run();
  const auto commit = [&](int64_t step, std::optional<double> score) {
    v1::ObservedPlace place = Committing(step);
    if (score.has_value()) place.mutable_checkpoints(0)->set_score(*score);
    Say(a_, place);
  };
  commit(1, 0.5);
  commit(2, 0.9);
  commit(3, std::nullopt);
  commit(4, 0.7);
  commit(5, 0.1);
  std::vector<int64_t> steps;
  for (const auto& kept : job_.row.checkpoints()) steps.push_back(kept.step());
  // The last one is what a restart goes on from.
  EXPECT_THAT(steps, ElementsAre(2, 4, 5));
  EXPECT_THAT(job_.row.retired(), UnorderedElementsAre(Path(1), Path(3)));
}

TEST_F(RunControllerTest, KeepsRankZerosLastMetrics) {
  Run();
  const v1::ObservedPlace report =
      WithMetrics(At(Stage::kRunning), 0, 2, "{\"loss\":2}");
  EXPECT_TRUE(Say(a_, report).metrics_changed);
  EXPECT_FALSE(Say(a_, report).metrics_changed);
  v1::ObservedPlace other = At(Stage::kRunning);
  other = WithMetrics(other, 1, 9, "{\"loss\":9}");
  EXPECT_FALSE(Say(b_, other).metrics_changed);
  // Not even under rank 0's name.
  other = WithMetrics(other, 0, 9, "{\"loss\":9}");
  EXPECT_FALSE(Say(b_, other).metrics_changed);
  EXPECT_EQ(job_.row.metrics_json(), "{\"loss\":2}");
  EXPECT_EQ(job_.row.metrics_count(), 2);
}

TEST_F(RunControllerTest, KeepsTheFailedRanksStderrAlsoWhenItComesLate) {
  Run();
  Say(a_, Exited(0, 1));
  const v1::ObservedPlace tail = WithTail(Exited(0, 1), "Traceback");
  controller_.ObserveAfterwards(job_, attempt_, attempt_, b_, tail);
  EXPECT_EQ(job_.row.stderr_tail(), "");
  controller_.ObserveAfterwards(job_, attempt_, attempt_, a_, tail);
  EXPECT_EQ(job_.row.stderr_tail(), "Traceback");
}

TEST_F(RunControllerTest, CutsTextBetweenCharacters) {
  const RunController small({.detail_bytes_max = 4, .stderr_bytes_max = 4},
                            NamesFor(a_, "a"));
  Run();
  // Ends with a character of two bytes.
  small.Observe(job_, attempt_, a_, WithTail(Exited(0, 1), "abc\xC3\xA9"));
  EXPECT_EQ(job_.row.stderr_tail(), "abc");
}

TEST_F(RunControllerTest, IgnoresRanksThatAreNotOfThePart) {
  Run();
  v1::ObservedPlace wrong = At(Stage::kRunning);
  *wrong.mutable_processes(1) = Exited(1, 9).processes(0);  // it is on b
  Made(controller_.Observe(job_, attempt_, a_, wrong));
  EXPECT_EQ(attempt_.cause, v1::ATTEMPT_CAUSE_NONE);
  EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_RUNNING);
}

}  // namespace
}  // namespace cohort::head

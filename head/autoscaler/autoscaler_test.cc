#include "head/autoscaler/autoscaler.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/status_util.h"
#include "common/testing/temp_dir.h"
#include "head/testing/autoscaler_fixture.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::SizeIs;

TEST_F(AutoscalerTest, AMachineIsLetInByATokenOfItsOwnUntilItIsGone) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  SubmitGang("a", 1);
  Pass(absl::Seconds(1));
  ASSERT_EQ(machines_.size(), 1u);
  const Machine& machine = *machines_.begin()->second;
  const std::string id = LaunchTokenId(machine.key);
  ASSERT_EQ(Tokens().size(), 1u);
  EXPECT_EQ(Tokens()[0].token_id(), id);
  EXPECT_EQ(Tokens()[0].role(), v1::ROLE_JOIN);

  v1::JoinRequest join;
  join.set_node_id(IdBytes(machine.node));
  join.set_nonce("12345678");
  COHORT_ASSERT_OK(Call(rpc::kJoin, join, absl::Seconds(5),
                        rpc::Credential::OfToken(credential_, id)));
  Pass(absl::Seconds(10));
  // It is here, so nobody joins by that any more.
  ASSERT_EQ(Tokens().size(), 1u);
  EXPECT_EQ(Tokens()[0].role(), v1::ROLE_WORKER);
  EXPECT_EQ(Call(rpc::kJoin, join, absl::Seconds(5),
                 rpc::Credential::OfToken(credential_, id))
                .status()
                .code(),
            absl::StatusCode::kUnauthenticated);
  Pass(absl::Minutes(10));
  ASSERT_TRUE(machines_.empty());
  EXPECT_TRUE(Tokens().empty());
}

TEST_F(AutoscalerTest, GrowsForAJobRunsItAndShrinks) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  const std::string job = SubmitGang("train", 8);
  Pass(absl::Seconds(2));
  EXPECT_THAT(machines_, SizeIs(2));
  EXPECT_EQ(Scaling(job),
            "2 cpu nodes are being launched for it, requested 2s ago");
  Pass(absl::Seconds(20));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(machines_, SizeIs(2));
  // Which took some seconds.
  EXPECT_GT(Shown().node_types(0).usual_launch_us(), 3'000'000);
  const std::string next = SubmitGang("next", 12);
  Pass(absl::Seconds(1));
  EXPECT_THAT(Scaling(next),
              MatchesRegex("1 cpu node is being launched for it, requested 1s "
                           "ago, usually [34]s"));
  Pass(absl::Seconds(60));
  EXPECT_THAT(machines_, IsEmpty());
  EXPECT_THAT(Shown().instances(), IsEmpty());
  // And nobody has to undrain what is gone.
  EXPECT_EQ(core_->state()->nodes().DrainedCount(), 0u);
}

// SC-9.
TEST_F(AutoscalerTest, ResultsHoldANodeAndItsLogsOutliveIt) {
  const TempDir temp;
  LastLogs kept(temp.path(), {}, time_, time_);
  last_logs_ = &kept;
  Crash();
  Start();
  COHORT_ASSERT_OK(Apply(absl::StrCat(kClusterFile, "data_timeout: 2m\n")));
  has_results_ = true;
  const std::string job = SubmitGang("train", 4);
  Pass(absl::Seconds(60));
  ASSERT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
  ASSERT_THAT(machines_, SizeIs(1));
  ASSERT_THAT(Shown().next(), SizeIs(1));
  EXPECT_THAT(std::string(Shown().next(0)),
              HasSubstr("with what 1 job wrote only there"));
  EXPECT_EQ(EventsOf("results_lost"), 0);
  const AttemptRecord attempt =
      *core_->state()->attempts().LastOf(IdOf<JobId>(job));
  Pass(absl::Minutes(2));
  EXPECT_THAT(machines_, IsEmpty());
  EXPECT_EQ(EventsOf("results_lost"), 1);
  for (const Process& process : attempt.processes) {
    std::optional<absl::StatusOr<LastLogs::Found>> found;
    kept.Read({.attempt = attempt.id,
               .slot = process.slot,
               .incarnation = process.incarnation,
               .stream = v1::LOG_STREAM_STDERR},
              0, [&](auto answer) { found = std::move(answer); });
    Run();
    COHORT_ASSERT_OK(*found);
    EXPECT_EQ((*found)->node_name, "m1");
    EXPECT_EQ((*found)->piece.data(), "last");
  }
  // They go with their job.
  v1::RemoveJobRequest remove;
  remove.set_request_id("remove");
  remove.set_job_id(job);
  COHORT_ASSERT_OK(Call(rpc::kRemoveJob, remove));
  Pass(absl::Seconds(2));
  EXPECT_TRUE(std::filesystem::is_empty(temp.path()));
  Crash();
}

TEST_F(AutoscalerTest, WaitsForWhatATimeLimitFreesSooner) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  boot_time_ = job_time_ = absl::Seconds(25);
  v1::SubmitJobRequest request = Submission("first", 4);
  request.mutable_spec()->mutable_run()->set_time_limit_us(29'000'000);
  request.mutable_spec()->mutable_run()->set_grace_us(0);
  COHORT_ASSERT_OK(Call(rpc::kSubmitJob, request));
  Pass(absl::Seconds(40));
  ASSERT_THAT(machines_, SizeIs(1));
  const std::string next = SubmitGang("next", 4);
  Pass(absl::Seconds(2));
  EXPECT_THAT(Scaling(next),
              HasSubstr("the time limit of job job makes room for it on node "
                        "m1 within "));
  EXPECT_THAT(std::string(Shown().next(0)), HasSubstr("without a launch"));
  Pass(absl::Seconds(40));
  EXPECT_EQ(StateOf(next), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(made_, 1);
}

TEST_F(AutoscalerTest, SaysWhenNothingCanHoldAJob) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  v1::SubmitJobRequest request = Submission("huge");
  *request.mutable_spec()->mutable_scaling()->mutable_resources_per_worker() =
      rpc::ToWire(*ParseResources("CPU=64"));
  const auto job = Call(rpc::kSubmitJob, request);
  Pass(absl::Seconds(2));
  EXPECT_EQ(Scaling(job->job_id()),
            "no node is launched for it: no node type of the cluster file "
            "holds it");
  EXPECT_EQ(launches_, 0);
}

TEST_F(AutoscalerTest, ATypeThatFailsBacksOffAndAnotherOneIsTried) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  launches_to_fail_ = 3;
  const std::string job = SubmitGang("train", 4);
  Pass(absl::Seconds(30));
  ASSERT_THAT(machines_, SizeIs(1));
  EXPECT_EQ(machines_.begin()->second->type, "large");
  EXPECT_THAT(std::string(Shown().node_types(0).failure()),
              HasSubstr("no capacity"));
  Pass(absl::Seconds(20));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(AutoscalerTest, LaunchesThatFailTogetherAreOneFailure) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  launches_to_fail_ = 9;  // each of three is tried as often
  SubmitGang("train", 12);
  for (int i = 0; i < 30 && Shown().node_types(0).failures() == 0; ++i) {
    Pass(absl::Seconds(1));
  }
  EXPECT_EQ(launches_to_fail_, 0);
  EXPECT_EQ(Shown().node_types(0).failures(), 1);
}

TEST_F(AutoscalerTest, ANodeWithLessThanPromisedGoesAgain) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  short_of_cpus_ = true;
  SubmitGang("train", 4);
  Pass(absl::Seconds(10));
  short_of_cpus_ = false;
  Pass(absl::Seconds(60));
  EXPECT_GE(made_, 2);
  for (const auto& [id, machine] : machines_) EXPECT_GT(machine->cpus, 1);
}

TEST_F(AutoscalerTest, OneThatNeverJoinsIsEnded) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  boot_time_ = absl::Hours(1);
  SubmitGang("train", 4);
  Pass(absl::Seconds(5));
  ASSERT_THAT(machines_, SizeIs(1));
  const std::string first = machines_.begin()->first;
  Pass(absl::Minutes(3));
  EXPECT_FALSE(machines_.contains(first));
  EXPECT_THAT(std::string(Shown().node_types(0).failure()),
              HasSubstr("not joined within 2m"));
}

TEST_F(AutoscalerTest, WhyOneWaitedIsGoneOnceItHasJoined) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  boot_time_ = absl::Seconds(25);
  reason_ = "Resources";
  const std::string job = SubmitGang("train", 4);
  Pass(absl::Seconds(20));
  EXPECT_THAT(Scaling(job), HasSubstr("the provider says: Resources"));
  Pass(absl::Seconds(15));
  ASSERT_THAT(Shown().instances(), SizeIs(1));
  EXPECT_EQ(Shown().instances(0).state(), v1::INSTANCE_STATE_JOINED);
  EXPECT_EQ(Shown().instances(0).reason(), "");
}

// SC-8: its launch was given up, but the machine is there and takes work.
TEST_F(AutoscalerTest, OneThatJoinsAfterAllIsKept) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  launches_to_fail_ = 2;
  lost_answers_ = 100;
  boot_time_ = absl::Milliseconds(500);
  job_time_ = absl::Minutes(1);
  const std::string job = SubmitGang("train", 4);
  Pass(absl::Minutes(2));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Get(job).attempt(), 1);
}

// SC-8: what is being ended takes nothing.
TEST_F(AutoscalerTest, OneThatJoinsTooLateGetsNoWork) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  boot_time_ = absl::Hours(1);
  job_time_ = absl::Minutes(1);
  terminates_fail_ = true;
  const std::string job = SubmitGang("train", 4);
  Pass(absl::Seconds(125));
  ASSERT_EQ(Shown().instances(0).state(), v1::INSTANCE_STATE_TERMINATING);
  for (const auto& [id, machine] : machines_) {
    if (machine->key == IdOf<InstanceId>(Shown().instances(0).instance_id())) {
      machine->boots_at = time_.Monotonic();
    }
  }
  Pass(absl::Seconds(5));
  boot_time_ = absl::ZeroDuration();
  terminates_fail_ = false;
  Pass(absl::Minutes(11));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(AutoscalerTest, RequestedRoomComesStaysAndGoes) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  v1::RequestCapacityRequest request;
  request.mutable_request()->set_name("mine");
  auto& bundle = *request.mutable_request()->add_bundles();
  *bundle.mutable_resources() = rpc::ToWire(*ParseResources("CPU=4"));
  bundle.set_count(2);
  request.set_ttl_us(absl::ToInt64Microseconds(absl::Minutes(5)));
  COHORT_ASSERT_OK(Call(rpc::kRequestCapacity, request));
  Pass(absl::Minutes(4));
  EXPECT_THAT(machines_, SizeIs(2));
  Pass(absl::Minutes(3));
  EXPECT_THAT(machines_, IsEmpty());
}

TEST_F(AutoscalerTest, ANoticeDrainsAndAnotherNodeComes) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  job_time_ = absl::Minutes(2);
  const std::string job = SubmitGang("train", 4);
  Pass(absl::Seconds(10));
  ASSERT_THAT(machines_, SizeIs(1));
  const std::string first = machines_.begin()->first;
  notices_[first] = absl::Seconds(20);
  Pass(absl::Seconds(60));
  EXPECT_FALSE(machines_.contains(first));
  EXPECT_THAT(machines_, SizeIs(1));
  Pass(absl::Minutes(4));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(AutoscalerTest, ANodeThatIsTakenLaterKeepsItsResultsUntilThen) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  has_results_ = true;
  job_time_ = absl::Seconds(20);
  const std::string job = SubmitGang("train", 4);
  Pass(absl::Seconds(15));
  ASSERT_THAT(machines_, SizeIs(1));
  watched_({.id = machines_.begin()->first,
            .notice = absl::Minutes(2),
            .reason = "spot"});
  Pass(absl::Seconds(60));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(machines_, SizeIs(1));
  Pass(absl::Seconds(65));
  EXPECT_THAT(machines_, IsEmpty());
}

TEST_F(AutoscalerTest, WhatTheProviderLosesIsReplaced) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  job_time_ = absl::Minutes(1);
  const std::string job = SubmitGang("train", 4);
  Pass(absl::Seconds(10));
  ASSERT_THAT(machines_, SizeIs(1));
  machines_.clear();
  Pass(absl::Minutes(3));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(made_, 2);
}

TEST_F(AutoscalerTest, WhatTheProviderTellsIsActedOnAtOnce) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  job_time_ = absl::Minutes(2);
  const std::string job = SubmitGang("train", 4);
  Pass(absl::Seconds(10));
  ASSERT_THAT(machines_, SizeIs(1));
  const std::string first = machines_.begin()->first;
  watched_({.id = "m99", .notice = absl::ZeroDuration()});
  watched_({.id = "m99"});
  watched_({.id = first, .notice = absl::Seconds(20), .reason = "spot"});
  Pass(absl::Seconds(1));
  EXPECT_EQ(Shown().instances(0).state(), v1::INSTANCE_STATE_DRAINING);
  EXPECT_THAT(std::string(Shown().instances(0).reason()),
              HasSubstr("takes it in 20s: spot"));
  Pass(absl::Seconds(60));
  EXPECT_FALSE(machines_.contains(first));
  EXPECT_THAT(machines_, SizeIs(1));
  Pass(absl::Minutes(4));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(AutoscalerTest, WhatTheProviderSaysIsGoneIsBelievedWithItsListOnly) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  job_time_ = absl::Minutes(2);
  SubmitGang("train", 4);
  Pass(absl::Seconds(10));
  ASSERT_THAT(machines_, SizeIs(1));
  const std::string first = machines_.begin()->first;
  watched_({.id = first});
  Pass(absl::Seconds(2));
  EXPECT_EQ(Shown().instances(0).state(), v1::INSTANCE_STATE_JOINED);
  machines_.clear();
  watched_({.id = first, .reason = "evicted"});
  // Long before its node is silent for too long.
  Pass(absl::Seconds(2));
  EXPECT_THAT(Shown().instances(), IsEmpty());
}

TEST_F(AutoscalerTest, AnotherProviderWaitsForTheInstancesOfThisOne) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  SubmitGang("train", 4);
  Pass(absl::Seconds(10));
  EXPECT_EQ(Apply("provider: other\nnode_types: {}").code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Apply("provider: nimbus\nnode_types: {}").code(),
            absl::StatusCode::kInvalidArgument);
  COHORT_ASSERT_OK(Apply("provider: cloud\nnode_types: {}"));
  Pass(absl::Minutes(1));
  EXPECT_THAT(machines_, IsEmpty());
  COHORT_EXPECT_OK(Apply("provider: other\nnode_types: {}"));
}

TEST_F(AutoscalerTest, ADryRunOnlySays) {
  Crash();
  options_.autoscaler.dry_run = true;
  Start();
  COHORT_ASSERT_OK(Apply(kClusterFile));
  SubmitGang("train", 8);
  Pass(absl::Seconds(5));
  EXPECT_EQ(launches_, 0);
  EXPECT_THAT(Shown().next(),
              ElementsAre(HasSubstr("would launch 2 cpu: 8 x {CPU 1}")));
}

TEST_F(AutoscalerTest, AStrayIsEndedAndOneWithANodeIsTakenIn) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  Pass(absl::Seconds(2));
  LaunchOrder order{.instance = InstanceId::New(random_)};
  order.type.set_name("cpu");
  boot_time_ = absl::Hours(1);
  const std::string orphan = Make(order).id;
  boot_time_ = absl::ZeroDuration();
  order.instance = InstanceId::New(random_);
  const std::string node = Make(order).id;
  Pass(absl::Seconds(20));
  EXPECT_THAT(Shown().instances(), SizeIs(1));
  Pass(absl::Minutes(2));
  EXPECT_FALSE(machines_.contains(orphan));
  // It was idle for long enough, as any other.
  EXPECT_FALSE(machines_.contains(node));
}

TEST_F(AutoscalerTest, OfTwoMachinesOfOneKeyTheSecondIsEnded) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  job_time_ = absl::Minutes(5);
  const std::string job = SubmitGang("train", 4);
  Pass(absl::Seconds(10));
  ASSERT_THAT(machines_, SizeIs(1));
  const std::string first = machines_.begin()->first;
  LaunchOrder order{.instance = machines_.begin()->second->key};
  order.type.set_name("cpu");
  boot_time_ = absl::Hours(1);
  const std::string second = Make(order).id;
  Pass(absl::Minutes(2));
  EXPECT_FALSE(machines_.contains(second));
  EXPECT_TRUE(machines_.contains(first));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_RUNNING);
}

// ---- plans that come late ----

TEST_F(AutoscalerTest, ALatePlanLaunchesNothingForWhatWaitsNoMore) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  Pass(absl::Seconds(2));
  plans_.holds = true;
  v1::StopJobRequest stop;
  stop.set_request_id("stop");
  stop.set_job_id(SubmitGang("a", 4));
  Pass(absl::Seconds(2));
  COHORT_ASSERT_OK(Call(rpc::kStopJob, stop));
  plans_.holds = false;
  plans_.LetGo();
  Pass(absl::Seconds(5));
  EXPECT_EQ(launches_, 0);
}

TEST_F(AutoscalerTest, ALatePlanIsForgottenWhereAnotherFileIsApplied) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  Pass(absl::Seconds(2));
  plans_.holds = true;
  SubmitGang("a", 4);
  Pass(absl::Seconds(2));
  COHORT_ASSERT_OK(Apply(
      "provider: cloud\nnode_types: {small: {resources: {CPU: 1}, max: 9}}"));
  plans_.holds = false;
  plans_.LetGo();
  Pass(absl::Seconds(5));
  ASSERT_THAT(machines_, SizeIs(4));
  EXPECT_EQ(machines_.begin()->second->type, "small");
}

// SC-5, SC-8.
TEST_F(AutoscalerTest, ALatePlanEndsNoNodeThatIsWantedSince) {
  for (const int workers : {1, 8}) {
    SCOPED_TRACE(workers);
    const int made = made_;
    COHORT_ASSERT_OK(Apply(kClusterFile));
    job_time_ = absl::Seconds(1);
    SubmitGang(absl::StrCat("first", workers), 4);
    plans_.holds = true;
    const auto pass = [this](absl::Duration span) {
      plans_.LetGo();
      Pass(span);
    };
    // A plan asks what is there, and the next one ends the node.
    for (const int asked = lists_asked_; lists_asked_ == asked;) {
      pass(absl::Milliseconds(600));
    }
    pass(absl::Milliseconds(1'200));
    const std::string next = SubmitGang(absl::StrCat("next", workers), workers);
    Run(absl::Seconds(1));
    plans_.holds = false;
    pass(absl::Seconds(20));
    EXPECT_EQ(StateOf(next), v1::JOB_STATE_SUCCEEDED);
    EXPECT_EQ(made_, made + (workers == 1 ? 1 : 2));
    Pass(absl::Minutes(2));
    ASSERT_THAT(machines_, IsEmpty());
  }
}

TEST_F(AutoscalerTest, WhatGoesWithALostNodeIsTold) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  v1::SubmitJobRequest request = Submission("stored", 1);
  request.mutable_spec()->mutable_run()->set_storage_path("/mnt/all");
  const std::string stored = Call(rpc::kSubmitJob, request)->job_id();
  const std::string job = SubmitGang("train", 4);
  Pass(absl::Seconds(20));
  ASSERT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
  machines_.clear();
  Pass(absl::Minutes(1));
  const v1::Job lost = Get(job);
  ASSERT_THAT(lost.warnings(), SizeIs(1));
  EXPECT_THAT(std::string(lost.warnings(0)),
              HasSubstr("what it may have written on node m"));
  EXPECT_THAT(Get(stored).warnings(), IsEmpty());
  EXPECT_EQ(EventsOf("results_lost"), 1);
  v1::ExplainJobRequest explain;
  explain.set_job_id(job);
  EXPECT_THAT(std::string(Call(rpc::kExplainJob, explain)->summary()),
              HasSubstr("is lost with the node"));
  const AttemptRecord attempt =
      *core_->state()->attempts().LastOf(IdOf<JobId>(job));
  EXPECT_TRUE(core_->state()->IsGoneForGood(attempt.processes[0].node));
}

// ---- what goes, and what does not ----

TEST_F(AutoscalerTest, WhatIsLeftOfAnEndedNodeIsKnownAtOnce) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  const std::string job = SubmitGang("train", 4);
  Pass(absl::Seconds(20));
  const NodeId node =
      core_->state()->attempts().LastOf(IdOf<JobId>(job))->processes[0].node;
  EXPECT_FALSE(core_->state()->IsGoneForGood(node));
  while (!Shown().instances().empty()) Pass(absl::Milliseconds(200));
  // Its lease has not run out yet.
  EXPECT_NE(core_->state()->nodes().Find(node)->state, v1::NODE_STATE_DEAD);
  EXPECT_TRUE(core_->state()->IsGoneForGood(node));
}

TEST_F(AutoscalerTest, AnEndThatFailsIsToldAndTriedEverMoreSeldom) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  SubmitGang("train", 4);
  Pass(absl::Seconds(20));
  terminates_fail_ = true;
  Pass(absl::Seconds(80));
  ASSERT_THAT(Shown().instances(), SizeIs(1));
  EXPECT_THAT(std::string(Shown().instances(0).reason()),
              MatchesRegex("idle for 30s; the provider did not end it, asked "
                           "[4-5] times, again in [0-9]+s: not now"));
  v1::UndrainNodeRequest undrain;
  undrain.set_request_id("undrain");
  undrain.set_node(machines_.begin()->first);
  EXPECT_EQ(GetReason(Call(rpc::kUndrainNode, undrain).status()),
            "node_is_ended");
  // Of the first, the second and the fourth time.
  EXPECT_EQ(EventsOf("instance_not_ended"), 3);
  EXPECT_LE(terminates_, 5);
  terminates_fail_ = false;
  Pass(absl::Minutes(3));
  EXPECT_THAT(machines_, IsEmpty());
  EXPECT_THAT(Shown().instances(), IsEmpty());
}

TEST_F(AutoscalerTest, WhatTheProviderHasNoMoreIsEndedWhateverItSays) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  SubmitGang("train", 4);
  Pass(absl::Seconds(20));
  terminates_fail_ = true;
  Pass(absl::Minutes(1));
  ASSERT_THAT(Shown().instances(), SizeIs(1));
  machines_.clear();
  Pass(absl::Seconds(12));
  EXPECT_THAT(Shown().instances(), IsEmpty());
}

TEST_F(AutoscalerTest, AStrayThatDoesNotEndIsToldAndTriedSeldom) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  Pass(absl::Seconds(2));
  LaunchOrder order{.instance = InstanceId::New(random_)};
  order.type.set_name("cpu");
  boot_time_ = absl::Hours(1);
  Make(order);
  terminates_fail_ = true;
  Pass(absl::Minutes(10));
  EXPECT_LE(terminates_, 8);
  EXPECT_GE(EventsOf("stray_not_ended"), 3);
  EXPECT_LE(EventsOf("stray_not_ended"), 4);
  terminates_fail_ = false;
  Pass(absl::Minutes(6));
  EXPECT_THAT(machines_, IsEmpty());
}

// It would be ended with the other.
TEST_F(AutoscalerTest, AnIdThatAnotherInstanceHasIsNoAnswer) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  job_time_ = absl::Hours(1);
  const std::string job = SubmitGang("train", 4);
  Pass(absl::Seconds(20));
  ASSERT_THAT(machines_, SizeIs(1));
  const std::string first = machines_.begin()->first;
  answers_with_ = first;
  boot_time_ = absl::Hours(1);
  SubmitGang("next", 4);
  for (int i = 0; i < 100; ++i) {
    Pass(absl::Seconds(1));
    int with_it = 0;
    const v1::Autoscaling shown = Shown();
    for (const v1::Instance& each : shown.instances()) {
      with_it += each.provider_id() == first ? 1 : 0;
    }
    ASSERT_EQ(with_it, 1);
  }
  EXPECT_TRUE(machines_.contains(first));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_RUNNING);
}

TEST_F(AutoscalerTest, ADeadlineThatAPersonGaveHoldsAnIdleNode) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  SubmitGang("train", 4);
  Pass(absl::Seconds(20));
  ASSERT_THAT(machines_, SizeIs(1));
  v1::DrainNodeRequest drain;
  drain.set_request_id("drain");
  drain.set_node(machines_.begin()->first);
  drain.set_reason("a look at its disk");
  *drain.mutable_deadline() = rpc::ToWire(absl::Minutes(5));
  COHORT_ASSERT_OK(Call(rpc::kDrainNode, drain));
  Pass(absl::Minutes(4));
  ASSERT_THAT(machines_, SizeIs(1));
  ASSERT_THAT(Shown().next(), SizeIs(1));
  EXPECT_THAT(std::string(Shown().next(0)),
              HasSubstr("stays until the deadline of its drain"));
  Pass(absl::Minutes(2));
  EXPECT_THAT(machines_, IsEmpty());
}

TEST_F(AutoscalerTest, AJobBetweenTwoPlansIsNotOverlooked) {
  COHORT_ASSERT_OK(Apply(absl::StrCat(kClusterFile, "data_timeout: 5m\n")));
  job_time_ = absl::Seconds(1);
  SubmitGang("first", 4);
  plans_.holds = true;
  const auto pass = [this](absl::Duration span) {
    plans_.LetGo();
    Pass(span);
  };
  // A plan asks what is there, and hears that there is nothing.
  while (lists_asked_ == 0) pass(absl::Milliseconds(600));
  has_results_ = true;
  const std::string next = SubmitGang("next", 4);
  Pass(absl::Seconds(5));
  ASSERT_EQ(StateOf(next), v1::JOB_STATE_SUCCEEDED);
  plans_.holds = false;
  pass(absl::Minutes(2));
  ASSERT_THAT(machines_, SizeIs(1));
  EXPECT_THAT(std::string(Shown().next(0)), HasSubstr("wrote only there"));
  Pass(absl::Minutes(5));
  EXPECT_THAT(machines_, IsEmpty());
  EXPECT_GE(EventsOf("results_lost"), 1);
}

TEST_F(AutoscalerTest, ANoticeBetweenTwoPlansLosesNoResults) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  job_time_ = absl::Seconds(4);
  SubmitGang("first", 4);
  plans_.holds = true;
  while (lists_asked_ == 0) {
    plans_.LetGo();
    Pass(absl::Milliseconds(600));
  }
  has_results_ = true;
  const std::string next = SubmitGang("next", 4);
  Pass(absl::Seconds(2));
  watched_({.id = machines_.begin()->first,
            .notice = absl::Minutes(2),
            .reason = "spot"});
  Pass(absl::Seconds(5));
  ASSERT_EQ(StateOf(next), v1::JOB_STATE_SUCCEEDED);
  plans_.holds = false;
  plans_.LetGo();
  Pass(absl::Minutes(1));
  EXPECT_THAT(machines_, SizeIs(1));
  Pass(absl::Minutes(1));
  EXPECT_THAT(machines_, IsEmpty());
  EXPECT_GE(EventsOf("results_lost"), 1);
}

// ---- what is not launched ----

TEST_F(AutoscalerTest, LaunchesOfAStoppedJobThatNobodyWasAskedForAreWithdrawn) {
  COHORT_ASSERT_OK(
      Apply("provider: cloud\nmax_nodes: 400\nidle_timeout: 30s\n"
            "node_types: {cpu: {resources: {CPU: 4}, min: 2, max: 400}}"));
  Pass(absl::Seconds(20));
  ASSERT_EQ(launches_, 2);
  v1::StopJobRequest stop;
  stop.set_request_id("stop");
  stop.set_job_id(SubmitGang("a", 1'200));
  while (launches_ == 2) Pass(absl::Milliseconds(200));
  COHORT_ASSERT_OK(Call(rpc::kStopJob, stop));
  Pass(absl::Seconds(10));
  EXPECT_LE(launches_, 200);
  EXPECT_EQ(EventsOf("instance_queued"), 300);
  for (const auto& [id, instance] : core_->state()->fleet().instances()) {
    EXPECT_NE(instance.state(), v1::INSTANCE_STATE_QUEUED);
  }
  Pass(absl::Minutes(3));
  EXPECT_THAT(machines_, SizeIs(2));
}

TEST_F(AutoscalerTest, NoPartOfAGangIsLaunched) {
  COHORT_ASSERT_OK(
      Apply("provider: cloud\nmax_nodes: 4\nidle_timeout: 30s\n"
            "node_types: {cpu: {resources: {CPU: 4}, max: 4}}"));
  Pass(absl::Seconds(2));
  plans_.holds = true;
  const std::string job = SubmitGang("train", 16);
  Pass(absl::Seconds(1));
  // A node comes that no row knew, and counts.
  LaunchOrder order{.instance = InstanceId::New(random_)};
  order.type.set_name("cpu");
  short_of_cpus_ = true;
  boot_time_ = absl::ZeroDuration();
  Make(order);
  short_of_cpus_ = false;
  Pass(absl::Seconds(12));
  ASSERT_THAT(Shown().instances(), SizeIs(1));
  plans_.holds = false;
  plans_.LetGo();
  Pass(absl::Seconds(10));
  EXPECT_EQ(launches_, 0);
  Pass(absl::Minutes(2));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(launches_, 4);
}

}  // namespace
}  // namespace cohort::head

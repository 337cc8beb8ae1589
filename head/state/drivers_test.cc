// Drivers and their actors: sessions, names, and ends in turns.

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/status_util.h"
#include "head/state/testing/cluster_state_fixture.h"

namespace cohort::head {
namespace {

using ::testing::HasSubstr;

constexpr size_t kTurn = 20;

class DriversTest : public ClusterStateTest {
 protected:
  DriversTest() {
    limits_.turn_rows_max = kTurn;
    Reload();
  }

  DriverId Open(absl::Duration timeout = absl::Seconds(30),
                const std::optional<ProcessId>& owner = std::nullopt) {
    v1::OpenDriver request;
    request.set_name("counter");
    *request.mutable_timeout() = rpc::ToWire(timeout);
    Transition transition;
    const auto driver =
        state_->OpenDriver("cluster", owner, request, transition);
    Submit(std::move(transition));
    COHORT_EXPECT_OK(driver);
    return driver.value_or(DriverId());
  }

  static JobSpec ActorOf(const DriverId& driver, const std::string& name = "") {
    JobSpec spec = Spec(1, 1);
    spec.set_name(name);
    spec.mutable_run()->set_restart(v1::RESTART_POLICY_ONE);
    spec.mutable_actor()->set_class_name("Counter");
    if (!driver.IsNil()) spec.mutable_actor()->set_driver_id(IdBytes(driver));
    v1::ActorStart& start = *spec.mutable_launch()->mutable_actor();
    start.set_class_name("7Counter");
    start.set_secret(std::string(32, 's'));
    return spec;
  }

  void End(const DriverId& driver) {
    Transition transition;
    state_->EndDriver(driver, "has ended", transition);
    Submit(std::move(transition));
  }
  // Until nothing follows any more.
  int GoOn(bool restart = false) {
    int turns = 0;
    for (; state_->HasToGoOn(); ++turns) {
      if (restart) Reload();
      Transition turn;
      state_->GoOn(turn);
      Submit(std::move(turn));
    }
    return turns;
  }
  bool Knows(const DriverId& driver) {
    return state_->drivers().Find(driver) != nullptr;
  }
};

TEST_F(DriversTest, EndsItsActorsAndNoOthers) {
  const DriverId driver = Open();
  const JobId own = SubmitJob(ActorOf(driver));
  const JobId detached = SubmitJob(ActorOf(DriverId()));
  const JobId of_another = SubmitJob(ActorOf(Open()));
  End(driver);
  EXPECT_EQ(StateOf(own), v1::JOB_STATE_STOPPED);
  EXPECT_EQ(Job(own).row.reason(), "driver counter has ended");
  EXPECT_EQ(StateOf(detached), v1::JOB_STATE_PENDING);
  EXPECT_EQ(StateOf(of_another), v1::JOB_STATE_PENDING);
  EXPECT_FALSE(Knows(driver));
}

TEST_F(DriversTest, IsKnownUntilWhatRunsHasEnded) {
  Join(a_, 4);
  const DriverId driver = Open();
  const JobId actor = SubmitJob(ActorOf(driver));
  EXPECT_EQ(StateOf(actor), v1::JOB_STATE_STARTING);
  End(driver);
  EXPECT_TRUE(Knows(driver));
  Reload();
  EXPECT_TRUE(Knows(driver));
  EXPECT_THAT(state_->ResumeDriver(driver),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(DriversTest, ManyActorsEndInTurnsAlsoOverRestarts) {
  const DriverId driver = Open();
  std::vector<JobId> actors;
  for (int i = 0; i < 100; ++i) actors.push_back(SubmitJob(ActorOf(driver)));
  End(driver);
  EXPECT_GT(state_->jobs().CountOf(v1::JOB_STATE_STOPPED), 0);
  EXPECT_GT(state_->jobs().CountOf(v1::JOB_STATE_PENDING), 0);
  EXPECT_TRUE(state_->HasToGoOn());
  EXPECT_GE(GoOn(/*restart=*/true), 5);
  for (const JobId& actor : actors) {
    EXPECT_EQ(StateOf(actor), v1::JOB_STATE_STOPPED);
  }
  EXPECT_FALSE(Knows(driver));
}

TEST_F(DriversTest, IsWaitedForAsLongAsItSaid) {
  const DriverId driver = Open(absl::Seconds(5));
  const JobId actor = SubmitJob(ActorOf(driver));
  state_->AwaitDriver(driver);
  for (int i = 0; i < 20; ++i) Pass(limits_.tick_period);
  EXPECT_EQ(StateOf(actor), v1::JOB_STATE_PENDING);
  COHORT_EXPECT_OK(state_->ResumeDriver(driver));
  for (int i = 0; i < 50; ++i) Pass(limits_.tick_period);
  EXPECT_EQ(StateOf(actor), v1::JOB_STATE_PENDING);
  state_->AwaitDriver(driver);
  for (int i = 0; i < 40; ++i) Pass(limits_.tick_period);
  EXPECT_EQ(StateOf(actor), v1::JOB_STATE_STOPPED);
  EXPECT_THAT(Job(actor).row.reason(), HasSubstr("was away for 5s"));
  const absl::Status over = state_->ResumeDriver(driver);
  EXPECT_THAT(over, StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(GetReason(over), "session_over");
}

TEST_F(DriversTest, ARestartedHeadWaitsForItToo) {
  const DriverId driver = Open(absl::Seconds(5));
  const JobId actor = SubmitJob(ActorOf(driver));
  Reload();
  for (int i = 0; i < 20; ++i) Pass(limits_.tick_period);
  EXPECT_EQ(StateOf(actor), v1::JOB_STATE_PENDING);
  for (int i = 0; i < 20; ++i) Pass(limits_.tick_period);
  EXPECT_EQ(StateOf(actor), v1::JOB_STATE_STOPPED);
  EXPECT_FALSE(Knows(driver));
}

TEST_F(DriversTest, OwnsNothingNewOnceItIsOver) {
  const DriverId driver = Open();
  End(driver);
  const auto late = TrySubmitJob(ActorOf(driver), "late");
  EXPECT_THAT(late, StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(GetReason(late.status()), "session_over");
}

TEST_F(DriversTest, ANameIsItsOwnWhileItLives) {
  const DriverId driver = Open();
  const JobId first = SubmitJob(ActorOf(driver, "counter"));
  EXPECT_EQ(state_->drivers().ActorNamed("default", "counter"), first);
  const auto second = TrySubmitJob(ActorOf(driver, "counter"), "second");
  EXPECT_THAT(second, StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(GetReason(second.status()), "name_taken");
  Reload();
  EXPECT_EQ(state_->drivers().ActorNamed("default", "counter"), first);
  COHORT_EXPECT_OK(StopJob(first));
  EXPECT_TRUE(state_->drivers().ActorNamed("default", "counter").IsNil());
  SubmitJob(ActorOf(driver, "counter"));
}

TEST_F(DriversTest, AKilledActorsNameIsFreeBeforeItHasEnded) {
  Join(a_, 4);
  const DriverId driver = Open();
  const JobId first = SubmitJob(ActorOf(driver, "counter"));
  COHORT_EXPECT_OK(StopJob(first));
  ASSERT_EQ(StateOf(first), v1::JOB_STATE_STOPPING);
  const JobId second = SubmitJob(ActorOf(driver, "counter"));
  EXPECT_EQ(state_->drivers().ActorNamed("default", "counter"), second);
  Reload();
  EXPECT_EQ(state_->drivers().ActorNamed("default", "counter"), second);
  EXPECT_EQ(GetReason(TrySubmitJob(ActorOf(driver, "counter"), "x").status()),
            "name_taken");
}

TEST_F(DriversTest, WhatCannotBeAnActorIsRefused) {
  JobSpec two = ActorOf(DriverId());
  two.mutable_scaling()->set_num_workers(2);
  EXPECT_THAT(TrySubmitJob(two, "two"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  JobSpec bare = ActorOf(DriverId());
  bare.mutable_launch()->clear_actor();
  EXPECT_THAT(TrySubmitJob(bare, "bare"),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(DriversTest, AGroupHasAsManyWorkersAsItsDimensionsHavePlaces) {
  JobSpec group = ActorOf(DriverId());
  group.mutable_run()->set_restart(v1::RESTART_POLICY_ALL);
  for (const char* const name : {"hosts", "gpus"}) {
    v1::ActorDimension& added = *group.mutable_actor()->add_dimensions();
    added.set_name(name);
    added.set_size(2);
  }
  EXPECT_THAT(TrySubmitJob(group, "one worker"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  group.mutable_scaling()->set_num_workers(4);
  COHORT_EXPECT_OK(TrySubmitJob(group, "four"));
  group.mutable_scaling()->set_num_workers(2);
  EXPECT_THAT(TrySubmitJob(group, "two"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  group.mutable_launch()->mutable_actor()->set_processes(2);
  COHORT_EXPECT_OK(TrySubmitJob(group, "two that share"));
  group.mutable_launch()->mutable_actor()->set_processes(5);
  group.mutable_scaling()->set_num_workers(5);
  EXPECT_THAT(TrySubmitJob(group, "five that share"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  group.mutable_launch()->mutable_actor()->set_processes(0);
  group.mutable_scaling()->set_num_workers(4);
  group.mutable_actor()->mutable_dimensions(1)->set_size(0);
  EXPECT_THAT(TrySubmitJob(group, "none in one dimension"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  group.mutable_actor()->mutable_dimensions(1)->set_size(2);
  group.mutable_actor()->mutable_dimensions(1)->set_name("");
  EXPECT_THAT(TrySubmitJob(group, "a dimension without a name"),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(DriversTest, ExecutorsHaveNoEventsAndAShortHistoryOfTheirOwn) {
  limits_.history.executors.count_max = 2;
  Reload();
  const DriverId driver = Open();
  const JobId actor = SubmitJob(ActorOf(driver));
  JobSpec executor = ActorOf(driver);
  executor.mutable_actor()->set_executor(true);
  const auto events = [&] {
    int64_t sum = 0;
    for (const auto& [kind, count] : state_->counters().events_by_kind) {
      sum += static_cast<int64_t>(count);
    }
    return sum;
  };
  const int64_t before = events();
  std::vector<JobId> all;
  for (int i = 0; i < 5; ++i) {
    all.push_back(SubmitJob(executor));
    COHORT_EXPECT_OK(StopJob(all.back()));
  }
  EXPECT_EQ(events(), before);
  for (int i = 0; i < 5; ++i) Pass(limits_.tick_period);
  EXPECT_EQ(state_->jobs().Find(all[0]), nullptr);
  EXPECT_NE(state_->jobs().Find(all[4]), nullptr);
  EXPECT_NE(state_->jobs().Find(actor), nullptr);
  Reload();
  EXPECT_EQ(state_->jobs().Find(all[0]), nullptr);
  EXPECT_NE(state_->jobs().Find(all[4]), nullptr);
}

TEST_F(DriversTest, WhatCannotBeAnExecutorIsRefused) {
  JobSpec named = ActorOf(Open(), "name");
  named.mutable_actor()->set_executor(true);
  EXPECT_THAT(TrySubmitJob(named, "named"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  JobSpec detached = ActorOf(DriverId());
  detached.mutable_actor()->set_executor(true);
  EXPECT_THAT(TrySubmitJob(detached, "detached"),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

// Ranks of jobs that are drivers.
class RankDriversTest : public DriversTest {
 protected:
  RankDriversTest() { Join(a_, 8); }

  JobId RunJob(v1::RestartPolicy restart) {
    JobSpec spec = Spec(2, 1);
    spec.mutable_run()->set_restart(restart);
    const JobId job = SubmitJob(spec);
    Run(job);
    return job;
  }
  ProcessId Rank(const JobId& job, int slot) {
    const AttemptRecord& attempt = Attempt(job);
    return {.attempt = attempt.id,
            .slot = slot,
            .incarnation =
                attempt.processes[static_cast<size_t>(slot)].incarnation};
  }
  DriverId OpenIn(const JobId& job, int slot) {
    return Open(absl::Hours(1), Rank(job, slot));
  }
  // The rank has exited, and so says its node.
  void Exit(const JobId& job, int slot, int code) {
    v1::ObservedPlace seen = At(job, Stage::kRunning);
    v1::ObservedProcess& process = *seen.mutable_processes(slot);
    process.set_state(v1::PROCESS_STATE_EXITED);
    process.mutable_exit()->set_code(code);
    process.set_exit_order(1);
    Say(a_, seen);
  }
};

TEST_F(RankDriversTest, EndsWithItsRankInTheSameTransition) {
  const JobId job = RunJob(v1::RESTART_POLICY_NONE);
  const JobId of_first = SubmitJob(ActorOf(OpenIn(job, 0)));
  const DriverId second = OpenIn(job, 1);
  const JobId of_second = SubmitJob(ActorOf(second));
  Exit(job, 1, 7);
  EXPECT_EQ(StateOf(of_first), v1::JOB_STATE_STARTING);
  EXPECT_EQ(StateOf(of_second), v1::JOB_STATE_STOPPING);
  EXPECT_THAT(state_->ResumeDriver(second),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(RankDriversTest, EndsWithItsJob) {
  const JobId job = RunJob(v1::RESTART_POLICY_ALL);
  const JobId actor = SubmitJob(ActorOf(OpenIn(job, 0)));
  COHORT_EXPECT_OK(StopJob(job));
  EXPECT_EQ(StateOf(actor), v1::JOB_STATE_STARTING);
  Say(a_, Exited(job, a_, 0, /*by_order=*/true));
  EXPECT_EQ(StateOf(actor), v1::JOB_STATE_STOPPING);
}

TEST_F(RankDriversTest, EndsWithARankThatExitedWhileTheHeadWasAway) {
  const JobId job = RunJob(v1::RESTART_POLICY_NONE);
  const JobId actor = SubmitJob(ActorOf(OpenIn(job, 1)));
  Run(actor);
  Reload();
  Registration registration = Node(a_, 8);
  v1::ObservedPlace seen = At(job, Stage::kRunning);
  seen.mutable_processes(1)->set_state(v1::PROCESS_STATE_ENDED);
  seen.mutable_processes(1)->mutable_exit()->set_signal(9);
  seen.mutable_processes(1)->set_exit_order(1);
  SetPlaces(registration.observed, {seen, At(actor, Stage::kRunning)});
  const RegisteredNode told = Join(registration);
  EXPECT_EQ(StateOf(actor), v1::JOB_STATE_STOPPING);
  bool ends = false;
  for (const v1::DesiredPlace& place : told.desired) {
    if (place.job_id() == actor.bytes()) ends = GoalFor(place) == v1::GOAL_STOP;
  }
  EXPECT_TRUE(ends) << "the node learns it with the answer";
}

TEST_F(RankDriversTest, EndsWithItsNode) {
  const JobId job = RunJob(v1::RESTART_POLICY_ALL);
  JobSpec large = ActorOf(OpenIn(job, 0));
  SetResource(large, kCpu, Amount::FromUnits(100));
  const JobId actor = SubmitJob(large);
  Pass(limits_.node_timeout + absl::Seconds(1));
  EXPECT_EQ(StateOf(actor), v1::JOB_STATE_STOPPED);
  EXPECT_EQ(Job(actor).row.reason(),
            "driver counter has ended with rank 0 of its job");
}

TEST_F(RankDriversTest, ManyEndInTurnsAlsoOverRestarts) {
  const JobId job = RunJob(v1::RESTART_POLICY_ALL);
  std::vector<DriverId> drivers;
  std::vector<JobId> actors;
  for (int i = 0; i < 50; ++i) {
    drivers.push_back(OpenIn(job, i % 2));
    JobSpec large = ActorOf(drivers.back());
    SetResource(large, kCpu, Amount::FromUnits(100));
    actors.push_back(SubmitJob(large));
  }
  Exit(job, 0, 1);
  Say(a_, Exited(job, a_, 1));
  EXPECT_TRUE(state_->HasToGoOn());
  // Before its turn comes it owns nothing new either.
  int refused = 0;
  for (size_t i = 0; i < drivers.size(); ++i) {
    const auto late =
        TrySubmitJob(ActorOf(drivers[i]), absl::StrCat("late ", i));
    if (GetReason(late.status()) == "session_over") ++refused;
  }
  EXPECT_EQ(refused, 50);
  EXPECT_GE(GoOn(/*restart=*/true), 2);
  for (const JobId& actor : actors) {
    EXPECT_EQ(StateOf(actor), v1::JOB_STATE_STOPPED);
  }
  EXPECT_EQ(state_->drivers().size(), 0u);
}

TEST_F(RankDriversTest, ARankThatIsOverOpensNone) {
  const JobId job = RunJob(v1::RESTART_POLICY_NONE);
  const ProcessId rank = Rank(job, 1);
  Exit(job, 1, 7);
  Transition transition;
  const auto late =
      state_->OpenDriver("rank", rank, v1::OpenDriver(), transition);
  EXPECT_THAT(late, StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(GetReason(late.status()), "session_over");
}

TEST_F(DriversTest, ThereAreOnlySoMany) {
  limits_.drivers_max = 1;
  Reload();
  Open();
  Transition transition;
  EXPECT_THAT(
      state_->OpenDriver("cluster", std::nullopt, v1::OpenDriver(), transition),
      StatusIs(absl::StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace cohort::head

// Sessions of drivers over the wire, and where they are told their actors
// stand.

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/status_util.h"
#include "head/testing/head_core_fixture.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DriverCallsTest : public HeadCoreTest {
 protected:
  struct Driver {
    std::unique_ptr<rpc::Channel> channel;
    std::unique_ptr<rpc::TypedStream<v1::DriverMessage>> stream;
    std::string id;
    std::vector<v1::ActorStanding> told;
    bool room_wanted = false;
    std::optional<absl::Status> closed;
  };

  std::unique_ptr<Driver> Drive(const std::string& id = "") {
    v1::OpenDriver open;
    open.set_driver_id(id);
    open.set_name("counter");
    return DriveAs(credential_, open);
  }
  // As a process of some job.
  std::unique_ptr<Driver> DriveAsRank(bool only_watches) {
    v1::OpenDriver open;
    open.set_only_watches(only_watches);
    return DriveAs(rpc::MintRankCredential(credential_, ProcessId()), open);
  }
  std::unique_ptr<Driver> DriveAs(const rpc::Credential& credential,
                                  const v1::OpenDriver& open) {
    auto driver = std::make_unique<Driver>();
    driver->channel = network_.Connect("driver", kHead, credential);
    Driver* const raw = driver.get();
    driver->stream = rpc::OpenStream(
        *driver->channel, rpc::kDrive, {.deadline = absl::InfiniteDuration()},
        time_,
        {.on_message =
             [raw](const v1::DriverUpdate& update) {
               if (update.has_opened()) raw->id = update.opened().driver_id();
               if (update.has_actor()) raw->told.push_back(update.actor());
               if (update.has_room_wanted()) {
                 raw->room_wanted = update.room_wanted().wanted();
               }
             },
         .on_closed = [raw](absl::Status status,
                            auto) { raw->closed = std::move(status); },
         .on_drained = nullptr});
    v1::DriverMessage message;
    *message.mutable_open() = open;
    COHORT_EXPECT_OK(driver->stream->Write(message));
    Run();
    return driver;
  }
  void Watch(Driver& driver, const std::string& job,
             const std::string& secret = "") {
    v1::DriverMessage message;
    message.mutable_watch()->set_job_id(job);
    message.mutable_watch()->set_secret(secret);
    COHORT_EXPECT_OK(driver.stream->Write(message));
    Run();
  }
  void WatchNamed(Driver& driver, const std::string& name) {
    v1::DriverMessage message;
    message.mutable_watch()->set_name(name);
    COHORT_EXPECT_OK(driver.stream->Write(message));
    Run();
  }
  std::string Create(const Driver& driver, int max_failures = 0,
                     bool executor = false,
                     std::optional<rpc::Credential> as = std::nullopt) {
    v1::SubmitJobRequest request =
        Submission(absl::StrCat("actor-", ++created_));
    v1::JobSpec& spec = *request.mutable_spec();
    spec.set_name(executor ? "" : "tally");
    spec.mutable_actor()->set_executor(executor);
    spec.mutable_actor()->set_driver_id(driver.id);
    v1::ActorStart& start = *spec.mutable_launch()->mutable_actor();
    start.set_class_name("7Counter");
    start.set_secret(std::string(32, 's'));
    spec.mutable_run()->set_restart(v1::RESTART_POLICY_ONE);
    spec.mutable_run()->set_max_failures(max_failures);
    spec.mutable_run()->set_retry_delay_us(1);
    const auto response = Call(rpc::kSubmitJob, request, absl::Seconds(5), as);
    COHORT_EXPECT_OK(response);
    return response.ok() ? response->job_id() : "";
  }
  static v1::ObservedPlace Serving(const v1::DesiredPlace& desired) {
    v1::ObservedPlace place = At(desired, Stage::kRunning);
    place.mutable_processes(0)->add_addresses("unix:/run/actor.0.1");
    return place;
  }

  int created_ = 0;
};

TEST_F(DriverCallsTest, IsToldWhereItsActorServesAndHowItEnds) {
  const auto worker = Open(Registration(node_));
  const auto driver = Drive();
  ASSERT_EQ(driver->id.size(), 16u);
  const std::string actor = Create(*driver);
  Watch(*driver, actor);
  ASSERT_FALSE(driver->told.empty());
  EXPECT_EQ(driver->told.back().job_id(), actor);
  EXPECT_EQ(driver->told.back().class_name(), "7Counter");
  EXPECT_EQ(driver->told.back().secret(), std::string(32, 's'));
  EXPECT_EQ(driver->told.back().addresses_size(), 0);

  const v1::DesiredPlace desired = RunJob(*worker);
  EXPECT_EQ(desired.launch().actor().class_name(), "7Counter");
  Say(*worker, Serving(desired));
  EXPECT_EQ(driver->told.back().incarnation(), 1u);
  EXPECT_THAT(driver->told.back().addresses(),
              ElementsAre("unix:/run/actor.0.1"));

  Say(*worker, Exited(desired, 3));
  const v1::ActorStanding& last = driver->told.back();
  EXPECT_EQ(last.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(last.incarnation(), 0u);
  EXPECT_EQ(last.ended_incarnation(), 1u);
  EXPECT_EQ(last.exit().code(), 3);
  EXPECT_EQ(last.addresses_size(), 0);
}

TEST_F(DriverCallsTest, IsToldOfTheNextIncarnation) {
  const auto worker = Open(Registration(node_));
  const auto driver = Drive();
  const std::string actor = Create(*driver, /*max_failures=*/3);
  Watch(*driver, actor);
  Say(*worker, Serving(RunJob(*worker)));
  Say(*worker, Exited(worker->Desired().back(), 1));
  EXPECT_EQ(driver->told.back().ended_incarnation(), 1u);
  EXPECT_EQ(driver->told.back().state(), v1::JOB_STATE_RUNNING);
  Run(absl::Seconds(5));
  std::set<uint64_t> wanted;
  for (const v1::DesiredPlace& place : worker->Desired()) {
    for (const auto& each : place.processes()) {
      if (each.goal() == v1::GOAL_RUN) wanted.insert(each.incarnation());
    }
  }
  EXPECT_THAT(wanted, ElementsAre(1u, 2u));
}

// Its process says it, not its node.
TEST_F(DriverCallsTest, HearsWhetherOthersWantTheRoomOfItsExecutors) {
  const auto worker = Open(Registration(node_));
  const auto first = Drive();
  const std::string executor = Create(*first, 0, /*executor=*/true);
  Watch(*first, executor);
  // Its own that wait are not counted as others.
  std::vector<std::string> more;
  for (int i = 0; i < 40; ++i) {
    more.push_back(Create(*first, 0, /*executor=*/true));
  }
  Run();
  EXPECT_FALSE(first->room_wanted);
  const auto second = Drive();
  const std::string other = Create(*second, 0, /*executor=*/true);
  Run();
  EXPECT_TRUE(first->room_wanted);
  v1::StopJobRequest stop;
  stop.set_request_id(std::string(16, 'r'));
  stop.set_job_id(other);
  COHORT_EXPECT_OK(Call(rpc::kStopJob, stop));
  Run();
  EXPECT_FALSE(first->room_wanted);
}

TEST_F(DriverCallsTest, ADriverThatComesBackHearsWhetherRoomIsWanted) {
  const auto worker = Open(Registration(node_));
  const auto first = Drive();
  const std::string executor = Create(*first, 0, /*executor=*/true);
  Watch(*first, executor);
  const auto back = Drive(first->id);
  back->room_wanted = true;  // as the former stream told it
  Watch(*back, executor);
  EXPECT_FALSE(back->room_wanted);
}

TEST_F(DriverCallsTest, ALargeGroupIsToldInParts) {
  const auto driver = Drive();
  v1::SubmitJobRequest request = Submission("group", /*workers=*/6'000);
  v1::JobSpec& spec = *request.mutable_spec();
  spec.mutable_actor()->set_driver_id(driver->id);
  v1::ActorDimension& dimension = *spec.mutable_actor()->add_dimensions();
  dimension.set_name("ranks");
  dimension.set_size(6'000);
  v1::ActorStart& start = *spec.mutable_launch()->mutable_actor();
  start.set_class_name("7Counter");
  start.set_secret(std::string(32, 's'));
  spec.mutable_run()->set_restart(v1::RESTART_POLICY_ONE);
  const auto response = Call(rpc::kSubmitJob, request);
  COHORT_ASSERT_OK(response);
  Watch(*driver, response->job_id());
  Run(absl::Seconds(5));
  EXPECT_FALSE(driver->closed.has_value());
  std::set<uint32_t> slots;
  for (const v1::ActorStanding& each : driver->told) slots.insert(each.slot());
  EXPECT_EQ(slots.size(), 6'000);
}

TEST_F(DriverCallsTest, AnAddressThatCannotBeIsLeftOut) {
  const auto worker = Open(Registration(node_));
  const auto driver = Drive();
  const std::string actor = Create(*driver);
  Watch(*driver, actor);
  v1::ObservedPlace serving = Serving(RunJob(*worker));
  serving.mutable_processes(0)->add_addresses("a\x01");
  serving.mutable_processes(0)->add_addresses(std::string(4'000, 'x'));
  Say(*worker, serving);
  EXPECT_FALSE(worker->closed.has_value());
  EXPECT_THAT(driver->told.back().addresses(),
              ElementsAre("unix:/run/actor.0.1"));
}

TEST_F(DriverCallsTest, AnActorThatIsOverIsNotWatchedAnyMore) {
  Crash();
  options_.actors_watched_max = 1;
  Start();
  const auto driver = Drive();
  const std::string first = Create(*driver);
  Watch(*driver, first);
  Watch(*driver, first);  // again costs nothing
  v1::StopJobRequest stop;
  stop.set_request_id("stop");
  stop.set_job_id(first);
  COHORT_EXPECT_OK(Call(rpc::kStopJob, stop));
  EXPECT_EQ(driver->told.back().state(), v1::JOB_STATE_STOPPED);
  Watch(*driver, Create(*driver));
  EXPECT_FALSE(driver->closed.has_value());
  Watch(*driver, std::string(16, 'x'));
  ASSERT_TRUE(driver->closed.has_value());
  EXPECT_EQ(GetReason(*driver->closed), "too_many_actors");
}

TEST_F(DriverCallsTest, FindsALiveActorByItsName) {
  const auto driver = Drive();
  const std::string actor = Create(*driver);
  const auto other = Drive();
  WatchNamed(*other, "tally");
  WatchNamed(*other, "nobody");
  ASSERT_EQ(other->told.size(), 2u);
  EXPECT_EQ(other->told[0].job_id(), actor);
  EXPECT_EQ(other->told[1].job_id(), "");
  EXPECT_EQ(other->told[1].name(), "nobody");
}

TEST_F(DriverCallsTest, AProcessWatchesActorsWhoseSecretItKnows) {
  const auto driver = Drive();
  const std::string actor = Create(*driver);
  const auto process = DriveAsRank(/*only_watches=*/true);
  Watch(*process, actor, std::string(32, 's'));
  ASSERT_EQ(process->told.size(), 1u);
  EXPECT_EQ(process->told[0].class_name(), "7Counter");
  v1::StopJobRequest stop;
  stop.set_request_id("stop");
  stop.set_job_id(actor);
  COHORT_EXPECT_OK(Call(rpc::kStopJob, stop));
  EXPECT_EQ(process->told.back().state(), v1::JOB_STATE_STOPPED);
  // It was never a driver: nobody waits for it.
  process->stream.reset();
  Run();
  const auto drivers = Call(rpc::kListDrivers, v1::ListDriversRequest());
  COHORT_ASSERT_OK(drivers);
  EXPECT_EQ(drivers->total(), 1u);
}

TEST_F(DriverCallsTest, AProcessIsToldNothingOfOtherActors) {
  const auto driver = Drive();
  const std::string actor = Create(*driver);
  const auto process = DriveAsRank(/*only_watches=*/true);
  Watch(*process, actor, std::string(32, 't'));
  Watch(*process, actor);
  ASSERT_EQ(process->told.size(), 2u);
  for (const v1::ActorStanding& each : process->told) {
    EXPECT_EQ(each.job_id(), actor);
    EXPECT_EQ(each.state(), v1::JOB_STATE_STOPPED);
    EXPECT_EQ(each.class_name(), "");
    EXPECT_EQ(each.slots(), 0u);
  }
  // What it showed, so that it knows which handles are meant.
  EXPECT_EQ(process->told[0].secret(), std::string(32, 't'));
  EXPECT_EQ(process->told[1].secret(), "");
  WatchNamed(*process, "tally");
  ASSERT_TRUE(process->closed.has_value());
  EXPECT_EQ(process->closed->code(), absl::StatusCode::kInvalidArgument);
}

// As whom a worker runs it (--run-as).
TEST_F(DriverCallsTest, AnActorOfARankIsItsUsers) {
  const auto worker = Open(Registration(node_));
  v1::CreateTokenRequest user;
  user.set_token_id("8 bytes.");
  user.set_role(v1::ROLE_SUBMIT);
  user.set_name("ann");
  const auto token = Call(rpc::kCreateToken, user);
  COHORT_ASSERT_OK(token);
  COHORT_ASSERT_OK(Call(rpc::kSubmitJob, Submission("ranks"), absl::Seconds(5),
                        *rpc::Credential::FromBytes(token->secret())));
  const v1::DesiredPlace desired = worker->Desired().back();
  EXPECT_EQ(desired.user(), "user/ann");
  ASSERT_EQ(desired.processes_size(), 1);
  const rpc::Credential rank = rpc::MintRankCredential(
      credential_,
      {*AttemptId::FromBytes(desired.attempt_id()), desired.processes(0).slot(),
       desired.processes(0).incarnation()});
  const auto driver = DriveAs(rank, v1::OpenDriver());
  const std::string actor = Create(*driver, 0, /*executor=*/false, rank);
  Run(absl::Seconds(1));
  EXPECT_EQ(worker->Desired().back().job_id(), actor);
  EXPECT_EQ(worker->Desired().back().user(), "user/ann");
  EXPECT_THAT(Get(actor).submitted_by(), HasSubstr("rank/"));
}

TEST_F(DriverCallsTest, ARankThatIsADriverWatchesActorsWhoseSecretItKnows) {
  const auto worker = Open(Registration(node_));
  const auto driver = Drive();
  const std::string actor = Create(*driver);
  COHORT_EXPECT_OK(Submit("ranks"));
  v1::DesiredPlace desired;
  for (const v1::DesiredPlace& each : worker->Desired()) {
    if (!each.launch().has_actor()) desired = each;
  }
  ASSERT_EQ(desired.processes_size(), 1);
  const ProcessId rank = {*AttemptId::FromBytes(desired.attempt_id()),
                          desired.processes(0).slot(),
                          desired.processes(0).incarnation()};
  const auto process =
      DriveAs(rpc::MintRankCredential(credential_, rank), v1::OpenDriver());
  ASSERT_FALSE(process->closed.has_value()) << *process->closed;
  Watch(*process, actor, std::string(32, 't'));
  Watch(*process, actor);
  ASSERT_EQ(process->told.size(), 2u);
  EXPECT_EQ(process->told[0].slots(), 0u);
  EXPECT_EQ(process->told[0].secret(), std::string(32, 't'));
  Watch(*process, actor, std::string(32, 's'));
  ASSERT_EQ(process->told.size(), 3u);
  EXPECT_EQ(process->told[2].class_name(), "7Counter");
  EXPECT_FALSE(process->closed.has_value());
}

TEST_F(DriverCallsTest, AProcessFindsActorsOfItsOwnDriverByName) {
  const auto worker = Open(Registration(node_));
  const auto driver = Drive();
  const auto other = Drive();
  const std::string sibling = Create(*driver, 0, /*executor=*/true);
  const std::string stranger = Create(*other, 0, /*executor=*/true);
  const std::string actor = Create(*driver);
  Run(absl::Seconds(1));
  std::map<std::string, rpc::Credential> credentials;
  for (const v1::DesiredPlace& each : worker->Desired()) {
    ASSERT_EQ(each.processes_size(), 1);
    credentials.emplace(
        each.job_id(),
        rpc::MintRankCredential(
            credential_,
            {*AttemptId::FromBytes(each.attempt_id()), each.processes(0).slot(),
             each.processes(0).incarnation()}));
  }
  ASSERT_TRUE(credentials.contains(sibling));
  ASSERT_TRUE(credentials.contains(stranger));

  const auto process = DriveAs(credentials.at(sibling), v1::OpenDriver());
  WatchNamed(*process, "tally");
  ASSERT_EQ(process->told.size(), 1u);
  EXPECT_EQ(process->told[0].job_id(), actor);
  EXPECT_EQ(process->told[0].secret(), std::string(32, 's'));
  // It may call it, and no more.
  v1::StopJobRequest stop;
  stop.set_request_id("stop");
  stop.set_job_id(actor);
  EXPECT_THAT(
      Call(rpc::kStopJob, stop, absl::Seconds(5), credentials.at(sibling)),
      StatusIs(absl::StatusCode::kPermissionDenied));

  const auto outsider = DriveAs(credentials.at(stranger), v1::OpenDriver());
  WatchNamed(*outsider, "tally");
  ASSERT_EQ(outsider->told.size(), 1u);
  EXPECT_EQ(outsider->told[0].job_id(), "");
}

TEST_F(DriverCallsTest, AProcessThatIsOverIsNoDriver) {
  ProcessId gone;
  gone.attempt = AttemptId::New(random_);
  const auto process =
      DriveAs(rpc::MintRankCredential(credential_, gone), v1::OpenDriver());
  ASSERT_TRUE(process->closed.has_value());
  EXPECT_EQ(process->closed->code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(GetReason(*process->closed), "session_over");
}

TEST_F(DriverCallsTest, EndsWhatItOwnsWhenItEnds) {
  const auto driver = Drive();
  const std::string actor = Create(*driver);
  v1::DriverMessage message;
  message.mutable_end();
  COHORT_EXPECT_OK(driver->stream->Write(message));
  Run();
  ASSERT_TRUE(driver->closed.has_value());
  COHORT_EXPECT_OK(*driver->closed);
  EXPECT_EQ(Get(actor).state(), v1::JOB_STATE_STOPPED);
  EXPECT_THAT(Get(actor).reason(), HasSubstr("driver counter has ended"));
}

TEST_F(DriverCallsTest, GoesOnAfterABreakAndOverARestart) {
  auto driver = Drive();
  const std::string id = driver->id;
  const std::string actor = Create(*driver);
  driver->stream->Cancel();
  Run(absl::Seconds(10));
  driver = Drive(id);
  EXPECT_EQ(driver->id, id);
  Run(absl::Seconds(60));
  EXPECT_EQ(Get(actor).state(), v1::JOB_STATE_PENDING);
  Crash();
  Start();
  driver = Drive(id);
  EXPECT_EQ(driver->id, id);
  Watch(*driver, actor);
  EXPECT_EQ(driver->told.back().state(), v1::JOB_STATE_PENDING);
  Run(absl::Seconds(60));
  EXPECT_EQ(Get(actor).state(), v1::JOB_STATE_PENDING);
}

// A transport cannot always tell a break from the end of what is sent.
TEST_F(DriverCallsTest, IsWaitedForWhenItSendsNoMore) {
  const auto driver = Drive();
  const std::string actor = Create(*driver);
  driver->stream->HalfClose();
  Run(absl::Seconds(10));
  EXPECT_EQ(Get(actor).state(), v1::JOB_STATE_PENDING);
}

TEST_F(DriverCallsTest, IsOverWhenItStaysAway) {
  auto driver = Drive();
  const std::string id = driver->id;
  const std::string actor = Create(*driver);
  driver->stream->Cancel();
  Run(absl::Seconds(40));
  EXPECT_EQ(Get(actor).state(), v1::JOB_STATE_STOPPED);
  driver = Drive(id);
  ASSERT_TRUE(driver->closed.has_value());
  EXPECT_EQ(GetReason(*driver->closed), "session_over");
}

TEST_F(DriverCallsTest, OfTwoStreamsTheNewerOneWins) {
  const auto first = Drive();
  const auto second = Drive(first->id);
  ASSERT_TRUE(first->closed.has_value());
  EXPECT_TRUE(absl::IsAborted(*first->closed));
  EXPECT_EQ(second->id, first->id);
  const std::string actor = Create(*second);
  Run(absl::Seconds(60));
  EXPECT_EQ(Get(actor).state(), v1::JOB_STATE_PENDING);
}

TEST_F(DriverCallsTest, ListsDriversWithTheirActorsAndTasks) {
  const auto first = Drive();
  Create(*first);
  const auto second = Drive();
  v1::DriverMessage said;
  v1::TaskCounts& tasks = *said.mutable_tasks()->add_shapes();
  tasks.set_shape("CPU: 1");
  tasks.set_waiting(7);
  COHORT_EXPECT_OK(second->stream->Write(said));
  tasks.set_waiting(3);  // the former word is forgotten
  COHORT_EXPECT_OK(second->stream->Write(said));
  first->stream->Cancel();
  Run();
  const auto list = Call(rpc::kListDrivers, v1::ListDriversRequest());
  COHORT_ASSERT_OK(list);
  EXPECT_EQ(list->total(), 2u);
  ASSERT_EQ(list->drivers_size(), 2);
  for (const v1::Driver& driver : list->drivers()) {
    const bool is_second = driver.driver_id() == second->id;
    EXPECT_EQ(driver.name(), "counter");
    EXPECT_EQ(driver.connected(), is_second);
    EXPECT_EQ(driver.actors(), is_second ? 0u : 1u);
    EXPECT_EQ(driver.tasks_size(), is_second ? 1 : 0);
    if (!is_second) continue;
    EXPECT_EQ(driver.tasks(0).waiting(), 3u);
  }
  v1::ListDriversRequest request;
  request.set_limit(1);
  EXPECT_EQ(Call(rpc::kListDrivers, request)->drivers_size(), 1);
  request.set_limit(1'001);
  EXPECT_TRUE(
      absl::IsInvalidArgument(Call(rpc::kListDrivers, request).status()));
}

TEST_F(DriverCallsTest, ADriverMayCountSoManyShapesOnly) {
  const auto driver = Drive();
  v1::DriverMessage said;
  for (int i = 0; i < 64; ++i) said.mutable_tasks()->add_shapes();
  COHORT_EXPECT_OK(driver->stream->Write(said));
  Run();
  EXPECT_FALSE(driver->closed.has_value());
  said.mutable_tasks()->add_shapes();
  COHORT_EXPECT_OK(driver->stream->Write(said));
  Run();
  ASSERT_TRUE(driver->closed.has_value());
  EXPECT_TRUE(absl::IsInvalidArgument(*driver->closed));
}

// Jobs are listed without what only one by itself has.
TEST_F(DriverCallsTest, AListShowsWhatAnActorIsAndWhereItRuns) {
  const auto worker = Open(Registration(node_));
  const auto driver = Drive();
  Create(*driver);
  Say(*worker, Serving(RunJob(*worker)));
  v1::ListJobsRequest request;
  request.add_kinds(v1::JOB_KIND_ACTOR);
  auto list = Call(rpc::kListJobs, request);
  COHORT_ASSERT_OK(list);
  ASSERT_EQ(list->jobs_size(), 1);
  const v1::Job& actor = list->jobs(0);
  EXPECT_EQ(actor.spec().actor().driver_id(), driver->id);
  EXPECT_FALSE(actor.spec().has_launch());
  ASSERT_EQ(actor.ranks_size(), 1);
  EXPECT_EQ(actor.ranks(0).node_name(), "node");
  request.set_kinds(0, v1::JOB_KIND_JOB);
  list = Call(rpc::kListJobs, request);
  EXPECT_EQ(list->jobs_size(), 0);
}

TEST_F(DriverCallsTest, RefusesWhatItCannotRead) {
  const auto driver = Drive("short");
  ASSERT_TRUE(driver->closed.has_value());
  EXPECT_TRUE(absl::IsInvalidArgument(*driver->closed));
}

}  // namespace
}  // namespace cohort::head

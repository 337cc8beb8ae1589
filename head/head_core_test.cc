// Jobs through the head: submitted, kept through failures of the store and
// crashes, waited for, listed, refused to those who may not see them.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/status_util.h"
#include "common/testing/status_matchers.h"
#include "head/store/memory_store.h"
#include "head/testing/head_core_fixture.h"
#include "rpc/methods.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

TEST_F(HeadCoreTest, TakesAJobFromSubmitToItsEnd) {
  const auto job = Submit("r");
  COHORT_ASSERT_OK(job);
  EXPECT_EQ(Get(*job).state(), v1::JOB_STATE_PENDING);
  EXPECT_THAT(Get(*job).reason(), Not(IsEmpty()));
  auto worker = Open(Registration(node_));
  ASSERT_THAT(worker->Desired(), SizeIs(1));
  EXPECT_EQ(GoalFor(worker->Desired()[0]), v1::GOAL_PREPARE);
  EXPECT_TRUE(worker->messages[1].desired().full());
  EXPECT_EQ(worker->messages[0].stamp().term(), 1);
  const v1::DesiredPlace desired = RunJob(*worker);
  EXPECT_EQ(Get(*job).state(), v1::JOB_STATE_RUNNING);
  Say(*worker, Exited(desired, 0));
  const v1::Job ended = Get(*job);
  EXPECT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(ended.has_exit());
  ASSERT_EQ(ended.ranks_size(), 1);
  EXPECT_EQ(ended.ranks(0).node_name(), "node");
  EXPECT_EQ(ended.ranks(0).state(), v1::PROCESS_STATE_EXITED);
  EXPECT_EQ(worker->Desired().back().goal(), v1::GOAL_FORGET);
}

// RQ-1 and CM-3: whatever a failed append left behind, one request is one job.
TEST_F(HeadCoreTest, MakesOneJobOfARequestThroughFailedAppends) {
  for (const AppendFault fault :
       {AppendFault::kLanded, AppendFault::kNotLanded}) {
    const std::string id = absl::StrCat("r", static_cast<int>(fault));
    const size_t before = core_->state()->jobs().size();
    disk_.FailAfter(0, fault);
    const auto failed = Submit(id);
    EXPECT_THAT(failed, StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_EQ(GetReason(failed.status()), "outcome_unknown");
    Run();
    EXPECT_FALSE(core_->read_only());
    const auto again = Submit(id);
    COHORT_ASSERT_OK(again);
    EXPECT_THAT(Submit(id), IsOkAndHolds(*again));
    EXPECT_EQ(core_->state()->jobs().size(), before + 1);
  }
  EXPECT_EQ(disk_.faults_fired(), 2);
}

// RQ-1: the requests have the same fields.
TEST_F(HeadCoreTest, TellsRequestsOfDifferentMethodsApart) {
  const auto job = Submit("s");
  COHORT_ASSERT_OK(job);
  v1::HoldJobRequest hold;
  hold.set_request_id("r");
  hold.set_job_id(*job);
  COHORT_EXPECT_OK(Call(rpc::kHoldJob, hold));
  COHORT_EXPECT_OK(Call(rpc::kHoldJob, hold));
  v1::StopJobRequest stop;
  stop.set_request_id("r");
  stop.set_job_id(*job);
  EXPECT_THAT(Call(rpc::kStopJob, stop),
              StatusIs(absl::StatusCode::kAlreadyExists));
  v1::ReleaseJobRequest release;
  release.set_request_id("r");
  release.set_job_id(*job);
  EXPECT_THAT(Call(rpc::kReleaseJob, release),
              StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_TRUE(Get(*job).held());
}

TEST_F(HeadCoreTest, ResizesAJobWhoseRanksRestartOneByOne) {
  v1::SubmitJobRequest request = Submission("r");
  request.mutable_spec()->mutable_run()->set_restart(v1::RESTART_POLICY_ONE);
  const auto submitted = Call(rpc::kSubmitJob, request);
  COHORT_ASSERT_OK(submitted);
  auto worker = Open(Registration(node_));
  const v1::DesiredPlace before = RunJob(*worker);
  v1::ResizeJobRequest resize;
  resize.set_request_id("s");
  resize.set_job_id(submitted->job_id());
  resize.set_num_workers(2);
  COHORT_EXPECT_OK(Call(rpc::kResizeJob, resize));
  COHORT_EXPECT_OK(Call(rpc::kResizeJob, resize));
  const v1::Job job = Get(submitted->job_id());
  EXPECT_EQ(job.num_workers(), 2);
  ASSERT_EQ(job.ranks_size(), 2);
  EXPECT_EQ(job.ranks(0).state(), v1::PROCESS_STATE_RUNNING);
  EXPECT_NE(job.ranks(1).incarnation(), job.ranks(0).incarnation());
  const v1::DesiredPlace after = worker->Desired().back();
  EXPECT_EQ(after.attempt_id(), before.attempt_id());
  EXPECT_EQ(after.world_size(), 2);
  EXPECT_GT(after.epoch(), before.epoch());
  EXPECT_EQ(after.processes_size(), 2);

  const auto gang = Submit("gang");
  COHORT_ASSERT_OK(gang);
  resize.set_request_id("t");
  resize.set_job_id(*gang);
  const auto refused = Call(rpc::kResizeJob, resize);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("restart policy is all")));
  EXPECT_EQ(GetReason(refused.status()), "not_resizable");
  resize.set_num_workers(0);
  EXPECT_EQ(Call(rpc::kResizeJob, resize).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// BD-1
TEST_F(HeadCoreTest, EndsAnArrayInTurnsByItselfAlsoWhenTheStoreFailsBetween) {
  Crash();
  options_.limits.turn_rows_max = 5;
  Start();
  v1::SubmitJobRequest request = Submission("r");
  request.mutable_spec()->set_array("0-39");
  const auto submitted = Call(rpc::kSubmitJob, request);
  COHORT_ASSERT_OK(submitted);
  disk_.FailAfter(3, AppendFault::kLanded);
  v1::StopJobRequest stop;
  stop.set_request_id("s");
  stop.set_job_id(submitted->job_id());
  COHORT_EXPECT_OK(Call(rpc::kStopJob, stop));
  Run();
  EXPECT_EQ(disk_.faults_fired(), 1);
  const auto& arrays = core_->state()->jobs().arrays();
  EXPECT_EQ(arrays.Find(*JobId::FromBytes(submitted->job_id()))->State(),
            v1::JOB_STATE_STOPPED);
  EXPECT_FALSE(core_->state()->HasToGoOn());
}

TEST_F(HeadCoreTest, SaysOfAnArrayWhetherItIsHeld) {
  v1::SubmitJobRequest request = Submission("a");
  request.mutable_spec()->set_array("0-3");
  request.mutable_spec()->set_hold(true);
  const auto submitted = Call(rpc::kSubmitJob, request);
  COHORT_ASSERT_OK(submitted);
  const v1::Job held = Get(submitted->job_id());
  EXPECT_TRUE(held.held());
  EXPECT_FALSE(held.held_by().empty());
  v1::ReleaseJobRequest release;
  release.set_request_id("r");
  release.set_job_id(JobId::FromBytes(submitted->job_id())->Element(2).bytes());
  COHORT_EXPECT_OK(Call(rpc::kReleaseJob, release));
  EXPECT_FALSE(Get(submitted->job_id()).held());
}

TEST_F(HeadCoreTest, AnswersReadsAndRefusesWritesWhileTheDiskIsFull) {
  const auto job = Submit("before");
  COHORT_ASSERT_OK(job);
  disk_.Refuse();
  EXPECT_THAT(Submit("during"), StatusIs(absl::StatusCode::kUnavailable));
  Run();
  EXPECT_TRUE(core_->read_only());
  const auto refused = Submit("during");
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(GetReason(refused.status()), "read_only");
  // People are told what the disk said, not only that it refuses.
  EXPECT_THAT(refused.status().message(),
              HasSubstr("injected: the append failed"));
  EXPECT_EQ(Get(*job).state(), v1::JOB_STATE_PENDING);
  EXPECT_TRUE(Status().read_only());
  disk_.Heal();
  Run(absl::Seconds(2));
  COHORT_EXPECT_OK(Submit("during"));
  EXPECT_FALSE(Status().read_only());
}

// Nobody has to lose a change for it.
TEST_F(HeadCoreTest, NoticesAFullDiskByItself) {
  disk_.Refuse();
  Run(absl::Seconds(11));
  EXPECT_TRUE(core_->read_only());
  EXPECT_EQ(GetReason(Submit("during").status()), "read_only");
  disk_.Heal();
  Run(absl::Seconds(2));
  EXPECT_FALSE(core_->read_only());
  COHORT_EXPECT_OK(Submit("during"));
}

TEST_F(HeadCoreTest, AnswersReadsWhileTheStoreCannotEvenBeOpened) {
  const auto job = Submit("before");
  COHORT_ASSERT_OK(job);
  const uint64_t term = core_->state()->cluster().term();
  disk_.FailAfter(0, AppendFault::kNotLanded);
  opens_ = absl::UnavailableError("injected: no room for a manifest");
  EXPECT_THAT(Submit("during"), StatusIs(absl::StatusCode::kUnavailable));
  Run(absl::Seconds(3));
  EXPECT_EQ(Get(*job).state(), v1::JOB_STATE_PENDING);
  EXPECT_TRUE(Status().read_only());
  EXPECT_EQ(core_->state()->cluster().term(), term);
  EXPECT_THAT(Submit("during").status().message(),
              HasSubstr("no room for a manifest"));
  opens_ = absl::OkStatus();
  Run(absl::Seconds(2));
  COHORT_EXPECT_OK(Submit("during"));
  EXPECT_EQ(core_->state()->cluster().term(), term + 1);
}

TEST_F(HeadCoreTest, MakesWorkersRegisterAgainAfterAFailedAppend) {
  auto worker = Open(Registration(node_));
  disk_.FailAfter(0, AppendFault::kNotLanded);
  EXPECT_FALSE(Submit("r").ok());
  Run();
  ASSERT_TRUE(worker->closed.has_value());
  EXPECT_THAT(*worker->closed, StatusIs(absl::StatusCode::kUnavailable));
  auto again = Open(Registration(node_));
  EXPECT_GT(again->incarnation, worker->incarnation);
  COHORT_EXPECT_OK(Submit("r"));
  EXPECT_THAT(again->Desired(), SizeIs(1));
}

TEST_F(HeadCoreTest, KeepsEverythingThroughACrash) {
  const auto job = Submit("r");
  COHORT_ASSERT_OK(job);
  auto worker = Open(Registration(node_));
  const v1::DesiredPlace desired = RunJob(*worker);
  Crash();
  Run();
  Start();
  EXPECT_THAT(Submit("r"), IsOkAndHolds(*job));
  EXPECT_EQ(Get(*job).state(), v1::JOB_STATE_RUNNING);
  v1::WorkerMessage registration = Registration(node_);
  *registration.mutable_register_()->mutable_observed()->add_places() =
      At(desired, Stage::kRunning);
  auto again = Open(registration);
  ASSERT_THAT(again->Desired(), SizeIs(1));
  EXPECT_EQ(GoalFor(again->Desired()[0]), v1::GOAL_RUN);
  EXPECT_EQ(again->messages[0].stamp().term(), 2);
  Say(*again, Exited(desired, 0));
  EXPECT_EQ(Get(*job).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(HeadCoreTest, EndsWhenAnotherHeadTookTheStore) {
  std::unique_ptr<HeadCore> other = std::make_unique<HeadCore>(
      options_,
      HeadSeams{.strand = time_,
                .store_executor = time_,
                .clock = time_,
                .random = random_,
                .packages = packages_},
      [this](StoreAccess) -> absl::StatusOr<std::unique_ptr<Store>> {
        return std::make_unique<MemoryStore>(disk_);
      },
      [](const absl::Status&) {});
  other->Start([](const absl::Status& status) { COHORT_EXPECT_OK(status); });
  time_.RunUntilIdle();
  EXPECT_FALSE(Submit("r").ok());
  ASSERT_TRUE(fatal_.has_value());
  EXPECT_THAT(*fatal_, StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(other->state()->jobs().size(), 0);
}

TEST_F(HeadCoreTest, NumbersOfEventsAreOfOneGeneration) {
  const auto first = Call(rpc::kListEvents, v1::ListEventsRequest());
  COHORT_ASSERT_OK(first);
  EXPECT_EQ(first->generation(), core_->state()->cluster().generation());
  v1::ListEventsRequest request;
  request.set_generation(first->generation());
  COHORT_EXPECT_OK(Call(rpc::kListEvents, request));
  request.set_generation(std::string(16, 'x'));
  request.set_after(1'000);
  request.set_wait(true);
  const auto refused = Call(rpc::kListEvents, request);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("store_restored")));
  EXPECT_EQ(GetReason(refused.status()), "history_replaced");
}

// Of a store on a full disk.
class NoRoom final : public Backups {
 public:
  explicit NoRoom(Executor& strand) : strand_(strand) {}
  void Write(Store&, BackupRequest, Done done) override {
    strand_.Post([done = std::move(done)]() mutable {
      std::move(done)(SetReason(absl::UnavailableError("the disk is full"),
                                kDiskFullReason));
    });
  }

 private:
  Executor& strand_;
};

// The client asks again for as long as the answer is UNAVAILABLE.
TEST_F(HeadCoreTest, ABackupOfAFullDiskIsNotToBeAskedForAgain) {
  Crash();
  NoRoom backups(time_);
  backups_ = &backups;
  Start();
  v1::BackupStoreRequest request;
  request.set_request_id("r1");
  request.set_directory("/b");
  const auto refused = Call(rpc::kBackupStore, request);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("the disk is full")));
  EXPECT_EQ(GetReason(refused.status()), kDiskFullReason);
  // Nor while the head opens it again.
  disk_.Refuse();
  opens_ = SetReason(absl::UnavailableError("no room"), kDiskFullReason);
  EXPECT_THAT(Submit("during"), StatusIs(absl::StatusCode::kUnavailable));
  Run(absl::Seconds(2));
  EXPECT_TRUE(core_->read_only());
  EXPECT_THAT(
      Call(rpc::kBackupStore, request),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no room")));
  Crash();
}

TEST_F(HeadCoreTest, StartsReadOnlyOnAFullDisk) {
  COHORT_ASSERT_OK(Submit("before"));
  Crash();
  opens_ = SetReason(absl::UnavailableError("no room"), kDiskFullReason);
  Start();
  EXPECT_TRUE(core_->read_only());
  const auto jobs = Call(rpc::kListJobs, v1::ListJobsRequest());
  COHORT_ASSERT_OK(jobs);
  EXPECT_EQ(jobs->jobs_size(), 1);
  EXPECT_THAT(Submit("during"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no room")));
  opens_ = absl::OkStatus();
  Run(absl::Seconds(2));
  EXPECT_FALSE(core_->read_only());
  COHORT_EXPECT_OK(Submit("after"));
}

TEST_F(HeadCoreTest, SaysNoWhenTooMuchWaitsForTheDisk) {
  Crash();
  options_.pending_transitions_max = 1;
  Start();
  // Both arrive before the disk has answered the first.
  auto channel = network_.Connect("client", kHead, credential_);
  std::vector<absl::Status> answers;
  for (const char* id : {"a", "b", "c"}) {
    rpc::Call<v1::SubmitJobRequest, v1::SubmitJobResponse>(
        *channel, rpc::kSubmitJob, Submission(id),
        {.deadline = absl::Seconds(5)}, time_,
        [&](absl::StatusOr<v1::SubmitJobResponse> response) {
          answers.push_back(response.status());
        });
  }
  core_->Submit([] {
    Transition transition;
    EventRecord event;
    event.set_number(1'000'000);
    transition.Put(event);
    return transition;
  }());
  EXPECT_EQ(core_->Writable(Admission::kClient).status().code(),
            absl::StatusCode::kResourceExhausted);
  COHORT_EXPECT_OK(core_->Writable(Admission::kNode));
  Run();
  EXPECT_THAT(answers, SizeIs(3));
}

TEST_F(HeadCoreTest, AnswersAWaitWhenTheJobEnds) {
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  const v1::DesiredPlace desired = RunJob(*worker);
  auto channel = network_.Connect("client", kHead, credential_);
  v1::WaitJobRequest request;
  request.set_job_id(*job);
  std::optional<absl::StatusOr<v1::WaitJobResponse>> answer;
  rpc::Call<v1::WaitJobRequest, v1::WaitJobResponse>(
      *channel, rpc::kWaitJob, request, {.deadline = absl::Hours(1)}, time_,
      [&](auto response) { answer = std::move(response); });
  Run(absl::Seconds(1));
  EXPECT_FALSE(answer.has_value());
  Say(*worker, Exited(desired, 7));
  ASSERT_TRUE(answer.has_value());
  COHORT_ASSERT_OK(*answer);
  EXPECT_EQ((*answer)->job().state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ((*answer)->job().exit().code(), 7);
  // Asked afterwards it answers at once.
  const auto again = Call(rpc::kWaitJob, request);
  COHORT_ASSERT_OK(again);
  EXPECT_EQ(again->job().failed_rank(), 0);
}

TEST_F(HeadCoreTest, AnswersWhatWaitsWhenItBeginsToEnd) {
  const auto job = Submit("r");
  COHORT_ASSERT_OK(job);
  auto worker = Open(Registration(node_));
  auto channel = network_.Connect("client", kHead, credential_);
  v1::WaitJobRequest wait;
  wait.set_job_id(*job);
  std::optional<absl::StatusOr<v1::WaitJobResponse>> waited;
  rpc::Call<v1::WaitJobRequest, v1::WaitJobResponse>(
      *channel, rpc::kWaitJob, wait, {.deadline = absl::Hours(1)}, time_,
      [&](auto response) { waited = std::move(response); });
  Run(absl::Seconds(1));
  ASSERT_FALSE(waited.has_value());
  core_->BeginEnd();
  Run();
  ASSERT_TRUE(waited.has_value());
  EXPECT_THAT(*waited, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(GetReason(waited->status()), "shutting_down");
  ASSERT_TRUE(worker->closed.has_value());
  EXPECT_EQ(GetReason(*worker->closed), "shutting_down");
  // Whatever comes now is for the next head.
  EXPECT_EQ(GetReason(Submit("late").status()), "shutting_down");
  EXPECT_THAT(Call(rpc::kGetJob, v1::GetJobRequest()),
              StatusIs(absl::StatusCode::kUnavailable));
  Crash();
  Start();
  EXPECT_EQ(core_->state()->jobs().size(), 1u);
}

TEST_F(HeadCoreTest, EndsAWaitAtItsDeadlineAndForgetsIt) {
  const auto job = Submit("r");
  v1::WaitJobRequest request;
  request.set_job_id(*job);
  EXPECT_THAT(Call(rpc::kWaitJob, request, absl::Seconds(1)),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
}

// CS-2.
TEST_F(HeadCoreTest, LetsARankReadItsOwnJobOnly) {
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  const v1::DesiredPlace desired = RunJob(*worker);
  const auto other = Submit("other");
  const rpc::Credential rank = rpc::MintRankCredential(
      credential_,
      {*AttemptId::FromBytes(desired.attempt_id()), desired.processes(0).slot(),
       desired.processes(0).incarnation()});
  v1::GetJobRequest request;
  request.set_job_id(*job);
  COHORT_EXPECT_OK(Call(rpc::kGetJob, request, absl::Seconds(5), rank));
  request.set_job_id(*other);
  EXPECT_THAT(Call(rpc::kGetJob, request, absl::Seconds(5), rank),
              StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_FALSE(
      Call(rpc::kSubmitJob, Submission("x"), absl::Seconds(5), rank).ok());
  EXPECT_FALSE(
      Call(rpc::kListJobs, v1::ListJobsRequest(), absl::Seconds(5), rank).ok());
}

TEST_F(HeadCoreTest, RefusesACallerWithAnotherCredential) {
  EXPECT_THAT(Call(rpc::kGetStatus, v1::GetStatusRequest(), absl::Seconds(5),
                   *rpc::Credential::FromBytes(std::string(32, 'x'))),
              StatusIs(absl::StatusCode::kUnauthenticated));
}

TEST_F(HeadCoreTest, ListsJobsNewestFirst) {
  const auto first = Submit("1");
  const auto second = Submit("2");
  const auto jobs = Call(rpc::kListJobs, v1::ListJobsRequest());
  COHORT_ASSERT_OK(jobs);
  ASSERT_EQ(jobs->jobs_size(), 2);
  EXPECT_EQ(jobs->jobs(0).job_id(), *second);
  EXPECT_EQ(Status().jobs_by_state().at("PENDING"), 2);
  EXPECT_EQ(Status().head_pid(), 42);
}

TEST_F(HeadCoreTest, TellsWhatTheClusterHasAndWhatIsLeft) {
  auto worker = Open(Registration(node_, 4));
  COHORT_ASSERT_OK(Submit("r"));
  const auto resources = Call(rpc::kGetResources, v1::GetResourcesRequest());
  COHORT_ASSERT_OK(resources);
  EXPECT_EQ(rpc::FromWire(resources->total())->Get(kCpu), Amount::FromUnits(4));
  EXPECT_EQ(rpc::FromWire(resources->available())->Get(kCpu),
            Amount::FromUnits(3));
  const auto nodes = Call(rpc::kListNodes, v1::ListNodesRequest());
  ASSERT_EQ(nodes->nodes_size(), 1);
  EXPECT_EQ(nodes->nodes(0).state(), v1::NODE_STATE_ALIVE);
}

}  // namespace
}  // namespace cohort::head

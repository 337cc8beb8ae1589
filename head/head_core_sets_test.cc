// Sets that are larger than a message, either way (NS-5).

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/status_util.h"
#include "common/testing/status_matchers.h"
#include "head/testing/head_core_fixture.h"
#include "rpc/methods.h"

namespace cohort::head {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class HeadSetTest : public HeadCoreTest {
 protected:
  // The first chunk of a set that goes on.
  v1::WorkerMessage Beginning(const NodeId& node) {
    v1::WorkerMessage message = Registration(node);
    message.mutable_register_()->mutable_observed()->set_more(true);
    return message;
  }
  static v1::WorkerMessage Chunk(const v1::ObservedPlace& attempt, bool more) {
    v1::WorkerMessage message;
    message.mutable_observed()->set_full(true);
    message.mutable_observed()->set_more(more);
    *message.mutable_observed()->add_places() = attempt;
    return message;
  }
  // An attempt that nobody knows, with a long story.
  v1::ObservedPlace Unknown(size_t bytes) {
    v1::ObservedPlace attempt;
    attempt.set_attempt_id(std::string(AttemptId::New(random_).bytes()));
    attempt.set_job_id(job_);
    attempt.set_phase(v1::PHASE_PREPARED);
    v1::ObservedProcess& process = *attempt.add_processes();
    process.set_incarnation(1);
    process.set_state(v1::PROCESS_STATE_ENDED);
    process.set_detail(std::string(bytes, 'x'));
    return attempt;
  }
  void Write(FakeWorker& worker, const v1::WorkerMessage& message) {
    (void)worker.stream->Write(message);
    Run();
  }
  // A job that runs on the node; the head and its stream begin again.
  v1::DesiredPlace RunThenRestart() {
    job_ = *Submit("r");
    auto worker = Open(Registration(node_));
    const v1::DesiredPlace desired = RunJob(*worker);
    EXPECT_EQ(Get(job_).state(), v1::JOB_STATE_RUNNING);
    worker.reset();
    Crash();
    Run();
    Start();
    return desired;
  }

  std::string job_ = std::string(16, 'j');
};

TEST_F(HeadSetTest, AbsenceIsJudgedAndRoomOfferedAfterTheLastChunk) {
  const v1::DesiredPlace desired = RunThenRestart();
  auto worker = Open(Beginning(node_));
  const std::string another = *Submit("another");
  Write(*worker, Chunk(Unknown(1), /*more=*/true));
  EXPECT_THAT(worker->messages, IsEmpty());
  EXPECT_EQ(Get(job_).state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Get(another).state(), v1::JOB_STATE_PENDING) << "not offered yet";
  Write(*worker, Chunk(At(desired, Stage::kRunning), /*more=*/false));
  EXPECT_GT(worker->incarnation, 0u);
  EXPECT_FALSE(worker->closed.has_value());
  EXPECT_EQ(Get(job_).state(), v1::JOB_STATE_RUNNING);
  int runs = 0, forgets = 0, prepares = 0;
  for (const v1::DesiredPlace& each : worker->Desired()) {
    runs += GoalFor(each) == v1::GOAL_RUN;
    forgets += GoalFor(each) == v1::GOAL_FORGET;
    prepares += GoalFor(each) == v1::GOAL_PREPARE;
  }
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(forgets, 1);
  EXPECT_EQ(prepares, 1) << "there is room for the other job now";
}

TEST_F(HeadSetTest, AStreamThatIsCutInTheMiddleChangesNothing) {
  const v1::DesiredPlace desired = RunThenRestart();
  auto worker = Open(Beginning(node_));
  worker.reset();
  Run();
  EXPECT_EQ(Get(job_).state(), v1::JOB_STATE_RUNNING);
  worker = Open(Beginning(node_));
  Write(*worker, Chunk(At(desired, Stage::kRunning), /*more=*/false));
  EXPECT_GT(worker->incarnation, 0u);
  EXPECT_EQ(Get(job_).state(), v1::JOB_STATE_RUNNING);
}

TEST_F(HeadSetTest, WhoNeverSendsTheLastChunkHarmsOnlyItself) {
  auto endless = Open(Beginning(node_));
  auto other = Open(Registration(NodeId::New(random_)), "other");
  EXPECT_GT(other->incarnation, 0u);
  Run(absl::Seconds(8));
  Write(*endless, Chunk(Unknown(1), /*more=*/true));
  Run(absl::Seconds(8));
  EXPECT_FALSE(endless->closed.has_value()) << "it goes on";
  Run(absl::Seconds(20));
  ASSERT_TRUE(endless->closed.has_value());
  EXPECT_THAT(*endless->closed, StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(core_->state()->nodes().records(), SizeIs(1));
}

TEST_F(HeadSetTest, NonsenseInTheMiddleEndsTheStream) {
  v1::WorkerMessage delta = Chunk(Unknown(1), /*more=*/true);
  delta.mutable_observed()->set_full(false);
  v1::WorkerMessage beat;
  beat.mutable_heartbeat();
  for (const v1::WorkerMessage& nonsense :
       {delta, beat, Beginning(node_), v1::WorkerMessage()}) {
    auto worker = Open(Beginning(node_));
    Write(*worker, nonsense);
    ASSERT_TRUE(worker->closed.has_value());
    EXPECT_THAT(*worker->closed, StatusIs(absl::StatusCode::kInvalidArgument));
  }
  // The same attempt in two chunks.
  auto worker = Open(Beginning(node_));
  const v1::ObservedPlace twice = Unknown(1);
  Write(*worker, Chunk(twice, /*more=*/true));
  Write(*worker, Chunk(twice, /*more=*/false));
  ASSERT_TRUE(worker->closed.has_value());
  EXPECT_THAT(*worker->closed, StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(core_->state()->nodes().records(), IsEmpty());
}

TEST_F(HeadSetTest, ASetIsBoundedAndSaysWhatToDo) {
  auto worker = Open(Beginning(node_));
  for (int i = 0; i < 40 && !worker->closed.has_value(); ++i) {
    Write(*worker, Chunk(Unknown(4 << 20), /*more=*/true));
  }
  ASSERT_TRUE(worker->closed.has_value());
  EXPECT_THAT(*worker->closed,
              StatusIs(absl::StatusCode::kResourceExhausted,
                       ::testing::HasSubstr("new --state-dir")));
  EXPECT_EQ(GetReason(*worker->closed), "observed_set_too_large");
  // Its room is free again.
  worker = Open(Registration(node_));
  EXPECT_GT(worker->incarnation, 0u);
}

TEST_F(HeadSetTest, WordsThatFollowTheStateAreRecordedThenAcknowledged) {
  const v1::DesiredPlace desired = RunThenRestart();
  v1::WorkerMessage registration = Registration(node_);
  v1::ObservedPlace ended = Exited(desired, 3);
  *registration.mutable_register_()->mutable_observed()->add_places() = ended;
  auto worker = Open(registration);
  EXPECT_EQ(Get(job_).state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Get(job_).stderr_tail(), "");
  ended.mutable_processes(0)->set_stderr_tail("why");
  Say(*worker, ended);
  EXPECT_EQ(Get(job_).stderr_tail(), "why");
  int words = 0;
  for (const v1::HeadMessage& message : worker->messages) {
    for (const v1::ProcessId& process : message.acknowledge().words()) {
      EXPECT_EQ(process.attempt_id(), desired.attempt_id());
      EXPECT_EQ(process.slot(), 0);
      EXPECT_EQ(process.incarnation(), desired.processes(0).incarnation());
      ++words;
    }
  }
  EXPECT_EQ(words, 1);
}

// 36 MiB, of which a stream's queue takes 16.
TEST_F(HeadSetTest, ADesiredSetLargerThanAQueueArrives) {
  auto worker = Open(Registration(node_, 40));
  for (int i = 0; i < 40; ++i) {
    v1::SubmitJobRequest request = Submission(absl::StrCat("r", i));
    for (int each = 0; each < 9; ++each) {
      (*request.mutable_spec()
            ->mutable_launch()
            ->mutable_environment())[absl::StrCat("LONG", each)] =
          std::string(100 << 10, 'e');
    }
    ASSERT_THAT(Call(rpc::kSubmitJob, request), IsOk());
  }
  Run(absl::Seconds(5));
  EXPECT_THAT(worker->Desired(), SizeIs(40));
  v1::WorkerMessage registration = Registration(node_, 40);
  for (const v1::DesiredPlace& each : worker->Desired()) {
    *registration.mutable_register_()->mutable_observed()->add_places() =
        At(each, Stage::kPreparing);
  }
  worker.reset();
  Run();
  worker = Open(registration);
  Run(absl::Seconds(5));
  EXPECT_FALSE(worker->closed.has_value());
  EXPECT_THAT(worker->Desired(), SizeIs(40));
  int full = 0;
  for (const v1::HeadMessage& message : worker->messages) {
    if (!message.desired().full()) continue;
    ++full;
    EXPECT_LT(message.ByteSizeLong(), size_t{3} << 20);
  }
  EXPECT_GT(full, 10);
  EXPECT_FALSE(worker->messages.back().desired().more());
}

}  // namespace
}  // namespace cohort::head

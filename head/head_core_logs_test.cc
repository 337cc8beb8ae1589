// Logs through the head: asked of the worker, followed, and slow readers.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/status_util.h"
#include "common/testing/status_matchers.h"
#include "head/testing/head_core_fixture.h"
#include "rpc/methods.h"

namespace cohort::head {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

struct LogReader {
  std::unique_ptr<rpc::Channel> channel;
  std::unique_ptr<rpc::TypedStream<v1::ReadLogRequest>> stream;
  std::vector<v1::ReadLogResponse> chunks;
  std::optional<absl::Status> closed;
};

class HeadLogTest : public HeadCoreTest {
 protected:
  std::unique_ptr<LogReader> Read(const v1::ReadLogRequest& request) {
    auto reader = std::make_unique<LogReader>();
    reader->channel = network_.Connect("reader", kHead, credential_);
    LogReader* raw = reader.get();
    reader->stream = rpc::OpenStream<v1::ReadLogRequest, v1::ReadLogResponse>(
        *reader->channel, rpc::kReadLog, {.deadline = absl::Hours(1)}, time_,
        {.on_message =
             [raw](const v1::ReadLogResponse& chunk) {
               raw->chunks.push_back(chunk);
             },
         .on_closed = [raw](absl::Status status,
                            auto) { raw->closed = std::move(status); },
         .on_drained = nullptr});
    COHORT_EXPECT_OK(reader->stream->Write(request));
    reader->stream->HalfClose();
    Run();
    return reader;
  }
  v1::ReadLogRequest Request(const std::string& job, bool follow) {
    v1::ReadLogRequest request;
    request.set_job_id(job);
    request.set_stream(v1::LOG_STREAM_STDOUT);
    request.set_follow(follow);
    return request;
  }
  // The questions that the worker was asked and has not answered.
  std::vector<v1::ReadLogChunk> TakeQuestions(FakeWorker& worker) {
    std::vector<v1::ReadLogChunk> questions;
    for (const v1::HeadMessage& message : worker.messages) {
      if (message.has_read_log()) questions.push_back(message.read_log());
    }
    worker.messages.clear();
    return questions;
  }
  void Answer(FakeWorker& worker, const v1::ReadLogChunk& question,
              const std::string& data, bool end, int64_t offset = -1) {
    v1::WorkerMessage message;
    message.set_incarnation(worker.incarnation);
    v1::LogChunk* chunk = message.mutable_log_chunk();
    chunk->set_read_id(question.read_id());
    chunk->set_offset(offset < 0 ? question.offset() : offset);
    chunk->set_data(data);
    chunk->set_end(end);
    chunk->set_known(true);
    COHORT_EXPECT_OK(worker.stream->Write(message));
    Run();
  }
};

TEST_F(HeadLogTest, ReadsToThePresentEnd) {
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  RunJob(*worker);
  worker->messages.clear();
  auto reader = Read(Request(*job, /*follow=*/false));
  auto questions = TakeQuestions(*worker);
  ASSERT_THAT(questions, SizeIs(1));
  EXPECT_EQ(questions[0].offset(), 0);
  EXPECT_FALSE(questions[0].wait());
  Answer(*worker, questions[0], "hello ", false);
  questions = TakeQuestions(*worker);
  ASSERT_THAT(questions, SizeIs(1));
  EXPECT_EQ(questions[0].offset(), 6);
  // Rotated away meanwhile: the gap is told (LG-2).
  Answer(*worker, questions[0], "world", false, /*offset=*/10);
  Answer(*worker, TakeQuestions(*worker)[0], "", false);
  ASSERT_TRUE(reader->closed.has_value());
  COHORT_EXPECT_OK(*reader->closed);
  ASSERT_THAT(reader->chunks, SizeIs(2));
  EXPECT_EQ(reader->chunks[0].data(), "hello ");
  EXPECT_EQ(reader->chunks[1].skipped(), 4);
  EXPECT_EQ(reader->chunks[1].offset(), 10);
}

TEST_F(HeadLogTest, FollowsAcrossAttemptsUntilTheJobEnds) {
  v1::SubmitJobRequest submission = Submission("r");
  submission.mutable_spec()->mutable_run()->set_max_failures(1);
  submission.mutable_spec()->mutable_run()->set_retry_delay_us(0);
  const auto submitted = Call(rpc::kSubmitJob, submission);
  COHORT_ASSERT_OK(submitted);
  const std::string job = submitted->job_id();
  auto reader = Read(Request(job, /*follow=*/true));
  EXPECT_FALSE(reader->closed.has_value());  // it has not started yet
  auto worker = Open(Registration(node_));
  v1::DesiredAttempt desired = RunJob(*worker);
  auto questions = TakeQuestions(*worker);
  ASSERT_THAT(questions, Not(IsEmpty()));
  EXPECT_TRUE(questions.back().wait());
  Answer(*worker, questions.back(), "one", true);
  EXPECT_FALSE(reader->closed.has_value());
  Say(*worker, Exited(desired, 1));
  v1::DesiredAttempt second;
  for (const v1::DesiredAttempt& each : worker->Desired()) {
    if (each.goal() == v1::GOAL_PREPARE) second = each;
  }
  EXPECT_EQ(second.number(), 2);
  questions = TakeQuestions(*worker);
  ASSERT_THAT(questions, Not(IsEmpty()));
  EXPECT_EQ(questions.back().attempt_id(), second.attempt_id());
  EXPECT_EQ(questions.back().offset(), 0);
  Say(*worker, At(second, v1::PHASE_PREPARED));
  Say(*worker, At(second, v1::PHASE_RUNNING));
  Say(*worker, Exited(second, 0));
  Answer(*worker, questions.back(), "two", true);
  ASSERT_TRUE(reader->closed.has_value());
  COHORT_EXPECT_OK(*reader->closed);
  ASSERT_THAT(reader->chunks, SizeIs(2));
  EXPECT_EQ(reader->chunks[1].attempt(), 2);
}

TEST_F(HeadLogTest, SaysWhenTheNodeIsAway) {
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  RunJob(*worker);
  auto reader = Read(Request(*job, /*follow=*/true));
  auto glance = Read(Request(*job, /*follow=*/false));
  worker->stream.reset();
  Run();
  ASSERT_TRUE(glance->closed.has_value());
  EXPECT_EQ(GetReason(*glance->closed), "node_away");
  // A follower gives a restarted daemon the time to come back.
  EXPECT_FALSE(reader->closed.has_value());
  Run(absl::Seconds(6));
  ASSERT_TRUE(reader->closed.has_value());
  EXPECT_THAT(*reader->closed, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(GetReason(*reader->closed), "node_away");
}

// NS-4
TEST_F(HeadLogTest, KeepsNodesAndShowsLogsAndEventsWhileTheDiskIsFull) {
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  const v1::DesiredAttempt desired = RunJob(*worker);
  worker->messages.clear();
  const uint64_t events = core_->state()->cluster().next_event - 1;
  disk_.Refuse();
  EXPECT_THAT(Submit("during"), StatusIs(absl::StatusCode::kUnavailable));
  // Longer than any lease, and with words of the node in every state of it.
  for (int i = 0; i < 15; ++i) {
    v1::WorkerMessage beat;
    beat.set_incarnation(worker->incarnation);
    beat.mutable_heartbeat();
    COHORT_ASSERT_OK(worker->stream->Write(beat));
    Run(absl::Seconds(1));
  }
  Say(*worker, Exited(desired, 0));
  EXPECT_TRUE(core_->read_only());
  EXPECT_FALSE(worker->closed.has_value()) << *worker->closed;

  auto reader = Read(Request(*job, /*follow=*/false));
  const auto questions = TakeQuestions(*worker);
  ASSERT_THAT(questions, SizeIs(1));
  Answer(*worker, questions[0], "hello", true);
  ASSERT_THAT(reader->chunks, SizeIs(1));
  EXPECT_EQ(reader->chunks[0].data(), "hello");
  const auto listed = Call(rpc::kListEvents, v1::ListEventsRequest());
  COHORT_ASSERT_OK(listed);
  EXPECT_EQ(listed->events_size(), static_cast<int>(events));

  // The daemon starts anew: it is taken in as what its row says.
  worker->stream.reset();
  Run();
  auto again = Open(Registration(node_));
  EXPECT_FALSE(again->closed.has_value()) << *again->closed;
  EXPECT_EQ(again->incarnation, worker->incarnation);
  EXPECT_THAT(again->Desired(), IsEmpty());
  auto second = Read(Request(*job, /*follow=*/false));
  EXPECT_THAT(TakeQuestions(*again), SizeIs(1));
  // Of one without a row nothing is known.
  auto stranger = Open(Registration(NodeId::New(random_)), "stranger");
  ASSERT_TRUE(stranger->closed.has_value());
  EXPECT_EQ(GetReason(*stranger->closed), "read_only");

  disk_.Heal();
  Run(absl::Seconds(2));
  EXPECT_FALSE(core_->read_only());
  ASSERT_TRUE(again->closed.has_value());  // and registers with everything
  EXPECT_EQ(Get(*job).state(), v1::JOB_STATE_RUNNING);
  v1::WorkerMessage registration = Registration(node_);
  *registration.mutable_register_()->mutable_observed()->add_attempts() =
      Exited(desired, 0);
  auto third = Open(registration);
  EXPECT_GT(third->incarnation, again->incarnation);
  EXPECT_EQ(Get(*job).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(HeadLogTest, RefusesWhatIsNotThere) {
  const auto job = Submit("r");
  v1::ReadLogRequest request = Request(*job, false);
  request.set_rank(5);
  EXPECT_THAT(*Read(request)->closed, StatusIs(absl::StatusCode::kNotFound));
  request = Request(std::string(16, 'x'), false);
  EXPECT_THAT(*Read(request)->closed, StatusIs(absl::StatusCode::kNotFound));
  request = Request(*job, false);
  request.set_attempt(3);
  EXPECT_THAT(*Read(request)->closed, StatusIs(absl::StatusCode::kNotFound));
  // Nothing has run: the present end is at once.
  COHORT_EXPECT_OK(*Read(Request(*job, false))->closed);
}

// LG-1.
TEST_F(HeadLogTest, AsksForNoMoreThanASlowReaderTakes) {
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  RunJob(*worker);
  worker->messages.clear();
  auto reader = Read(Request(*job, /*follow=*/true));
  network_.Partition("reader", kHead);
  size_t asked = 0;
  for (int i = 0; i < 50; ++i) {
    const auto questions = TakeQuestions(*worker);
    asked += questions.size();
    for (const v1::ReadLogChunk& question : questions) {
      Answer(*worker, question, std::string(256 << 10, 'x'), false);
    }
  }
  EXPECT_LE(asked, 3);
  network_.HealAll();
}

}  // namespace
}  // namespace cohort::head

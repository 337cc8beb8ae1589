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
#include "common/testing/temp_dir.h"
#include "head/services/node_log.h"
#include "head/services/node_service.h"
#include "head/testing/head_core_fixture.h"
#include "rpc/methods.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

template <typename Request, typename Response>
struct Reader {
  std::unique_ptr<rpc::Channel> channel;
  std::unique_ptr<rpc::TypedStream<Request>> stream;
  std::vector<Response> chunks;
  std::optional<absl::Status> closed;
};
using LogReader = Reader<v1::ReadLogRequest, v1::ReadLogResponse>;
using FileReader = Reader<v1::ReadRunFileRequest, v1::ReadRunFileResponse>;

// A worker's call for one log.
struct NodeCall {
  v1::SendLog order;
  std::unique_ptr<rpc::TypedStream<v1::LogMessage>> stream;
  std::vector<int64_t> asked;  // the offsets, after the first
  std::optional<absl::Status> closed;
};

class HeadLogTest : public HeadCoreTest {
 protected:
  std::unique_ptr<LogReader> Read(
      const v1::ReadLogRequest& request,
      absl::Duration span = absl::Milliseconds(300)) {
    return OpenReader(rpc::kReadLog, request, span);
  }
  std::unique_ptr<FileReader> ReadFile(const std::string& job,
                                       const std::string& path) {
    v1::ReadRunFileRequest request;
    request.set_job_id(job);
    request.set_node_id(std::string(node_.bytes()));
    request.set_path(path);
    return OpenReader(rpc::kReadRunFile, request, absl::Milliseconds(300));
  }
  template <typename Request, typename Response>
  std::unique_ptr<Reader<Request, Response>> OpenReader(
      const rpc::StreamMethod<Request, Response>& method,
      const Request& request, absl::Duration span) {
    auto reader = std::make_unique<Reader<Request, Response>>();
    reader->channel = network_.Connect(reader_name_, kHead, credential_);
    Reader<Request, Response>* raw = reader.get();
    reader->stream = rpc::OpenStream<Request, Response>(
        *reader->channel, method, {.deadline = absl::Hours(1)}, time_,
        {.on_message =
             [raw](const Response& chunk) { raw->chunks.push_back(chunk); },
         .on_closed = [raw](absl::Status status,
                            auto) { raw->closed = std::move(status); },
         .on_drained = nullptr});
    COHORT_EXPECT_OK(reader->stream->Write(request));
    reader->stream->HalfClose();
    Run(span);
    return reader;
  }
  v1::ReadLogRequest Request(const std::string& job, bool follow) {
    v1::ReadLogRequest request;
    request.set_job_id(job);
    request.set_stream(v1::LOG_STREAM_STDOUT);
    request.set_follow(follow);
    return request;
  }
  // The calls that the worker makes for the logs that it was asked for since.
  std::vector<std::unique_ptr<NodeCall>> TakeLogs(FakeWorker& worker) {
    std::vector<std::unique_ptr<NodeCall>> calls;
    for (const v1::HeadMessage& message : worker.messages) {
      if (message.has_send_log()) calls.push_back(OpenCall(worker, message));
    }
    worker.messages.clear();
    Run();
    return calls;
  }
  std::unique_ptr<NodeCall> OpenCall(FakeWorker& worker,
                                     const v1::HeadMessage& message) {
    auto call = std::make_unique<NodeCall>();
    NodeCall* raw = call.get();
    raw->order = message.send_log();
    raw->stream = rpc::OpenStream<v1::LogMessage, v1::NextLogPiece>(
        *worker.channel, rpc::kSendLog, {.deadline = absl::InfiniteDuration()},
        time_,
        {.on_message =
             [raw](const v1::NextLogPiece& next) {
               raw->asked.push_back(next.offset());
             },
         .on_closed = [raw](absl::Status status,
                            auto) { raw->closed = std::move(status); },
         .on_drained = nullptr});
    v1::LogMessage first;
    *first.mutable_read()->mutable_stamp() = message.stamp();
    first.mutable_read()->set_node_id(std::string(node_.bytes()));
    first.mutable_read()->set_read_id(message.send_log().read_id());
    COHORT_EXPECT_OK(raw->stream->Write(first));
    return call;
  }
  // Brings a piece from where the head asked for it.
  void Bring(NodeCall& call, const std::string& data, bool end,
             int64_t offset = -1) {
    v1::LogMessage message;
    v1::LogPiece* piece = message.mutable_piece();
    const int64_t asked =
        call.asked.empty() ? call.order.offset() : call.asked.back();
    piece->set_offset(offset < 0 ? asked : offset);
    piece->set_data(data);
    piece->set_end(end);
    piece->set_known(true);
    COHORT_EXPECT_OK(call.stream->Write(message));
    Run();
  }

  std::string reader_name_ = "reader";
};

TEST_F(HeadLogTest, ReadsToThePresentEnd) {
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  RunJob(*worker);
  worker->messages.clear();
  auto reader = Read(Request(*job, /*follow=*/false));
  const auto calls = TakeLogs(*worker);
  ASSERT_THAT(calls, SizeIs(1));
  NodeCall& call = *calls[0];
  EXPECT_EQ(call.order.offset(), 0);
  EXPECT_FALSE(call.order.wait());
  Bring(call, "hello ", false);
  EXPECT_THAT(call.asked, ElementsAre(6));
  // Rotated away meanwhile: the gap is told (LG-2).
  Bring(call, "world", false, /*offset=*/10);
  EXPECT_THAT(call.asked, ElementsAre(6, 15));
  Bring(call, "", false);
  ASSERT_TRUE(call.closed.has_value());
  COHORT_EXPECT_OK(*call.closed);
  ASSERT_TRUE(reader->closed.has_value());
  COHORT_EXPECT_OK(*reader->closed);
  ASSERT_THAT(reader->chunks, SizeIs(2));
  EXPECT_EQ(reader->chunks[0].data(), "hello ");
  EXPECT_EQ(reader->chunks[1].skipped(), 4);
  EXPECT_EQ(reader->chunks[1].offset(), 10);
}

TEST_F(HeadLogTest, ReadsFromTheEndAndPassesTimesOn) {
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  RunJob(*worker);
  worker->messages.clear();
  v1::ReadLogRequest request = Request(*job, /*follow=*/true);
  request.set_offset(-5);
  auto reader = Read(request);
  const auto calls = TakeLogs(*worker);
  ASSERT_THAT(calls, SizeIs(1));
  EXPECT_EQ(calls[0]->order.offset(), -5);
  v1::LogMessage message;
  message.mutable_piece()->set_offset(20);
  message.mutable_piece()->set_data("world");
  message.mutable_piece()->set_known(true);
  message.mutable_piece()->add_times()->set_at_us(7);
  COHORT_EXPECT_OK(calls[0]->stream->Write(message));
  Run();
  ASSERT_THAT(reader->chunks, SizeIs(1));
  EXPECT_EQ(reader->chunks[0].offset(), 20);
  EXPECT_EQ(reader->chunks[0].skipped(), 0);
  ASSERT_EQ(reader->chunks[0].times_size(), 1);
  EXPECT_EQ(reader->chunks[0].times(0).at_us(), 7);
  EXPECT_THAT(calls[0]->asked, ElementsAre(25));
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
  v1::DesiredPlace desired = RunJob(*worker);
  // Asked for once it was placed.
  auto calls = TakeLogs(*worker);
  ASSERT_THAT(calls, SizeIs(1));
  EXPECT_TRUE(calls[0]->order.wait());
  Bring(*calls[0], "one", true);
  EXPECT_FALSE(reader->closed.has_value());
  Say(*worker, Exited(desired, 1));
  v1::DesiredPlace second;
  for (const v1::DesiredPlace& each : worker->Desired()) {
    if (GoalFor(each) == v1::GOAL_PREPARE) second = each;
  }
  EXPECT_EQ(second.number(), 2);
  calls = TakeLogs(*worker);
  ASSERT_THAT(calls, SizeIs(1));
  EXPECT_EQ(calls[0]->order.attempt_id(), second.attempt_id());
  EXPECT_EQ(calls[0]->order.offset(), 0);
  Say(*worker, At(second, Stage::kPrepared));
  Say(*worker, At(second, Stage::kRunning));
  Say(*worker, Exited(second, 0));
  Bring(*calls[0], "two", true);
  ASSERT_TRUE(reader->closed.has_value());
  COHORT_EXPECT_OK(*reader->closed);
  ASSERT_THAT(reader->chunks, SizeIs(2));
  EXPECT_EQ(reader->chunks[1].attempt(), 2);
}

TEST_F(HeadLogTest, FollowsASlotAcrossItsProcesses) {
  v1::SubmitJobRequest submission = Submission("r");
  submission.mutable_spec()->mutable_run()->set_restart(v1::RESTART_POLICY_ONE);
  submission.mutable_spec()->mutable_run()->set_retry_delay_us(0);
  const auto submitted = Call(rpc::kSubmitJob, submission);
  COHORT_ASSERT_OK(submitted);
  auto worker = Open(Registration(node_));
  const v1::DesiredPlace first = RunJob(*worker);
  worker->messages.clear();
  auto reader = Read(Request(submitted->job_id(), /*follow=*/true));
  auto calls = TakeLogs(*worker);
  ASSERT_THAT(calls, SizeIs(1));
  const uint64_t incarnation = first.processes(0).incarnation();
  EXPECT_EQ(calls[0]->order.incarnation(), incarnation);
  Bring(*calls[0], "one", true);
  Say(*worker, Exited(first, 1));
  const v1::DesiredPlace second = worker->Desired().back();
  EXPECT_EQ(second.attempt_id(), first.attempt_id());
  calls = TakeLogs(*worker);
  ASSERT_THAT(calls, SizeIs(1));
  EXPECT_EQ(calls[0]->order.attempt_id(), first.attempt_id());
  EXPECT_GT(calls[0]->order.incarnation(), incarnation);
  EXPECT_EQ(calls[0]->order.offset(), 3);  // the node has them in one row
  Say(*worker, At(second, Stage::kRunning));
  Say(*worker, Exited(second, 0));
  Bring(*calls[0], "two", true);
  ASSERT_TRUE(reader->closed.has_value());
  COHORT_EXPECT_OK(*reader->closed);
  ASSERT_THAT(reader->chunks, SizeIs(2));
  EXPECT_EQ(reader->chunks[1].data(), "two");
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
  EXPECT_THAT(std::string(glance->closed->message()),
              HasSubstr("node node is away"));
  // A follower gives a restarted daemon the time to come back.
  EXPECT_FALSE(reader->closed.has_value());
  Run(absl::Seconds(6));
  ASSERT_TRUE(reader->closed.has_value());
  EXPECT_THAT(*reader->closed, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(GetReason(*reader->closed), "node_away");
}

TEST_F(HeadLogTest, GivesTheEndOfALogWhoseNodeIsGone) {
  const TempDir temp;
  LastLogs kept(temp.path(), {}, time_, time_);
  last_logs_ = &kept;
  Crash();
  Start();
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  const v1::DesiredPlace desired = RunJob(*worker);
  Say(*worker, Exited(desired, 0));
  worker->stream.reset();
  v1::LastLog log;
  log.set_node_name("w7");
  for (const auto& [offset, data] :
       {std::pair(100, "one"), std::pair(103, "two")}) {
    v1::LogPiece* const piece = log.add_pieces();
    piece->set_offset(offset);
    piece->set_data(data);
  }
  kept.Keep({.attempt = IdOf<AttemptId>(desired.attempt_id()),
             .slot = 0,
             .incarnation = desired.processes(0).incarnation(),
             .stream = v1::LOG_STREAM_STDOUT},
            log, [](absl::Status status) { COHORT_EXPECT_OK(status); });
  Run();
  for (const bool follow : {false, true}) {
    auto reader = Read(Request(*job, follow));
    ASSERT_THAT(reader->chunks, SizeIs(2));
    EXPECT_EQ(reader->chunks[0].data(), "one");
    EXPECT_EQ(reader->chunks[0].skipped(), 100);
    EXPECT_EQ(reader->chunks[0].gone_node(), "w7");
    EXPECT_EQ(reader->chunks[1].data(), "two");
    EXPECT_EQ(reader->chunks[1].skipped(), 0);
    ASSERT_TRUE(reader->closed.has_value());
    COHORT_EXPECT_OK(*reader->closed);
  }
  v1::ReadLogRequest tail = Request(*job, false);
  tail.set_offset(-2);
  auto reader = Read(tail);
  ASSERT_THAT(reader->chunks, SizeIs(1));
  EXPECT_EQ(reader->chunks[0].data(), "wo");
  // Of what was not kept it says that the node is away.
  v1::ReadLogRequest other = Request(*job, false);
  other.set_stream(v1::LOG_STREAM_STDERR);
  EXPECT_EQ(GetReason(*Read(other)->closed), "node_away");
  Crash();
}

TEST_F(HeadLogTest, PassesOnTheFilesOfAJob) {
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  RunJob(*worker);
  worker->messages.clear();
  auto reader = ReadFile(*job, "a/model.pt");
  auto calls = TakeLogs(*worker);
  ASSERT_THAT(calls, SizeIs(1));
  EXPECT_EQ(calls[0]->order.file(), "a/model.pt");
  Bring(*calls[0], "weights", false);
  EXPECT_THAT(calls[0]->asked, ElementsAre(7));
  EXPECT_FALSE(reader->closed.has_value());
  Bring(*calls[0], "", true);
  ASSERT_TRUE(reader->closed.has_value());
  COHORT_EXPECT_OK(*reader->closed);
  ASSERT_THAT(reader->chunks, SizeIs(1));
  EXPECT_EQ(reader->chunks[0].data(), "weights");

  auto list = ReadFile(*job, "");
  calls = TakeLogs(*worker);
  ASSERT_THAT(calls, SizeIs(1));
  EXPECT_TRUE(calls[0]->order.list());
  v1::LogMessage why;
  why.mutable_piece()->set_data("there are too many");
  COHORT_EXPECT_OK(calls[0]->stream->Write(why));
  Run();
  ASSERT_TRUE(list->closed.has_value());
  EXPECT_THAT(*list->closed, StatusIs(absl::StatusCode::kNotFound,
                                      HasSubstr("there are too many")));
}

TEST_F(HeadLogTest, RefusesFilesThatAreNoneOfAJob) {
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  worker->messages.clear();
  for (const char* path : {"../secret", "/etc/passwd", "a//b", "a/.."}) {
    auto reader = ReadFile(*job, path);
    ASSERT_TRUE(reader->closed.has_value()) << path;
    EXPECT_THAT(*reader->closed, StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_THAT(TakeLogs(*worker), IsEmpty());
  worker->stream.reset();
  Run();
  auto away = ReadFile(*job, "a");
  ASSERT_TRUE(away->closed.has_value());
  EXPECT_EQ(GetReason(*away->closed), "node_away");
}

TEST_F(HeadLogTest, AnswersWithTheStacksThatANodeSends) {
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  RunJob(*worker);
  worker->messages.clear();
  v1::GetStackRequest request;
  request.set_job_id(*job);
  const auto channel = network_.Connect("client", kHead, credential_);
  std::optional<absl::StatusOr<v1::GetStackResponse>> answer;
  const auto ask = [&] {
    answer.reset();
    rpc::Call<v1::GetStackRequest, v1::GetStackResponse>(
        *channel, rpc::kGetStack, request, {.deadline = absl::Minutes(1)},
        time_, [&](absl::StatusOr<v1::GetStackResponse> response) {
          answer = std::move(response);
        });
    Run();
  };
  ask();
  auto calls = TakeLogs(*worker);
  ASSERT_THAT(calls, SizeIs(1));
  EXPECT_GT(calls[0]->order.stack_of_pid(), 0);
  EXPECT_TRUE(calls[0]->order.wait());
  Bring(*calls[0], "", false);  // the tool runs
  Bring(*calls[0], "#0 main\n", false);
  EXPECT_THAT(calls[0]->asked, ElementsAre(0, 8));
  EXPECT_FALSE(answer.has_value());
  Bring(*calls[0], "#1 _start\n", true);
  ASSERT_TRUE(answer.has_value());
  COHORT_ASSERT_OK(*answer);
  EXPECT_EQ((*answer)->text(), "#0 main\n#1 _start\n");
  EXPECT_EQ((*answer)->rank().pid(), calls[0]->order.stack_of_pid());

  ask();
  calls = TakeLogs(*worker);
  ASSERT_THAT(calls, SizeIs(1));
  v1::LogMessage why;
  why.mutable_piece()->set_data("install elfutils");
  why.mutable_piece()->set_end(true);
  COHORT_EXPECT_OK(calls[0]->stream->Write(why));
  Run();
  ASSERT_TRUE(answer.has_value());
  EXPECT_THAT(answer->status(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         HasSubstr("install elfutils")));

  request.set_rank(7);
  EXPECT_THAT(Call(rpc::kGetStack, request),
              StatusIs(absl::StatusCode::kNotFound));
  const auto waiting = Submit("waits");
  request.set_rank(0);
  request.set_job_id(*waiting);
  EXPECT_EQ(GetReason(Call(rpc::kGetStack, request).status()), "no_process");
}

TEST_F(HeadLogTest, AnswersWithTheCallsThatANodeSends) {
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  RunJob(*worker);
  worker->messages.clear();
  v1::GetServedCallsRequest request;
  request.set_job_id(*job);
  const auto channel = network_.Connect("client", kHead, credential_);
  std::optional<absl::StatusOr<v1::GetServedCallsResponse>> answer;
  const auto send = [&](const std::string& bytes) {
    rpc::Call<v1::GetServedCallsRequest, v1::GetServedCallsResponse>(
        *channel, rpc::kGetServedCalls, request, {.deadline = absl::Minutes(1)},
        time_, [&](absl::StatusOr<v1::GetServedCallsResponse> response) {
          answer = std::move(response);
        });
    Run();
    const auto calls = TakeLogs(*worker);
    ASSERT_THAT(calls, SizeIs(1));
    EXPECT_TRUE(calls[0]->order.calls());
    EXPECT_GT(calls[0]->order.incarnation(), 0u);
    Bring(*calls[0], bytes, true);
    ASSERT_TRUE(answer.has_value());
  };
  v1::ServedCalls served;
  served.add_methods("Add");
  served.add_calls()->set_ran_us(5);
  send(served.SerializeAsString());
  COHORT_ASSERT_OK(*answer);
  EXPECT_EQ((*answer)->calls().calls(0).ran_us(), 5);
  EXPECT_GT((*answer)->rank().pid(), 0);
  send("\xff");
  EXPECT_THAT(*answer, StatusIs(absl::StatusCode::kInternal));
}

// NS-4
TEST_F(HeadLogTest, KeepsNodesAndShowsLogsAndEventsWhileTheDiskIsFull) {
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  const v1::DesiredPlace desired = RunJob(*worker);
  worker->messages.clear();
  const uint64_t events = core_->state()->cluster().next_event() - 1;
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
  const auto calls = TakeLogs(*worker);
  ASSERT_THAT(calls, SizeIs(1));
  Bring(*calls[0], "hello", true);
  ASSERT_THAT(reader->chunks, SizeIs(1));
  EXPECT_EQ(reader->chunks[0].data(), "hello");
  const auto listed = Call(rpc::kListEvents, v1::ListEventsRequest());
  COHORT_ASSERT_OK(listed);
  EXPECT_EQ(listed->events_size(), static_cast<int>(events));

  // The daemon starts again: it is taken in as what its row says.
  worker->stream.reset();
  Run();
  auto again = Open(Registration(node_));
  EXPECT_FALSE(again->closed.has_value()) << *again->closed;
  EXPECT_EQ(again->incarnation, worker->incarnation);
  EXPECT_THAT(again->Desired(), IsEmpty());
  auto second = Read(Request(*job, /*follow=*/false));
  EXPECT_THAT(TakeLogs(*again), SizeIs(1));
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
  *registration.mutable_register_()->mutable_observed()->add_places() =
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

// LG-1
TEST_F(HeadLogTest, TakesOnePieceForAReaderThatDoesNotRead) {
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  RunJob(*worker);
  worker->messages.clear();
  auto reader = Read(Request(*job, /*follow=*/true));
  const auto calls = TakeLogs(*worker);
  ASSERT_THAT(calls, SizeIs(1));
  NodeCall& call = *calls[0];
  network_.Partition("reader", kHead);
  // What its connection takes by itself; the piece that fills it is the last.
  const std::string piece(NodeLog::kSmallPieceBytes, 'x');
  const size_t window = rpc::LoopbackOptions().window_bytes;
  size_t brought = 0;
  do {
    ++brought;
    ASSERT_LE(brought, window / piece.size());
    Bring(call, piece, false);
  } while (call.asked.size() == brought);
  Run(absl::Seconds(5));
  EXPECT_EQ(call.asked.size(), brought - 1);
  EXPECT_FALSE(reader->closed.has_value());
  network_.HealAll();
  Run(absl::Seconds(1));
  EXPECT_EQ(call.asked.size(), brought);
  EXPECT_THAT(reader->chunks, SizeIs(brought));
}

TEST_F(HeadLogTest, EndsTheNodesCallWithItsReader) {
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  RunJob(*worker);
  worker->messages.clear();
  auto reader = Read(Request(*job, /*follow=*/true));
  const v1::HeadMessage order = worker->messages.back();
  const auto calls = TakeLogs(*worker);
  ASSERT_THAT(calls, SizeIs(1));
  reader->stream.reset();
  Run();
  ASSERT_TRUE(calls[0]->closed.has_value());
  COHORT_EXPECT_OK(*calls[0]->closed);
  // One that comes too late, or of another life of the head, meets nobody.
  auto late = OpenCall(*worker, order);
  v1::HeadMessage older = order;
  older.mutable_stamp()->set_term(order.stamp().term() - 1);
  auto stale = OpenCall(*worker, older);
  Run();
  ASSERT_TRUE(late->closed.has_value());
  EXPECT_THAT(*late->closed, StatusIs(absl::StatusCode::kNotFound));
  ASSERT_TRUE(stale->closed.has_value());
  EXPECT_THAT(*stale->closed, StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(HeadLogTest, TellsReadersOfANodeWhoseCallEnds) {
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  RunJob(*worker);
  worker->messages.clear();
  auto glance = Read(Request(*job, /*follow=*/false));
  auto follower = Read(Request(*job, /*follow=*/true));
  auto calls = TakeLogs(*worker);
  ASSERT_THAT(calls, SizeIs(2));
  for (const auto& call : calls) call->stream.reset();
  Run();
  ASSERT_TRUE(glance->closed.has_value());
  EXPECT_EQ(GetReason(*glance->closed), "node_away");
  // The node is there: it is asked again.
  EXPECT_FALSE(follower->closed.has_value());
  EXPECT_THAT(TakeLogs(*worker), SizeIs(1));
  EXPECT_FALSE(worker->closed.has_value());
}

TEST_F(HeadLogTest, GivesUpANodeThatOpensNoCall) {
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  RunJob(*worker);
  auto reader = Read(Request(*job, /*follow=*/false));
  for (int i = 0; i < 11; ++i) {
    v1::WorkerMessage beat;
    beat.set_incarnation(worker->incarnation);
    beat.mutable_heartbeat();
    COHORT_ASSERT_OK(worker->stream->Write(beat));
    Run(absl::Seconds(1));
  }
  EXPECT_FALSE(worker->closed.has_value());
  ASSERT_TRUE(reader->closed.has_value());
  EXPECT_THAT(*reader->closed, StatusIs(absl::StatusCode::kUnavailable,
                                        HasSubstr("did not begin to send")));
}

// NL-1
TEST_F(HeadLogTest, EndsACallThatBringsWhatWasNotAskedFor) {
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  RunJob(*worker);
  worker->messages.clear();
  std::vector<std::unique_ptr<LogReader>> readers;
  for (int i = 0; i < 3; ++i) {
    readers.push_back(Read(Request(*job, /*follow=*/false)));
  }
  const auto calls = TakeLogs(*worker);
  ASSERT_THAT(calls, SizeIs(3));
  Bring(*calls[0], std::string(NodeLog::kPieceBytesMax + 1, 'x'), false);
  v1::LogMessage piece;
  piece.mutable_piece()->set_known(true);
  piece.mutable_piece()->set_data(std::string(NodeLog::kPieceBytesMax, 'x'));
  network_.Partition("reader", kHead);  // takes two at most
  for (int i = 0; i < 3; ++i) {
    COHORT_ASSERT_OK(calls[1]->stream->Write(piece));
  }
  COHORT_ASSERT_OK(calls[2]->stream->Write(v1::LogMessage()));
  Run();
  network_.HealAll();
  Run();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(calls[i]->closed.has_value()) << i;
    EXPECT_THAT(*calls[i]->closed, StatusIs(absl::StatusCode::kInvalidArgument))
        << i;
    ASSERT_TRUE(readers[i]->closed.has_value()) << i;
    EXPECT_THAT(*readers[i]->closed,
                StatusIs(absl::StatusCode::kInvalidArgument))
        << i;
  }
  EXPECT_FALSE(worker->closed.has_value());
}

TEST_F(HeadLogTest, RefusesMoreReadersThanItServes) {
  Crash();
  options_.log_readers_max = 2;
  Start();
  const auto job = Submit("r");
  const auto first = Read(Request(*job, /*follow=*/true));
  auto second = Read(Request(*job, /*follow=*/true));
  auto refused = Read(Request(*job, /*follow=*/true));
  ASSERT_TRUE(refused->closed.has_value());
  EXPECT_THAT(*refused->closed, StatusIs(absl::StatusCode::kResourceExhausted,
                                         HasSubstr("2 logs are read")));
  second->stream.reset();
  Run();
  EXPECT_FALSE(Read(Request(*job, /*follow=*/true))->closed.has_value());
}

TEST_F(HeadLogTest, RefusesMoreReadersOfANodeThanItSendsLogs) {
  Crash();
  options_.node_logs_max = 2;
  Start();
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  RunJob(*worker);
  const auto first = Read(Request(*job, /*follow=*/true));
  auto second = Read(Request(*job, /*follow=*/true));
  auto refused = Read(Request(*job, /*follow=*/true));
  ASSERT_TRUE(refused->closed.has_value());
  EXPECT_THAT(*refused->closed, StatusIs(absl::StatusCode::kResourceExhausted,
                                         HasSubstr("sends 2 logs")));
  second->stream.reset();
  Run();
  EXPECT_FALSE(Read(Request(*job, /*follow=*/true))->closed.has_value());
}

TEST_F(HeadLogTest, AReaderThatDoesNotReadMakesRoomAndGoesOnLater) {
  Crash();
  options_.node_logs_max = 1;
  Start();
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  RunJob(*worker);
  worker->messages.clear();
  auto idle = Read(Request(*job, /*follow=*/false));
  auto calls = TakeLogs(*worker);
  ASSERT_THAT(calls, SizeIs(1));
  network_.Partition("reader", kHead);
  const std::string piece(NodeLog::kSmallPieceBytes, 'x');
  Bring(*calls[0], piece, false);
  Bring(*calls[0], piece, false);
  // Another reader, by another connection.
  reader_name_ = "other";
  auto other = Read(Request(*job, /*follow=*/false));
  ASSERT_TRUE(calls[0]->closed.has_value());
  COHORT_EXPECT_OK(*calls[0]->closed);
  auto others = TakeLogs(*worker);
  ASSERT_THAT(others, SizeIs(1));
  Bring(*others[0], "y", true);
  ASSERT_TRUE(other->closed.has_value());
  COHORT_EXPECT_OK(*other->closed);

  network_.HealAll();
  Run();
  calls = TakeLogs(*worker);
  ASSERT_THAT(calls, SizeIs(1));
  EXPECT_EQ(calls[0]->order.offset(), 2 * NodeLog::kSmallPieceBytes);
  Bring(*calls[0], "z", true);
  ASSERT_TRUE(idle->closed.has_value());
  COHORT_EXPECT_OK(*idle->closed);
  EXPECT_THAT(idle->chunks, SizeIs(3));
}

}  // namespace
}  // namespace cohort::head

#include "worker/log_service.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "cohort/v1/cluster.pb.h"
#include "common/file.h"
#include "common/random.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "rpc/methods.h"
#include "rpc/testing/loopback.h"
#include "worker/log_reader.h"

namespace cohort::worker {
namespace {

using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

// The head's end of one call.
struct HeadEnd {
  std::unique_ptr<rpc::StreamWriter<v1::NextLogPiece>> call;
  std::vector<v1::LogMessage> messages;
  bool closed = false;

  const v1::LogPiece& Piece(size_t i) const { return messages[i + 1].piece(); }
  size_t pieces() const { return messages.size() - 1; }
  void Next(int64_t offset) {
    v1::NextLogPiece next;
    next.set_offset(offset);
    COHORT_EXPECT_OK(call->Write(next));
  }
};

class LogServiceTest : public testing::Test {
 protected:
  class Reader : public rpc::StreamReader<v1::LogMessage> {
   public:
    explicit Reader(std::shared_ptr<HeadEnd> end) : end_(std::move(end)) {}
    void OnMessage(const v1::LogMessage& message) override {
      end_->messages.push_back(message);
    }
    void OnClosed(absl::Status) override { end_->closed = true; }

   private:
    const std::shared_ptr<HeadEnd> end_;
  };

  LogServiceTest()
      : directories_(temp_.path(), temp_.path()),
        logs_(directories_.Logs(kJob, 1, kAttempt)) {
    EXPECT_THAT(MakeDirectories(logs_, 0700), IsOk());
    router_.HandleStream(
        rpc::kSendLog, executor_,
        [this](const std::shared_ptr<rpc::CallContext>&,
               std::unique_ptr<rpc::StreamWriter<v1::NextLogPiece>> call)
            -> absl::StatusOr<
                std::unique_ptr<rpc::StreamReader<v1::LogMessage>>> {
          calls_.push_back(std::make_shared<HeadEnd>());
          calls_.back()->call = std::move(call);
          return std::make_unique<Reader>(calls_.back());
        });
    network_.Listen("head", &router_);
  }
  ~LogServiceTest() override {
    service_.Stop();
    executor_.AdvanceBy(absl::Seconds(1));
  }

  v1::SendLog Order(bool wait) {
    v1::SendLog order;
    order.set_read_id(5);
    order.set_job_id(kJob);
    order.set_attempt_number(1);
    order.set_attempt_id(kAttempt);
    order.set_slot(0);
    order.set_incarnation(4);
    order.set_stream(v1::LOG_STREAM_STDOUT);
    order.set_wait(wait);
    order.set_max_bytes(8);
    return order;
  }
  // The call that it makes.
  std::shared_ptr<HeadEnd> Send(const v1::SendLog& order) {
    v1::Stamp head;
    head.set_term(3);
    service_.Send(head, order);
    Run();
    EXPECT_THAT(calls_, Not(IsEmpty()));
    return calls_.empty() ? std::make_shared<HeadEnd>() : calls_.back();
  }
  void Run(absl::Duration span = absl::Milliseconds(20)) {
    executor_.AdvanceBy(span);
  }
  // As if no file had been made there for a while.
  void Settle() {
    const struct timespec past[2] = {{.tv_sec = 1, .tv_nsec = 0},
                                     {.tv_sec = 1, .tv_nsec = 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, logs_.c_str(), past, 0), 0);
  }
  void Print(const std::string& text) {
    std::ofstream(logs_ + "/0.4.stdout.00000000000000000000", std::ios::app)
        << text << std::flush;
  }

  const std::string kJob = std::string(16, 'j');
  const std::string kAttempt = std::string(16, 'a');
  TempDir temp_;
  NodeDirectories directories_;
  const std::string logs_;
  ManualExecutor executor_;
  SeededRandom random_{1};
  const NodeId node_ = NodeId::New(random_);
  const rpc::Credential credential_ =
      *rpc::Credential::FromBytes(std::string(32, 'c'));
  rpc::LoopbackNetwork network_{{}, executor_, executor_, random_};
  rpc::Router router_{{}, rpc::Authenticator(credential_), executor_};
  std::vector<std::shared_ptr<HeadEnd>> calls_;
  const std::unique_ptr<rpc::Channel> channel_ =
      network_.Connect("worker", "head", credential_);
  WorkDirectories work_{directories_, "n1", "1"};
  LogService service_{directories_, work_,     node_,    *channel_,
                      executor_,    executor_, executor_};
};

TEST_F(LogServiceTest, OpensACallThatNamesTheReadAndBringsTheFirstPiece) {
  Print("hello, world\n");
  v1::SendLog order = Order(false);
  order.set_offset(7);
  const auto call = Send(order);
  ASSERT_THAT(call->messages, SizeIs(2));
  const v1::LogRead& read = call->messages[0].read();
  EXPECT_EQ(read.stamp().term(), 3u);
  EXPECT_EQ(read.node_id(), node_.bytes());
  EXPECT_EQ(read.read_id(), 5u);
  EXPECT_EQ(call->Piece(0).data(), "world\n");
  EXPECT_EQ(call->Piece(0).offset(), 7);
}

TEST_F(LogServiceTest, CountsFromTheEndAndSendsTimes) {
  Print("hello, world\n");
  const int64_t time[] = {0, 5'000'000};
  std::ofstream(logs_ + "/0.4.stdout.00000000000000000000.times")
      << "cohort times 1\n"
      << '\0' << std::string(reinterpret_cast<const char*>(time), sizeof(time));
  v1::SendLog order = Order(false);
  order.set_offset(-6);
  const auto call = Send(order);
  ASSERT_EQ(call->pieces(), 1u);
  EXPECT_EQ(call->Piece(0).data(), "world\n");
  EXPECT_EQ(call->Piece(0).offset(), 7);
  ASSERT_THAT(call->Piece(0).times(), SizeIs(1));
  EXPECT_EQ(call->Piece(0).times(0).offset(), 7);
  EXPECT_EQ(call->Piece(0).times(0).at_us(), 5'000'000);
}

TEST_F(LogServiceTest, SendsWhatEarlierProcessesOfTheSlotWroteFirst) {
  const auto print = [&](const std::string& name, const std::string& text) {
    std::ofstream(logs_ + "/" + name + ".stdout.00000000000000000000") << text;
  };
  print("0.1", "cut");
  print("0.2", "");
  print("0.3", "again\n");
  print("10.2", "another slot\n");
  print("0.5", "a later one\n");
  Print("last\n");
  const auto call = Send(Order(false));
  std::string all = call->Piece(0).data();
  while (call->pieces() < 9 &&
         !call->Piece(call->pieces() - 1).data().empty()) {
    call->Next(static_cast<int64_t>(all.size()));
    Run();
    const v1::LogPiece& piece = call->Piece(call->pieces() - 1);
    EXPECT_EQ(piece.offset(), all.size());
    all += piece.data();
  }
  EXPECT_EQ(all, "cut\nagain\nlast\n");
  v1::SendLog tail = Order(false);
  tail.set_offset(-7);
  const auto end = Send(tail);
  EXPECT_EQ(end->Piece(0).data(), "n\n");
  EXPECT_EQ(end->Piece(0).offset(), 8);
}

// LO-1
TEST_F(LogServiceTest, SendsBoundedPiecesAndNoneUnasked) {
  Print("hello, world\n");
  const auto call = Send(Order(true));
  Run(absl::Minutes(1));
  ASSERT_EQ(call->pieces(), 1u);
  EXPECT_EQ(call->Piece(0).data(), "hello, w");
  call->Next(8);
  Run(absl::Minutes(1));
  ASSERT_EQ(call->pieces(), 2u);
  EXPECT_EQ(call->Piece(1).data(), "orld\n");
  EXPECT_EQ(call->Piece(1).offset(), 8);
  EXPECT_FALSE(call->Piece(1).end());
}

TEST_F(LogServiceTest, EndsACallWhoseHeadAsksTwice) {
  const auto call = Send(Order(true));
  call->Next(0);
  Run();
  EXPECT_TRUE(call->closed);
  EXPECT_EQ(call->pieces(), 0u);
}

TEST_F(LogServiceTest, AFollowerIsAnsweredWhenThereIsMore) {
  const auto call = Send(Order(true));
  Run(absl::Milliseconds(200));
  EXPECT_EQ(call->pieces(), 0u);
  Print("now");
  Run(absl::Milliseconds(100));
  ASSERT_EQ(call->pieces(), 1u);
  EXPECT_EQ(call->Piece(0).data(), "now");
}

TEST_F(LogServiceTest, AFollowerThatHasWaitedForLongIsAnsweredToo) {
  Settle();
  const auto call = Send(Order(true));
  Run(absl::Seconds(11));
  ASSERT_EQ(call->pieces(), 1u);
  call->Next(0);
  Run(absl::Seconds(5));
  Print("begun");
  Run(absl::Milliseconds(101));
  ASSERT_EQ(call->pieces(), 2u);
  EXPECT_EQ(call->Piece(1).data(), "begun");
  Settle();
  call->Next(5);
  Run(absl::Seconds(5));
  Print("more");
  Run(absl::Milliseconds(101));
  ASSERT_EQ(call->pieces(), 3u);
  EXPECT_EQ(call->Piece(2).data(), "more");
  Settle();
  call->Next(9);
  Run(absl::Seconds(5));
  ASSERT_EQ(call->pieces(), 3u);
  ASSERT_THAT(SealLogs(logs_, 0, 4), IsOk());
  Run(absl::Milliseconds(101));
  ASSERT_EQ(call->pieces(), 4u);
  EXPECT_TRUE(call->Piece(3).end());
}

TEST_F(LogServiceTest, AFollowerHearsNothingAfterTheBound) {
  const auto call = Send(Order(true));
  Run(absl::Seconds(11));
  ASSERT_EQ(call->pieces(), 1u);
  EXPECT_TRUE(call->Piece(0).data().empty());
}

TEST_F(LogServiceTest, SaysWhenTheLogIsComplete) {
  Print("bye");
  ASSERT_THAT(SealLogs(logs_, 0, 4), IsOk());
  const auto call = Send(Order(true));
  ASSERT_EQ(call->pieces(), 1u);
  EXPECT_EQ(call->Piece(0).data(), "bye");
  EXPECT_TRUE(call->Piece(0).end());
}

TEST_F(LogServiceTest, SaysWhenItKnowsNoSuchLog) {
  v1::SendLog order = Order(false);
  order.set_attempt_number(9);
  const auto call = Send(order);
  ASSERT_EQ(call->pieces(), 1u);
  EXPECT_FALSE(call->Piece(0).known());
}

// LO-2
TEST_F(LogServiceTest, TakesAnotherOrderOnceACallHasEnded) {
  for (size_t i = 0; i < LogService::kCallsMax; ++i) {
    service_.Send({}, Order(false));
  }
  Send(Order(false));
  ASSERT_THAT(calls_, SizeIs(LogService::kCallsMax));
  calls_.front()->call->Close(absl::OkStatus());
  Run();
  Send(Order(false));
  EXPECT_THAT(calls_, SizeIs(LogService::kCallsMax + 1));
}

}  // namespace
}  // namespace cohort::worker

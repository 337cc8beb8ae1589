#include "worker/log_service.h"

#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "cohort/v1/cluster.pb.h"
#include "common/file.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "worker/log_reader.h"

namespace cohort::worker {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

class LogServiceTest : public testing::Test {
 protected:
  LogServiceTest()
      : directories_(temp_.path(), temp_.path()),
        logs_(directories_.Logs(kJob, 1, kAttempt)) {
    EXPECT_THAT(MakeDirectories(logs_, 0700), IsOk());
  }

  v1::ReadLogChunk Question(int64_t offset, bool wait) {
    v1::ReadLogChunk question;
    question.set_read_id(1);
    question.set_job_id(kJob);
    question.set_attempt_number(1);
    question.set_attempt_id(kAttempt);
    question.set_rank(0);
    question.set_stream(v1::LOG_STREAM_STDOUT);
    question.set_offset(offset);
    question.set_wait(wait);
    question.set_max_bytes(8);
    return question;
  }
  void Print(const std::string& text) {
    std::ofstream(logs_ + "/0.stdout.00000000000000000000", std::ios::app)
        << text << std::flush;
  }

  const std::string kJob = std::string(16, 'j');
  const std::string kAttempt = std::string(16, 'a');
  TempDir temp_;
  NodeDirectories directories_;
  const std::string logs_;
  ManualExecutor executor_;
  std::vector<v1::LogChunk> answers_;
  LogService service_{
      directories_, executor_, executor_,
      [this](v1::LogChunk chunk) { answers_.push_back(std::move(chunk)); }};
};

TEST_F(LogServiceTest, GivesBoundedPiecesByAbsoluteOffset) {
  Print("hello, world\n");
  service_.Read(Question(0, false));
  service_.Read(Question(8, false));
  executor_.RunUntilIdle();
  ASSERT_THAT(answers_, SizeIs(2));
  EXPECT_EQ(answers_[0].data(), "hello, w");
  EXPECT_EQ(answers_[1].data(), "orld\n");
  EXPECT_EQ(answers_[1].offset(), 8);
  EXPECT_FALSE(answers_[1].end());
}

TEST_F(LogServiceTest, AFollowerIsAnsweredWhenThereIsMore) {
  service_.Read(Question(0, true));
  executor_.AdvanceBy(absl::Milliseconds(200));
  EXPECT_THAT(answers_, IsEmpty());
  Print("now");
  executor_.AdvanceBy(absl::Milliseconds(100));
  ASSERT_THAT(answers_, SizeIs(1));
  EXPECT_EQ(answers_[0].data(), "now");
}

TEST_F(LogServiceTest, AFollowerHearsNothingAfterTheBound) {
  service_.Read(Question(0, true));
  executor_.AdvanceBy(absl::Seconds(11));
  ASSERT_THAT(answers_, SizeIs(1));
  EXPECT_TRUE(answers_[0].data().empty());
}

TEST_F(LogServiceTest, SaysWhenTheLogIsComplete) {
  Print("bye");
  ASSERT_THAT(SealLogs(logs_, 0), IsOk());
  service_.Read(Question(0, true));
  executor_.RunUntilIdle();
  ASSERT_THAT(answers_, SizeIs(1));
  EXPECT_EQ(answers_[0].data(), "bye");
  EXPECT_TRUE(answers_[0].end());
}

TEST_F(LogServiceTest, SaysWhenItKnowsNoSuchLog) {
  v1::ReadLogChunk question = Question(0, false);
  question.set_attempt_number(9);
  service_.Read(question);
  executor_.RunUntilIdle();
  ASSERT_THAT(answers_, SizeIs(1));
  EXPECT_FALSE(answers_[0].known());
}

}  // namespace
}  // namespace cohort::worker

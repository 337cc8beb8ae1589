#include "client/cli/job_wait.h"

#include <unistd.h>

#include <memory>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "client/testing/fake_head.h"
#include "client/testing/messages.h"
#include "common/testing/seed.h"
#include "common/testing/status_matchers.h"
#include "common/unique_fd.h"

namespace cohort::cli {
namespace {

TEST(ExitCode, IsThatOfTheRankThatFailedFirst) {
  const auto code = [](const char* job) {
    return ExitCodeOf(client::Parsed<Job>(job));
  };
  EXPECT_EQ(code("state: JOB_STATE_SUCCEEDED exit {}"), 0);
  EXPECT_EQ(code("state: JOB_STATE_FAILED exit { code: 7 }"), 7);
  EXPECT_EQ(code("state: JOB_STATE_FAILED exit { signal: 9 }"), 137);
  EXPECT_EQ(code("state: JOB_STATE_STOPPED exit { signal: 15 }"), 130);
  EXPECT_EQ(code("state: JOB_STATE_FAILED"), 125);
  EXPECT_EQ(code("state: JOB_STATE_FAILED exit {}"), 125);
}

TEST(JobLine, SaysTheAttemptOnce) {
  const auto line = [](int attempt, const char* reason) {
    Job job;
    job.set_state(v1::JOB_STATE_FAILED);
    job.set_attempt(attempt);
    job.set_reason(reason);
    return JobLine(job);
  };
  EXPECT_THAT(line(2, "attempt 2: rank 0 exited with code 4"),
              ::testing::EndsWith(" FAILED attempt 2: rank 0 exited with code "
                                  "4"));
  EXPECT_THAT(line(1, "attempt 1: rank 0 exited with code 4"),
              ::testing::EndsWith(" FAILED: attempt 1: rank 0 exited with code "
                                  "4"));
  EXPECT_THAT(line(3, "attempt 2: rank 0"),
              ::testing::EndsWith(" attempt 3: attempt 2: rank 0"));
}

class WaitForJobTest : public ::testing::Test {
 protected:
  WaitForJobTest() : head_(TestSeed()) {
    head_.Start();
    cluster_ = Cluster::ConnectThrough(head_.Connect());
    JobSpec spec;
    spec.command = {"true"};
    id_ = cluster_->Submit(spec).value();
    int fds[2];
    EXPECT_EQ(pipe(fds), 0);
    out_.Reset(fds[0]);
    in_.Reset(fds[1]);
  }

  std::string Shown() {
    in_.Reset();
    std::string text(4096, '\0');
    const ssize_t n = read(out_.get(), text.data(), text.size());
    text.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
    return text;
  }

  client::FakeHead head_;
  std::unique_ptr<Cluster> cluster_;
  JobId id_;
  UniqueFd out_;
  UniqueFd in_;
};

TEST_F(WaitForJobTest, WithoutAnyTimeItLooksOnce) {
  Progress progress(Progress::Kind::kNone, in_.get());
  const auto waits = WaitForJob(*cluster_, id_, absl::ZeroDuration(), progress);
  EXPECT_THAT(waits, StatusIs(absl::StatusCode::kDeadlineExceeded,
                              ::testing::EndsWith("is PENDING; it goes on")));
  head_.EndJob(std::string(id_.bytes()), v1::JOB_STATE_SUCCEEDED, nullptr);
  const auto ended = WaitForJob(*cluster_, id_, absl::ZeroDuration(), progress);
  COHORT_ASSERT_OK(ended);
  EXPECT_EQ(ended->state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(WaitForJobTest, ShowsEachStateOnALineWhereNobodyLooks) {
  {
    Progress progress(Progress::KindFor(in_.get()), in_.get());
    std::thread ending([this] {
      head_.AwaitWaiter();
      head_.EndJob(std::string(id_.bytes()), v1::JOB_STATE_SUCCEEDED, nullptr);
    });
    const auto job =
        WaitForJob(*cluster_, id_, absl::InfiniteDuration(), progress);
    ending.join();
    COHORT_ASSERT_OK(job);
    EXPECT_EQ(ExitCodeOf(*job), 0);
  }
  EXPECT_EQ(Shown(), "job " + id_.ToText() + " PENDING\njob " + id_.ToText() +
                         " SUCCEEDED\n");
}

TEST_F(WaitForJobTest, TakesItsLiveLineAway) {
  {
    Progress progress(Progress::Kind::kLive, in_.get());
    progress.Show(cluster_->Get(id_).value());
  }
  EXPECT_THAT(Shown(), ::testing::EndsWith("\r\033[K"));
}

TEST_F(WaitForJobTest, GivesUpAtItsDeadlineAndLeavesTheJob) {
  Progress progress(Progress::Kind::kNone, -1);
  EXPECT_THAT(WaitForJob(*cluster_, id_, absl::Milliseconds(1), progress),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       ::testing::EndsWith("after 1ms; it goes on")));
}

TEST_F(WaitForJobTest, NamesAnUnknownJob) {
  Progress progress(Progress::Kind::kNone, -1);
  EXPECT_THAT(WaitForJob(*cluster_, JobId(), absl::Seconds(1), progress),
              StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace cohort::cli

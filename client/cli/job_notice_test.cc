#include "client/cli/job_notice.h"

#include "gtest/gtest.h"

namespace cohort::cli {
namespace {

Job FailedOnce() {
  Job job;
  job.set_state(v1::JOB_STATE_PENDING);
  job.set_attempt(1);
  job.set_failures(1);
  job.add_causes("rank 1 on w1 was killed by signal 9");
  job.set_reason("attempt 2 starts in 1s; attempt 1: rank 1 failed");
  job.mutable_spec()->mutable_run()->set_max_failures(2);
  return job;
}

TEST(JobNotice, SaysOnceWhatFailedAndWhatFollows) {
  JobNotice notice;
  Job job = FailedOnce();
  EXPECT_EQ(notice.Next(job),
            "attempt 1 failed: rank 1 on w1 was killed by signal 9; attempt 2 "
            "of 3 in 1s");
  EXPECT_EQ(notice.Next(job), "");
  job.set_state(v1::JOB_STATE_RUNNING);
  job.clear_reason();
  job.set_attempt(2);
  EXPECT_EQ(notice.Next(job), "");
}

TEST(JobNotice, SaysItAlsoOnceTheNextAttemptHasBegun) {
  JobNotice notice;
  Job job = FailedOnce();
  job.set_state(v1::JOB_STATE_RUNNING);
  job.set_attempt(2);
  job.clear_reason();
  job.mutable_spec()->mutable_run()->set_max_failures(-1);
  EXPECT_EQ(notice.Next(job),
            "attempt 1 failed: rank 1 on w1 was killed by signal 9; attempt 2");
}

TEST(JobNotice, SaysWhatARunningGangMayHangAtAndItsWarningsOnceEach) {
  JobNotice notice;
  Job job;
  job.set_state(v1::JOB_STATE_RUNNING);
  job.set_attempt(1);
  EXPECT_EQ(notice.Next(job), "");
  job.set_reason("rank 1 exited with 0 12s ago");
  job.add_warnings("1 file was not kept");
  EXPECT_EQ(notice.Next(job), "1 file was not kept");
  EXPECT_EQ(notice.Next(job), "rank 1 exited with 0 12s ago");
  job.set_reason("rank 1 exited with 0 13s ago");
  EXPECT_EQ(notice.Next(job), "");
}

TEST(JobNotice, SpeaksOfARankThatStartsAgainAlone) {
  JobNotice notice;
  Job job = FailedOnce();
  job.set_state(v1::JOB_STATE_RUNNING);
  job.mutable_spec()->mutable_run()->set_restart(v1::RESTART_POLICY_ONE);
  EXPECT_EQ(notice.Next(job),
            "rank 1 on w1 was killed by signal 9; it starts again");
  job.set_failures(2);
  job.set_failed_rank(1);
  job.set_reason("rank 0 starts again in 2s; rank 1 starts again in 1s");
  EXPECT_EQ(notice.Next(job),
            "rank 1 on w1 was killed by signal 9; it starts again in 1s");
}

TEST(JobNotice, LeavesOutWhatIsKnownOrNotRetried) {
  JobNotice notice;
  notice.Know(FailedOnce());
  EXPECT_EQ(notice.Next(FailedOnce()), "");
  Job ended = FailedOnce();
  ended.set_failures(3);
  ended.set_state(v1::JOB_STATE_FAILED);
  EXPECT_EQ(notice.Next(ended), "");
}

}  // namespace
}  // namespace cohort::cli

#include "worker/log_sweep.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/file.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::worker {
namespace {

class LogSweepTest : public testing::Test {
 protected:
  LogSweepTest() {
    COHORT_EXPECT_OK(MakeDirectories(directories_.AllWork(), 0700));
  }

  v1::DesiredPlace Place(char job, int number) {
    v1::DesiredPlace place;
    place.set_job_id(std::string(16, job));
    place.set_number(number);
    place.set_attempt_id(absl::StrCat(std::string(15, job), number));
    return place;
  }
  // A log of 64 KiB that was written so long ago; its directory.
  std::string Write(char job, int number, absl::Duration age) {
    const v1::DesiredPlace place = Place(job, number);
    const std::string logs =
        directories_.Logs(place.job_id(), place.number(), place.attempt_id());
    COHORT_EXPECT_OK(MakeDirectories(logs, 0700));
    const std::string file = logs + "/0.1.stdout.0";
    COHORT_EXPECT_OK(
        WriteFileAtomically(file, std::string(64 << 10, 'x'), 0600));
    const timespec at = absl::ToTimespec(executor_.Wall() - age);
    const timespec times[2] = {at, at};
    EXPECT_EQ(utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
    return logs;
  }
  void Sweep() { executor_.AdvanceBy(LogSweep::kPeriod); }
  static bool Exists(const std::string& path) {
    return std::filesystem::exists(path);
  }

  TempDir temp_;
  ManualExecutor executor_;
  const NodeDirectories directories_{temp_.File("state"), temp_.File("run")};
  WorkDirectories work_{directories_, "n1", "1"};
  LogSweep sweep_{{.bytes = 150 << 10},
                  directories_,
                  work_,
                  executor_,
                  executor_,
                  executor_};
};

// LO-3
TEST_F(LogSweepTest, TheOldestOfEndedAttemptsGo) {
  const std::string oldest = Write('a', 1, absl::Hours(4));
  const std::string second = Write('a', 2, absl::Hours(3));
  const std::string third = Write('b', 1, absl::Hours(2));
  const std::string newest = Write('c', 1, absl::Hours(1));
  COHORT_ASSERT_OK(work_.Make(Place('a', 1), "", "g"));
  sweep_.Start();
  Sweep();
  EXPECT_TRUE(Exists(oldest));  // it is here
  EXPECT_FALSE(Exists(second));
  EXPECT_FALSE(Exists(ParentDirectory(third)));
  EXPECT_TRUE(Exists(newest));
  COHORT_ASSERT_OK(
      work_.Remove(*AttemptId::FromBytes(Place('a', 1).attempt_id())));
  const std::string next = Write('d', 1, absl::Seconds(1));
  Sweep();
  EXPECT_FALSE(Exists(oldest));
  EXPECT_TRUE(Exists(newest));
  EXPECT_TRUE(Exists(next));
}

TEST_F(LogSweepTest, OldOnesGoWhateverTheirSize) {
  const std::string old = Write('a', 1, absl::Hours(31 * 24));
  const std::string young = Write('b', 1, absl::Hours(29 * 24));
  sweep_.Start();
  Sweep();
  EXPECT_FALSE(Exists(old));
  EXPECT_TRUE(Exists(young));
}

}  // namespace
}  // namespace cohort::worker

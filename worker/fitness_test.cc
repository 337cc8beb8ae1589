#include "worker/fitness.h"

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class FitnessTest : public testing::Test {
 protected:
  void Start() {
    fitness_.Start([this] { ++looked_; });
    executor_.RunUntilIdle();
  }
  void Away() { std::filesystem::rename(directory_, directory_ + ".away"); }
  void Back() { std::filesystem::rename(directory_ + ".away", directory_); }

  TempDir temp_;
  const std::string directory_ = temp_.path();
  ManualExecutor executor_;
  int looked_ = 0;
  std::vector<std::string> told_;
  Fitness fitness_{
      {.rooms = {{directory_, 4096}}},
      executor_,
      executor_,
      [this](const std::string& unfit) { told_.push_back(unfit); }};
};

TEST_F(FitnessTest, ADirectoryWithRoomIsNoNewsAndStaysEmpty) {
  Start();
  EXPECT_EQ(looked_, 1);
  executor_.AdvanceBy(absl::Seconds(10));
  EXPECT_EQ(looked_, 1);
  EXPECT_THAT(told_, IsEmpty());
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST_F(FitnessTest, TellsOnceThatNothingCanBeWrittenAndThatItCanAgain) {
  Start();
  Away();
  executor_.AdvanceBy(absl::Seconds(5));
  EXPECT_THAT(told_, ElementsAre(HasSubstr(directory_)));
  Back();
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_THAT(told_, ElementsAre(HasSubstr(directory_), ""));
}

// It looks for twice as much once it is unfit.
TEST_F(FitnessTest, TellsOnceThatThereIsNoRoom) {
  Start();
  for (int looks = 0; looks < 3; ++looks) {
    // Can be opened, but has no room for anything; each look removes it.
    std::filesystem::create_symlink("/dev/full", directory_ + "/room");
    executor_.AdvanceBy(absl::Seconds(1));
  }
  EXPECT_THAT(told_, ElementsAre(HasSubstr("write in " + directory_)));
}

TEST_F(FitnessTest, IsToldBeforeTheFirstLookIsDone) {
  Away();
  std::vector<std::string> told_first;
  fitness_.Start([&] { told_first = told_; });
  executor_.RunUntilIdle();
  EXPECT_THAT(told_first, ElementsAre(HasSubstr(directory_)));
  Back();
}

// FT-1.
TEST_F(FitnessTest, AFaultCountsUntilALaterLookFindsNone) {
  Start();
  ManualExecutor disk;
  std::vector<std::string> told;
  Fitness slow({.rooms = {{directory_, 4096}}}, executor_, disk,
               [&told](const std::string& unfit) { told.push_back(unfit); });
  slow.Start(nullptr);
  disk.RunUntilIdle();  // it found room
  slow.NoteFault(absl::ResourceExhaustedError("no port"));
  EXPECT_THAT(told, ElementsAre("no port"));
  executor_.RunUntilIdle();
  EXPECT_THAT(told, ElementsAre("no port")) << "what it found was before";
  executor_.AdvanceBy(absl::Seconds(1));
  disk.RunUntilIdle();
  executor_.RunUntilIdle();
  EXPECT_THAT(told, ElementsAre("no port", ""));
}

TEST(CheckRoomTest, NamesTheDirectoryAndTheReason) {
  const TempDir temp;
  COHORT_EXPECT_OK(CheckRoom(temp.path(), 4096));
  const absl::Status missing = CheckRoom(temp.path() + "/none", 4096);
  EXPECT_THAT(missing, StatusIs(absl::StatusCode::kNotFound,
                                HasSubstr(temp.path() + "/none")));
  EXPECT_TRUE(std::filesystem::is_empty(temp.path()));
}

}  // namespace
}  // namespace cohort::worker

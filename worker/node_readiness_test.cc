#include "worker/fitness.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::worker {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

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
      nullptr,
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
  Fitness slow({.rooms = {{directory_, 4096}}}, executor_, disk, nullptr,
               [&told](const std::string& unfit) { told.push_back(unfit); });
  slow.Start(nullptr);
  disk.RunUntilIdle();  // it found room
  slow.NoteFault(absl::ResourceExhaustedError("no port"));
  EXPECT_THAT(told, ElementsAre(HasSubstr("no port")));
  executor_.RunUntilIdle();
  EXPECT_THAT(told, SizeIs(1)) << "what it found was before";
  executor_.AdvanceBy(absl::Seconds(1));
  disk.RunUntilIdle();
  executor_.RunUntilIdle();
  EXPECT_THAT(told, ElementsAre(HasSubstr("no port"), ""));
}

// FT-2.
TEST_F(FitnessTest, AFaultWithoutACauseCountsForLongerEachTime) {
  Start();
  for (const int seconds : {1, 2, 4, 8, 16, 32, 60, 60}) {
    told_.clear();
    const absl::Status why = absl::InternalError("no port");
    fitness_.NoteFault(why);
    fitness_.NoteFault(why);  // of another attempt, at the same time
    EXPECT_THAT(told_,
                ElementsAre(AllOf(
                    HasSubstr("no port"),
                    HasSubstr(absl::FormatDuration(absl::Seconds(seconds))))));
    executor_.AdvanceBy(absl::Seconds(seconds) - absl::Milliseconds(1));
    EXPECT_THAT(told_, SizeIs(1)) << seconds;
    executor_.AdvanceBy(absl::Milliseconds(1));
    EXPECT_THAT(told_, ElementsAre(HasSubstr("no port"), "")) << seconds;
  }
  fitness_.NoteBegun();
  fitness_.NoteFault(absl::InternalError("no port"));
  told_.clear();
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_THAT(told_, ElementsAre(""));
}

// FT-2: a look that finds it, and one that finds it gone.
TEST_F(FitnessTest, AFaultWhoseCauseIsFoundCountsUntilItIsGone) {
  Start();
  Away();
  fitness_.NoteFault(absl::InternalError("cannot write"));
  fitness_.NoteFault(absl::InternalError("cannot write"));
  executor_.AdvanceBy(absl::Minutes(10));
  EXPECT_THAT(told_.back(),
              AllOf(HasSubstr(directory_), HasSubstr("again each 1s")));
  Back();
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_EQ(told_.back(), "");
}

TEST_F(FitnessTest, AProgramThatCannotBeExecutedMakesItUnfit) {
  const std::string program = directory_ + "/keeper";
  Fitness fitness({.programs = {program}}, executor_, executor_, nullptr,
                  [this](const std::string& unfit) { told_.push_back(unfit); });
  fitness.Start(nullptr);
  executor_.RunUntilIdle();
  EXPECT_THAT(told_, ElementsAre(HasSubstr("execute " + program)));
  std::ofstream(program) << "no program\n";
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_THAT(told_.back(), HasSubstr("Permission denied"));
  chmod(program.c_str(), 0700);
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_EQ(told_.back(), "");
}

TEST_F(FitnessTest, ADirectoryThatIsMissingIsMadeAgain) {
  const std::string journal = directory_ + "/journal";
  Fitness fitness({.rooms = {{journal, 4096, /*make=*/true}}}, executor_,
                  executor_, nullptr,
                  [this](const std::string& unfit) { told_.push_back(unfit); });
  fitness.Start(nullptr);
  executor_.RunUntilIdle();
  EXPECT_TRUE(std::filesystem::is_directory(journal));
  EXPECT_THAT(told_, IsEmpty());
  // That it was missing was the cause: it is not waited for.
  fitness.NoteFault(absl::InternalError("cannot write"));
  executor_.AdvanceBy(absl::Seconds(1));
  std::filesystem::remove(journal);
  fitness.NoteFault(absl::InternalError("cannot write"));
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_EQ(told_.back(), "");
  // Not its parents: those are for a person to look at.
  Away();
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_THAT(told_.back(), HasSubstr(journal));
  EXPECT_FALSE(std::filesystem::exists(directory_));
  Back();
}

TEST_F(FitnessTest, WhatIsRenewedIsNotWaitedFor) {
  absl::StatusOr<bool> renewed = false;
  Fitness fitness({.renew = [&] { return renewed; }}, executor_, executor_,
                  nullptr,
                  [this](const std::string& unfit) { told_.push_back(unfit); });
  fitness.Start(nullptr);
  executor_.RunUntilIdle();
  fitness.NoteFault(absl::InternalError("cannot write"));
  executor_.AdvanceBy(absl::Seconds(1));
  told_.clear();
  fitness.NoteFault(absl::InternalError("cannot write"));
  renewed = true;
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_EQ(told_.back(), "") << "and not after two periods";
  renewed = absl::UnavailableError("no socket");
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_THAT(told_.back(), HasSubstr("no socket"));
}

TEST_F(FitnessTest, AfterAFaultTheProgramsAreTried) {
  int tries = 0;
  absl::Status result = absl::InternalError("keeper ended with status 1");
  Fitness fitness(
      {.rooms = {{directory_, 4096}}}, executor_, executor_,
      [&](Fitness::Answer done) {
        ++tries;
        std::move(done)(result);
      },
      [this](const std::string& unfit) { told_.push_back(unfit); });
  fitness.Start(nullptr);
  executor_.AdvanceBy(absl::Seconds(5));
  EXPECT_EQ(tries, 0) << "it is dear";
  fitness.NoteFault(absl::InternalError("cannot start"));
  executor_.AdvanceBy(absl::Seconds(5));
  EXPECT_EQ(tries, 5);
  EXPECT_THAT(told_.back(), HasSubstr("status 1"));
  result = absl::OkStatus();
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_EQ(told_.back(), "");
  executor_.AdvanceBy(absl::Seconds(5));
  EXPECT_EQ(tries, 6);
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

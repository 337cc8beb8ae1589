#include "worker/node_readiness.h"

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

class NodeReadinessTest : public testing::Test {
 protected:
  void Start() {
    readiness_.Start([this] { ++looked_; });
    executor_.RunUntilIdle();
  }
  void Away() { std::filesystem::rename(directory_, directory_ + ".away"); }
  void Back() { std::filesystem::rename(directory_ + ".away", directory_); }

  TempDir temp_;
  const std::string directory_ = temp_.path();
  ManualExecutor executor_;
  int looked_ = 0;
  std::vector<std::string> told_;
  NodeReadiness readiness_{
      {.rooms = {{directory_, 4096}}},
      executor_,
      executor_,
      nullptr,
      [this](const std::string& not_ready) { told_.push_back(not_ready); }};
};

TEST_F(NodeReadinessTest, ADirectoryWithRoomIsNoNewsAndStaysEmpty) {
  Start();
  EXPECT_EQ(looked_, 1);
  executor_.AdvanceBy(absl::Seconds(10));
  EXPECT_EQ(looked_, 1);
  EXPECT_THAT(told_, IsEmpty());
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST_F(NodeReadinessTest, TellsOnceThatNothingCanBeWrittenAndThatItCanAgain) {
  Start();
  Away();
  executor_.AdvanceBy(absl::Seconds(5));
  EXPECT_THAT(told_, ElementsAre(HasSubstr(directory_)));
  Back();
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_THAT(told_, ElementsAre(HasSubstr(directory_), ""));
}

// It looks for twice as much once it is not ready.
TEST_F(NodeReadinessTest, TellsOnceThatThereIsNoRoom) {
  Start();
  for (int looks = 0; looks < 3; ++looks) {
    // Can be opened, but has no room for anything; each look removes it.
    std::filesystem::create_symlink("/dev/full", directory_ + "/room");
    executor_.AdvanceBy(absl::Seconds(1));
  }
  EXPECT_THAT(told_, ElementsAre(HasSubstr("write in " + directory_)));
}

TEST_F(NodeReadinessTest, IsToldBeforeTheFirstLookIsDone) {
  Away();
  std::vector<std::string> told_first;
  readiness_.Start([&] { told_first = told_; });
  executor_.RunUntilIdle();
  EXPECT_THAT(told_first, ElementsAre(HasSubstr(directory_)));
  Back();
}

// FT-1.
TEST_F(NodeReadinessTest, AFaultCountsUntilALaterLookFindsNone) {
  Start();
  ManualExecutor disk;
  std::vector<std::string> told;
  NodeReadiness slow(
      {.rooms = {{directory_, 4096}}}, executor_, disk, nullptr,
      [&told](const std::string& not_ready) { told.push_back(not_ready); });
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
TEST_F(NodeReadinessTest, AFaultWithoutACauseCountsForLongerEachTime) {
  Start();
  for (const int seconds : {1, 2, 4, 8, 16, 32, 60, 60}) {
    told_.clear();
    const absl::Status why = absl::InternalError("no port");
    readiness_.NoteFault(why);
    readiness_.NoteFault(why);  // of another attempt, at the same time
    EXPECT_THAT(told_,
                ElementsAre(AllOf(
                    HasSubstr("no port"),
                    HasSubstr(absl::FormatDuration(absl::Seconds(seconds))))));
    executor_.AdvanceBy(absl::Seconds(seconds) - absl::Milliseconds(1));
    EXPECT_THAT(told_, SizeIs(1)) << seconds;
    executor_.AdvanceBy(absl::Milliseconds(1));
    EXPECT_THAT(told_, ElementsAre(HasSubstr("no port"), "")) << seconds;
  }
  readiness_.NoteBegun();
  readiness_.NoteFault(absl::InternalError("no port"));
  told_.clear();
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_THAT(told_, ElementsAre(""));
}

// FT-2: a look that finds it, and one that finds it gone.
TEST_F(NodeReadinessTest, AFaultWhoseCauseIsFoundCountsUntilItIsGone) {
  Start();
  Away();
  readiness_.NoteFault(absl::InternalError("cannot write"));
  readiness_.NoteFault(absl::InternalError("cannot write"));
  executor_.AdvanceBy(absl::Minutes(10));
  EXPECT_THAT(told_.back(),
              AllOf(HasSubstr(directory_), HasSubstr("again each 1s")));
  Back();
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_EQ(told_.back(), "");
}

TEST_F(NodeReadinessTest, AProgramThatCannotBeExecutedMakesItNotReady) {
  const std::string program = directory_ + "/keeper";
  NodeReadiness readiness(
      {.programs = {program}}, executor_, executor_, nullptr,
      [this](const std::string& not_ready) { told_.push_back(not_ready); });
  readiness.Start(nullptr);
  executor_.RunUntilIdle();
  EXPECT_THAT(told_, ElementsAre(HasSubstr("execute " + program)));
  std::ofstream(program) << "no program\n";
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_THAT(told_.back(), HasSubstr("Permission denied"));
  chmod(program.c_str(), 0700);
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_EQ(told_.back(), "");
}

TEST_F(NodeReadinessTest, ADirectoryThatIsMissingIsMadeAgain) {
  const std::string journal = directory_ + "/journal";
  NodeReadiness readiness(
      {.rooms = {{journal, 4096, /*make=*/true}}}, executor_, executor_,
      nullptr,
      [this](const std::string& not_ready) { told_.push_back(not_ready); });
  readiness.Start(nullptr);
  executor_.RunUntilIdle();
  EXPECT_TRUE(std::filesystem::is_directory(journal));
  EXPECT_THAT(told_, IsEmpty());
  // That it was missing was the cause: it is not waited for.
  readiness.NoteFault(absl::InternalError("cannot write"));
  executor_.AdvanceBy(absl::Seconds(1));
  std::filesystem::remove(journal);
  readiness.NoteFault(absl::InternalError("cannot write"));
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_EQ(told_.back(), "");
  // Not its parents: those are for a person to look at.
  Away();
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_THAT(told_.back(), HasSubstr(journal));
  EXPECT_FALSE(std::filesystem::exists(directory_));
  Back();
}

TEST_F(NodeReadinessTest, WhatIsRenewedIsNotWaitedFor) {
  absl::StatusOr<bool> renewed = false;
  NodeReadiness readiness(
      {.renew = [&] { return renewed; }}, executor_, executor_, nullptr,
      [this](const std::string& not_ready) { told_.push_back(not_ready); });
  readiness.Start(nullptr);
  executor_.RunUntilIdle();
  readiness.NoteFault(absl::InternalError("cannot write"));
  executor_.AdvanceBy(absl::Seconds(1));
  told_.clear();
  readiness.NoteFault(absl::InternalError("cannot write"));
  renewed = true;
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_EQ(told_.back(), "") << "and not after two periods";
  renewed = absl::UnavailableError("no socket");
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_THAT(told_.back(), HasSubstr("no socket"));
}

TEST_F(NodeReadinessTest, AfterAFaultTheProgramsAreTried) {
  int tries = 0;
  absl::Status result = absl::InternalError("keeper ended with status 1");
  NodeReadiness readiness(
      {.rooms = {{directory_, 4096}}}, executor_, executor_,
      [&](NodeReadiness::Answer done) {
        ++tries;
        std::move(done)(result);
      },
      [this](const std::string& not_ready) { told_.push_back(not_ready); });
  readiness.Start(nullptr);
  executor_.AdvanceBy(absl::Seconds(5));
  EXPECT_EQ(tries, 0) << "it is dear";
  readiness.NoteFault(absl::InternalError("cannot start"));
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

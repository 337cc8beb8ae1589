#include "head/archive/inspect.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/file.h"
#include "common/status_util.h"
#include "common/testing/status_matchers.h"
#include "head/archive/testing/archive_fixture.h"
#include "head/store/records_codec.h"

namespace cohort::head {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class InspectTest : public ::testing::Test {
 protected:
  absl::Status Run(InspectOptions options) {
    rows_.clear();
    complaints_.clear();
    return Inspect(
        options,
        [this](absl::string_view text) {
          rows_.emplace_back(text);
          return absl::OkStatus();
        },
        [this](absl::string_view text) { complaints_.emplace_back(text); });
  }

  ArchiveFixture fixture_;
  std::vector<std::string> rows_;
  std::vector<std::string> complaints_;
};

TEST_F(InspectTest, PrintsEveryRowOrThoseOfATable) {
  fixture_.CloseStore();
  COHORT_ASSERT_OK(Run({.state_dir = fixture_.state_dir()}));
  EXPECT_THAT(rows_, SizeIs(9));
  COHORT_ASSERT_OK(
      Run({.state_dir = fixture_.state_dir(), .table = Table::kNodes}));
  EXPECT_THAT(rows_, ElementsAre("nodes 6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e\n"
                                 "  node_id: 6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e\n"
                                 "  name: node-1\n"
                                 "  state: ALIVE\n"
                                 "  origin:\n"
                                 "    namespace: default\n"));
  EXPECT_THAT(complaints_, IsEmpty());
}

// RS-3, with a log that has a torn end, as a killed head leaves it.
TEST_F(InspectTest, ChangesNothing) {
  fixture_.CloseStore();
  for (const auto& entry :
       fs::directory_iterator(fixture_.state_dir() + "/store")) {
    if (entry.path().extension() != ".log") continue;
    std::ofstream(entry.path(), std::ios::binary | std::ios::app) << "torn";
  }
  fs::remove(fixture_.state_dir() + "/store.mark");
  const auto before = ReadTree(fixture_.state_dir());
  COHORT_ASSERT_OK(Run({.state_dir = fixture_.state_dir()}));
  EXPECT_THAT(rows_, SizeIs(9));
  EXPECT_EQ(ReadTree(fixture_.state_dir()), before);
}

TEST_F(InspectTest, ALogThatEndsInZerosIsReadAndNotCut) {
  fixture_.CloseStore();
  for (const auto& entry :
       fs::directory_iterator(fixture_.state_dir() + "/store")) {
    if (entry.path().extension() != ".log") continue;
    std::ofstream(entry.path(), std::ios::binary | std::ios::app)
        << std::string(700, '\0');
  }
  const auto before = ReadTree(fixture_.state_dir());
  COHORT_EXPECT_OK(Run({.state_dir = fixture_.state_dir()}));
  EXPECT_THAT(rows_, SizeIs(9));
  EXPECT_EQ(ReadTree(fixture_.state_dir()), before);
}

TEST_F(InspectTest, ReadsATableInPieces) {
  Batch batch;
  for (uint64_t number = 100; number < 2'600; ++number) {
    EventRecord event;
    event.number = number;
    batch.push_back(ToWrite(event));
  }
  COHORT_ASSERT_OK(fixture_.store().Append(3, batch));
  fixture_.CloseStore();
  COHORT_ASSERT_OK(
      Run({.state_dir = fixture_.state_dir(), .table = Table::kEvents}));
  EXPECT_THAT(rows_, SizeIs(2'501));
  EXPECT_EQ(std::set<std::string>(rows_.begin(), rows_.end()).size(), 2'501u);
}

TEST_F(InspectTest, ABackupCanBeLookedAt) {
  COHORT_ASSERT_OK(fixture_.Backup(fixture_.path("backup")));
  const auto before = ReadTree(fixture_.path("backup"));
  COHORT_ASSERT_OK(Run({.state_dir = fixture_.path("backup"),
                        .table = Table::kJobs,
                        .form = RecordForm::kJson}));
  EXPECT_THAT(rows_, SizeIs(3));
  EXPECT_EQ(ReadTree(fixture_.path("backup")), before);
}

TEST_F(InspectTest, ARunningHeadIsNamed) {
  fixture_.CloseStore();
  const auto lock = FileLock::Acquire(fixture_.state_dir(), "cohort-head");
  COHORT_ASSERT_OK(lock);
  const absl::Status refused = Run({.state_dir = fixture_.state_dir()});
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("cohort-head")));
  EXPECT_EQ(GetReason(refused), "locked");
}

TEST_F(InspectTest, NoStoreIsNotFoundAndNoneIsMade) {
  EXPECT_THAT(Run({.state_dir = fixture_.path("nowhere")}),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr(fixture_.path("nowhere"))));
  EXPECT_FALSE(fs::exists(fixture_.path("nowhere")));
}

TEST_F(InspectTest, ADamagedRowIsToldAndTheOthersAreShown) {
  EventRecord event;
  event.number = 2;
  Write write = ToWrite(event);
  write.value->back() ^= 1;
  COHORT_ASSERT_OK(fixture_.store().Append(3, {write}));
  fixture_.CloseStore();
  EXPECT_THAT(Run({.state_dir = fixture_.state_dir()}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("1 row is")));
  EXPECT_THAT(rows_, SizeIs(9));
  EXPECT_THAT(complaints_,
              ElementsAre(AllOf(HasSubstr("events"), HasSubstr("is damaged"))));
}

TEST(ParseTableTest, NamesThoseThatThereAre) {
  EXPECT_THAT(ParseTable("jobs"), IsOkAndHolds(Table::kJobs));
  EXPECT_THAT(ParseTable("job"), StatusIs(absl::StatusCode::kInvalidArgument,
                                          HasSubstr("cluster, nodes, jobs")));
}

}  // namespace
}  // namespace cohort::head

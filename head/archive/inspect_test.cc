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
  EXPECT_THAT(rows_, SizeIs(12));
  COHORT_ASSERT_OK(
      Run({.state_dir = fixture_.state_dir(), .table = Table::kNodes}));
  EXPECT_THAT(rows_, ElementsAre("nodes 6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e\n"
                                 "  node_id: 6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e\n"
                                 "  state: ALIVE\n"
                                 "  node:\n"
                                 "    name: node-1\n"));
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
  EXPECT_THAT(rows_, SizeIs(12));
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
  EXPECT_THAT(rows_, SizeIs(12));
  EXPECT_EQ(ReadTree(fixture_.state_dir()), before);
}

TEST_F(InspectTest, ReadsATableInPieces) {
  Batch batch;
  for (uint64_t number = 100; number < 2'600; ++number) {
    EventRecord event;
    event.set_number(number);
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
  event.set_number(2);
  Write write = ToWrite(event);
  write.value->back() ^= 1;
  COHORT_ASSERT_OK(fixture_.store().Append(3, {write}));
  fixture_.CloseStore();
  EXPECT_THAT(Run({.state_dir = fixture_.state_dir()}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("1 row is")));
  EXPECT_THAT(rows_, SizeIs(12));
  EXPECT_THAT(complaints_,
              ElementsAre(AllOf(HasSubstr("events"), HasSubstr("is damaged"))));
}

class CheckTest : public InspectTest {
 protected:
  absl::StatusOr<CheckReport> RunCheck(const std::string& state_dir) {
    return Check(state_dir, [this](absl::string_view text) {
      complaints_.emplace_back(text);
    });
  }
};

TEST_F(CheckTest, CountsAWholeStoreAndABackupAndChangesNothing) {
  COHORT_ASSERT_OK(fixture_.Backup(fixture_.path("backup")));
  fixture_.CloseStore();
  for (const std::string& state_dir :
       {fixture_.state_dir(), fixture_.path("backup")}) {
    const auto before = ReadTree(state_dir);
    const auto report = RunCheck(state_dir);
    COHORT_ASSERT_OK(report);
    EXPECT_EQ(report->term, 3u);
    EXPECT_EQ(report->rows[static_cast<size_t>(Table::kJobs)], 3);
    EXPECT_EQ(report->last_change, 12u);
    EXPECT_TRUE(report->has_mark);
    EXPECT_EQ(
        ToText(*report),
        "whole: 12 rows (cluster 1, nodes 1, jobs 3, attempts 1, requests "
        "1, packages 1, events 1, arrays 0, wait_reasons 0, specs 3, "
        "processes 0, drivers 0, cluster_file 0, instances 0, capacity 0, "
        "tokens 0, metrics 0, audit 0), "
        "term 3, change 12\n");
    EXPECT_THAT(ToJson(*report), HasSubstr("\"has_mark\":true,\"rows\":{"
                                           "\"cluster\":1,\"nodes\":1"));
    EXPECT_EQ(ReadTree(state_dir), before);
  }
  fs::remove(fixture_.state_dir() + "/store.mark");
  const auto report = RunCheck(fixture_.state_dir());
  COHORT_ASSERT_OK(report);
  EXPECT_THAT(ToText(*report), HasSubstr("store.mark is missing"));
}

TEST_F(CheckTest, NamesEachDamagedRow) {
  EventRecord event;
  Batch batch;
  for (const uint64_t number : {2, 3}) {
    event.set_number(number);
    batch.push_back(ToWrite(event));
    batch.back().value->back() ^= 1;
  }
  COHORT_ASSERT_OK(fixture_.store().Append(3, batch));
  fixture_.CloseStore();
  EXPECT_THAT(RunCheck(fixture_.state_dir()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("2 rows are")));
  EXPECT_THAT(complaints_,
              ElementsAre(AllOf(HasSubstr("0000000000000002"),
                                HasSubstr("events"), HasSubstr("is damaged")),
                          HasSubstr("0000000000000003")));
}

// Also in a block that no row is read from: what was deleted there.
TEST_F(CheckTest, NamesADamagedTableFile) {
  EventRecord event;
  event.set_number(2);
  event.set_text(std::string(100'000, 'x'));
  COHORT_ASSERT_OK(fixture_.store().Append(3, {ToWrite(event)}));
  fixture_.CloseStore();
  (void)fixture_.store();  // writes what the log held to table files
  Write gone = ToWrite(event);
  gone.value.reset();
  COHORT_ASSERT_OK(fixture_.store().Append(3, {gone}));
  fixture_.CloseStore();
  fs::path table;
  for (const auto& entry :
       fs::directory_iterator(fixture_.state_dir() + "/store")) {
    if (entry.path().extension() != ".sst") continue;
    if (fs::file_size(entry.path()) > 100'000) table = entry.path();
  }
  ASSERT_NE(table, "");
  std::fstream file(table, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(50'000);
  file.put('y');
  file.close();
  EXPECT_THAT(RunCheck(fixture_.state_dir()),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr(table.filename().string())));
}

TEST_F(CheckTest, RowsWithoutAClusterRowAreDamage) {
  COHORT_ASSERT_OK(
      fixture_.store().Append(3, {{Table::kCluster, RowKey(), std::nullopt}}));
  fixture_.CloseStore();
  EXPECT_THAT(RunCheck(fixture_.state_dir()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("store")));
}

TEST_F(CheckTest, ARunningHeadIsNamed) {
  fixture_.CloseStore();
  const auto lock = FileLock::Acquire(fixture_.state_dir(), "cohort-head");
  COHORT_ASSERT_OK(lock);
  EXPECT_THAT(RunCheck(fixture_.state_dir()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("cohort-head")));
}

TEST(ParseTableTest, NamesThoseThatThereAre) {
  EXPECT_THAT(ParseTable("jobs"), IsOkAndHolds(Table::kJobs));
  EXPECT_THAT(ParseTable("job"), StatusIs(absl::StatusCode::kInvalidArgument,
                                          HasSubstr("cluster, nodes, jobs")));
}

}  // namespace
}  // namespace cohort::head

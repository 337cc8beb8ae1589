#include "trainer/train/history.h"

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::train {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

History ReadBack(const History& history) {
  std::vector<std::byte> bytes;
  COHORT_EXPECT_OK(trainer::WriteSafetensors(
      history.Tensors(), {}, [&](std::span<const std::byte> part) {
        bytes.insert(bytes.end(), part.begin(), part.end());
        return absl::OkStatus();
      }));
  const auto file = trainer::SafetensorsFile::Parse(std::move(bytes));
  COHORT_EXPECT_OK(file.status());
  History read;
  COHORT_EXPECT_OK(read.Load(*file));
  return read;
}

TEST(HistoryTest, KeepsWhatAStepReported) {
  History history;
  history.Add(1, 1, {{"loss", 2}});
  history.Add(2, 1, {{"loss", 1}});
  history.Add(2, 1, {{"accuracy", 90}});
  history.Add(3, 2, {{"loss", 0.5}});
  ASSERT_EQ(history.size(), 3u);
  EXPECT_THAT(history.Row(1).metrics,
              ElementsAre(Pair("accuracy", 90), Pair("loss", 1)));
  EXPECT_THAT(history.Row(2).metrics, ElementsAre(Pair("loss", 0.5)));
  EXPECT_EQ(history.MeanOfEpoch(1, "loss"), 1.5);
  EXPECT_EQ(history.MeanOfEpoch(1, "none"), 0);
}

TEST(HistoryTest, ComesBackFromACheckpoint) {
  History history;
  history.Add(1, 1, {{"loss", 0.1}});
  history.Add(2, 1, {{"loss", 1.0 / 3}, {"accuracy", 90}});
  const History read = ReadBack(history);
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read.Row(0).metrics, history.Row(0).metrics);
  EXPECT_EQ(read.Row(1).metrics, history.Row(1).metrics);
  EXPECT_EQ(ReadBack(History()).size(), 0u);
}

TEST(HistoryTest, SpreadsWhatItKeepsOverALongRun) {
  History history;
  const int64_t steps = 3 * static_cast<int64_t>(History::kRowsMax);
  for (int64_t step = 1; step <= steps; ++step) {
    history.Add(step, 1, {{"loss", static_cast<double>(step)}});
  }
  EXPECT_LE(history.size(), History::kRowsMax);
  EXPECT_GE(history.size(), History::kRowsMax / 2);
  EXPECT_EQ(history.Row(1).step - history.Row(0).step, 4);
  EXPECT_EQ(history.Row(history.size() - 1).step, steps);
  History read = ReadBack(history);
  const size_t rows = read.size();
  read.Add(steps + 1, 1, {{"loss", 0}});
  EXPECT_EQ(read.size(), rows) << "it goes on as it was kept";
}

TEST(HistoryTest, IsLinesOfJson) {
  const HistoryRow row{.step = 7, .epoch = 2, .metrics = {{"loss", 1.0 / 3}}};
  const std::string line = History::ToJsonLine(row);
  EXPECT_EQ(line, "{\"step\":7,\"epoch\":2,\"loss\":0.3333333333333333}\n");
}

TEST(HistoryTest, WritesAColumnAllDigits) {
  TempDir directory;
  History history;
  history.Add(1, 1, {{"loss", 0.1}});
  history.Add(2, 1, {{"accuracy", 90}});
  COHORT_ASSERT_OK(history.WriteColumn("loss", directory.File("log")));
  std::stringstream text;
  text << std::ifstream(directory.File("log")).rdbuf();
  EXPECT_EQ(text.str(), "1 0.10000000000000001\n");
}

}  // namespace
}  // namespace cohort::train

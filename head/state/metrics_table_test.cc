#include "head/state/metrics_table.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// What is kept of the reports of one job.
class MetricsTableTest : public ::testing::Test {
 protected:
  void Note(int64_t step, double loss) {
    table_.Note(job_,
                absl::StrCat("{\"step\":", step, ",\"loss\":", loss, "}"));
  }
  const v1::MetricsHistory& history() const {
    return table_.Find(job_)->history();
  }
  std::vector<int64_t> Steps() const {
    std::vector<int64_t> steps;
    for (const auto& point : history().points()) steps.push_back(point.step());
    return steps;
  }

  const JobId job_ = *JobId::FromText(std::string(32, 'a'));
  MetricsTable table_;
};

TEST_F(MetricsTableTest, KeepsTheNumbersOfReportsWithAStep) {
  table_.Note(job_, R"({"step":1,"loss":0.5,"note":"a","deep":{"x":1}})");
  table_.Note(job_, R"({"step":2,"top":90})");
  table_.Note(job_, R"({"rate":7})");
  table_.Note(job_, "[1]");
  table_.Note(job_, "{");
  EXPECT_THAT(Steps(), ElementsAre(1, 2));
  EXPECT_THAT(history().names(), ElementsAre("loss", "top"));
  EXPECT_THAT(history().points(1).names(), ElementsAre(1));
  EXPECT_THAT(history().points(1).values(), ElementsAre(90));
  EXPECT_THAT(table_.latest().at(job_), ElementsAre(Pair("rate", 7)));
}

TEST_F(MetricsTableTest, TwoReportsOfAStepAreOnePoint) {
  Note(4, 1);
  table_.Note(job_, R"({"step":4,"top":90})");
  Note(4, 2);
  EXPECT_THAT(Steps(), ElementsAre(4));
  EXPECT_THAT(history().points(0).values(), ElementsAre(2, 90));
}

// MT-2.
TEST_F(MetricsTableTest, StepsThatAreDoneAgainAreKeptAsTheyWereDoneLast) {
  for (int64_t step = 1; step <= 5; ++step) Note(step, 1);
  Note(3, 2);
  EXPECT_THAT(Steps(), ElementsAre(1, 2, 3));
  EXPECT_EQ(history().points(2).values(0), 2);
}

// MT-1.
TEST_F(MetricsTableTest, ALongRunIsThinnedOutEvenlyUpToItsLastStep) {
  constexpr int64_t kEvery = 10;
  constexpr int64_t kReports = 100'000;
  for (int64_t i = 1; i <= kReports; ++i) Note(i * kEvery, 1);
  const std::vector<int64_t> steps = Steps();
  EXPECT_LE(steps.size(), MetricsTable::kValuesMax / 2);
  EXPECT_GE(steps.size(), MetricsTable::kValuesMax / 4 - 1);
  EXPECT_EQ(steps.back(), kReports * kEvery);
  EXPECT_LE(steps.front(), history().gap());
  for (size_t i = 2; i + 1 < steps.size(); ++i) {
    EXPECT_LE(steps[i] - steps[i - 1], 2 * history().gap()) << i;
  }
}

// MT-1.
TEST_F(MetricsTableTest, NamesBeyondTheBoundAreLeftOut) {
  for (int i = 0; i < 100; ++i) {
    table_.Note(job_, absl::StrCat("{\"step\":", i, ",\"m", i, "\":1,\"",
                                   std::string(129, 'n'), "\":1}"));
  }
  EXPECT_EQ(history().names_size(), static_cast<int>(MetricsTable::kNamesMax));
  EXPECT_EQ(history().names(0), "m0");
}

TEST_F(MetricsTableTest, ARowIsDueOnceTheHistoryHasGrownByAnEighth) {
  int rows = 0;
  for (int64_t step = 1; step <= 400; ++step) {
    Note(step, 1);
    if (table_.TakeDue(job_) != nullptr) ++rows;
  }
  EXPECT_GT(rows, 20);
  EXPECT_LT(rows, 50);
  EXPECT_NE(table_.TakeLast(job_), nullptr);
  EXPECT_EQ(table_.TakeLast(job_), nullptr);
  EXPECT_THAT(table_.latest(), IsEmpty());
  EXPECT_EQ(Steps().size(), 400u);
}

TEST_F(MetricsTableTest, GoesOnFromARow) {
  Note(1, 1);
  Note(2, 1);
  MetricsTable next;
  next.Load(*table_.TakeDue(job_));
  next.Note(job_, R"({"step":3,"loss":1})");
  EXPECT_EQ(next.Find(job_)->history().points_size(), 3);
  EXPECT_TRUE(next.Remove(job_));
  EXPECT_EQ(next.Find(job_), nullptr);
  EXPECT_FALSE(next.Remove(job_));
}

}  // namespace
}  // namespace cohort::head

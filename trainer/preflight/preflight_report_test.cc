#include "trainer/preflight/preflight_report.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace cohort::trainer {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Verdict = Judgement::Verdict;

// Ranks two a node, each pair at 1 GB/s.
PreflightReport Gang(int world) {
  PreflightReport report;
  report.world = world;
  report.transport = "Gloo";
  for (int rank = 0; rank < world; ++rank) {
    report.ranks.push_back(
        {.node = rank / 2, .host = absl::StrCat("10.0.0.", rank / 2)});
  }
  for (int a = 0; a < world; ++a) {
    for (int b = a + 1; b < world; ++b) {
      report.pairs.push_back({.a = a, .b = b, .gigabytes_per_second = 1});
    }
  }
  return report;
}

PairResult& PairOf(PreflightReport& report, int a, int b) {
  for (PairResult& pair : report.pairs) {
    if (pair.a == a && pair.b == b) return pair;
  }
  ADD_FAILURE() << a << " " << b;
  return report.pairs.front();
}

nlohmann::json JsonOf(const PreflightReport& report) {
  return nlohmann::json::parse(ToJson(report, Judge(report)));
}

TEST(JudgeTest, AGangThatIsAsItShouldBePasses) {
  const Judgement judgement = Judge(Gang(6));
  EXPECT_EQ(judgement.verdict, Verdict::kPassed);
  EXPECT_THAT(judgement.failed_ranks, IsEmpty());
  EXPECT_EQ(judgement.summary,
            "6 ranks; the slowest pair: ranks 0 and 1 over Gloo: 1 GB/s where "
            "1 GB/s is usual");
}

TEST(JudgeTest, OneRankMeetsNobody) {
  PreflightReport report;
  report.ranks.push_back({.host = "10.0.0.1"});
  EXPECT_EQ(Judge(report).verdict, Verdict::kPassed);
  EXPECT_EQ(Judge(report).summary, "a gang of one rank meets nobody");
  EXPECT_TRUE(JsonOf(report)["slowest_pair"].is_null());
  EXPECT_THAT(JsonOf(report)["failed_ranks"], IsEmpty());
}

// Whatever else was measured.
TEST(JudgeTest, ARankThatCannotUseItsGpuFails) {
  PreflightReport report = Gang(6);
  report.ranks[2].no_gpu = "GPU 0 (GPU-aa): cuInit: no device";
  EXPECT_EQ(Judge(report).verdict, Verdict::kFailed);
  EXPECT_EQ(Judge(report).summary,
            "rank 2 on 10.0.0.1 cannot use its GPU: GPU 0 (GPU-aa): cuInit: no "
            "device");
  report.ranks[4].no_gpu = "no CUDA driver";
  report.ranks[5].no_gpu = "no CUDA driver";
  EXPECT_THAT(Judge(report).summary,
              AllOf(HasSubstr("rank 2"), HasSubstr("; and 2 more of 6 ranks")));
  EXPECT_EQ(JsonOf(report)["failed_ranks"], nlohmann::json({2, 4, 5}));
}

// A command may bring an NCCL of its own.
TEST(JudgeTest, GpusThatAreNotTriedTogetherAreNoPass) {
  PreflightReport report = Gang(6);
  report.no_gpus_because = "rank 0: no NCCL";
  EXPECT_EQ(Judge(report).verdict, Verdict::kSlow);
  EXPECT_THAT(Judge(report).summary,
              AllOf(HasSubstr("over Gloo"),
                    HasSubstr("the GPUs were not tried together: rank 0: no "
                              "NCCL")));
  PairOf(report, 1, 4).error = "no connection";
  EXPECT_EQ(Judge(report).verdict, Verdict::kFailed);
  EXPECT_THAT(Judge(report).summary,
              AllOf(HasSubstr("ranks 1 and 4"), HasSubstr("no NCCL")));
}

TEST(JudgeTest, BelowHalfOfItsLikeIsSlow) {
  PreflightReport report = Gang(6);
  PairOf(report, 1, 4).gigabytes_per_second = 0.51;
  EXPECT_EQ(Judge(report).verdict, Verdict::kPassed);
  EXPECT_THAT(Judge(report).summary,
              HasSubstr("6 ranks; the slowest pair: ranks 1 and 4"));
  PairOf(report, 1, 4).gigabytes_per_second = 0.49;
  const Judgement judgement = Judge(report);
  EXPECT_EQ(judgement.verdict, Verdict::kSlow);
  EXPECT_EQ(judgement.summary,
            "ranks 1 and 4 over Gloo (10.0.0.0, 10.0.0.2): 0.49 GB/s where 1 "
            "GB/s is usual");
  EXPECT_THAT(judgement.failed_ranks, IsEmpty());
}

TEST(JudgeTest, BelowATenthIsBroken) {
  PreflightReport report = Gang(6);
  PairOf(report, 1, 4).gigabytes_per_second = 0.3;
  PairOf(report, 0, 5).gigabytes_per_second = 0.09;
  const Judgement judgement = Judge(report);
  EXPECT_EQ(judgement.verdict, Verdict::kFailed);
  EXPECT_THAT(judgement.summary,
              AllOf(HasSubstr("ranks 0 and 5"), HasSubstr("0.09 GB/s")));
  EXPECT_THAT(judgement.failed_ranks, ElementsAre(0, 5));
}

// Ranks of one node are faster together than with others.
TEST(JudgeTest, PairsAreComparedWithTheirLike) {
  PreflightReport report = Gang(8);
  for (int rank = 0; rank < 8; rank += 2) {
    PairOf(report, rank, rank + 1).gigabytes_per_second = 100;
  }
  EXPECT_EQ(Judge(report).verdict, Verdict::kPassed);
  PairOf(report, 2, 3).gigabytes_per_second = 20;
  EXPECT_EQ(Judge(report).verdict, Verdict::kSlow);
}

TEST(JudgeTest, OfTwoPairsNoneIsUsual) {
  PreflightReport report = Gang(4);
  // Those on one node: there are two.
  PairOf(report, 0, 1).gigabytes_per_second = 0.001;
  EXPECT_EQ(Judge(report).verdict, Verdict::kPassed);
  // Nor do they hide one that is slow.
  PairOf(report, 1, 2).gigabytes_per_second = 0.3;
  EXPECT_EQ(Judge(report).verdict, Verdict::kSlow);
  EXPECT_THAT(Judge(report).summary, HasSubstr("ranks 1 and 2"));
}

TEST(JudgeTest, AFailedPairSaysWhyBeforeOneThatIsSlow) {
  PreflightReport report = Gang(6);
  PairOf(report, 0, 2).gigabytes_per_second = 0.01;
  PairOf(report, 1, 5).error = "no route to host";
  PairOf(report, 2, 5).error = "no connection";
  const Judgement judgement = Judge(report);
  EXPECT_EQ(judgement.verdict, Verdict::kFailed);
  EXPECT_EQ(judgement.summary,
            "ranks 1 and 5 over Gloo (10.0.0.0, 10.0.0.2): no route to host; "
            "and 1 more of 15 pairs");
  EXPECT_THAT(judgement.failed_ranks, ElementsAre(0, 1, 2, 5));
}

TEST(ReportJsonTest, NamesTheSlowestPair) {
  PreflightReport report = Gang(4);
  PairOf(report, 0, 3).gigabytes_per_second = 0.0123;
  EXPECT_EQ(JsonOf(report), nlohmann::json::parse(R"({
    "failed_ranks": [0, 3],
    "slowest_pair": {
      "ranks": [0, 3], "gigabytes_per_second": 0.0123, "usual": 1}})"));
}

// PF-5: with what takes most room.
TEST(ReportJsonTest, IsBounded) {
  PreflightReport report;
  report.world = 20'000;
  report.transport = "Gloo";
  for (int rank = 0; rank < report.world; ++rank) {
    report.ranks.push_back(
        {.host = std::string(300, '\x80'), .no_gpu = std::string(300, '\x80')});
  }
  report.no_gpus_because = std::string(5000, 'x');
  const Judgement judgement = Judge(report);
  EXPECT_LE(judgement.summary.size(), kSummaryBytesMax);
  EXPECT_THAT(judgement.failed_ranks, SizeIs(20'000));
  EXPECT_LE(ToJson(report, judgement).size(), kReportBytesMax);
  EXPECT_EQ(JsonOf(report)["failed_ranks"].size(), 500u);
}

}  // namespace
}  // namespace cohort::trainer

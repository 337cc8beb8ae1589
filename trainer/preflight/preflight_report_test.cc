#include "trainer/preflight/preflight_report.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace cohort::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using Verdict = Judgement::Verdict;

// Ranks two a node, each pair at 1 GB/s.
PreflightReport Gang(int world) {
  PreflightReport report;
  report.world = world;
  report.nodes = world / 2;
  report.transport = "Gloo";
  report.all_host = {.latency_us = 20, .gigabytes_per_second = 0.5};
  for (int rank = 0; rank < world; ++rank) {
    report.ranks.push_back({.node = rank / 2,
                            .host = "10.0.0.1",
                            .interface = "eth0",
                            .megabits_per_second = 10'000});
  }
  for (int a = 0; a < world; ++a) {
    for (int b = a + 1; b < world; ++b) {
      report.pairs.push_back(
          {.a = a,
           .b = b,
           .host = {.latency_us = 10, .gigabytes_per_second = 1}});
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

TEST(JudgeTest, AGangThatIsAsItShouldBePasses) {
  const Judgement judgement = Judge(Gang(6));
  EXPECT_EQ(judgement.verdict, Verdict::kPassed);
  EXPECT_THAT(judgement.findings, IsEmpty());
  EXPECT_EQ(judgement.summary,
            "6 ranks over Gloo: all together 0.5 GB/s, 20 us; 15 pairs, median "
            "1 GB/s, 10 us");
}

TEST(JudgeTest, OneRankMeetsNobody) {
  PreflightReport report;
  report.ranks.push_back({.host = "10.0.0.1"});
  EXPECT_EQ(Judge(report).verdict, Verdict::kPassed);
  const auto json = nlohmann::json::parse(ToJson(report, Judge(report)));
  EXPECT_EQ(json["world"], 1);
  EXPECT_TRUE(json["all"]["host"].is_null());
  EXPECT_THAT(json["each_pair"], IsEmpty());
  EXPECT_THAT(json["each_rank"], SizeIs(1));
}

TEST(JudgeTest, OneRankSaysWhichGpusItCanUse) {
  PreflightReport report;
  report.ranks.push_back({.host = "10.0.0.1"});
  report.opened = "GPU-aa (NVIDIA H200)";
  EXPECT_EQ(Judge(report).verdict, Verdict::kPassed);
  EXPECT_THAT(Judge(report).summary,
              HasSubstr("it can use GPU-aa (NVIDIA H200)"));
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
  const auto json = nlohmann::json::parse(ToJson(report, Judge(report)));
  EXPECT_EQ(json["each_rank"][4]["no_gpu_because"], "no CUDA driver");
  EXPECT_TRUE(json["each_rank"][3]["no_gpu_because"].is_null());
}

// A command may bring an NCCL of its own.
TEST(JudgeTest, GpusThatAreNotTriedTogetherAreNoPass) {
  PreflightReport report = Gang(6);
  report.no_gpus_because = "rank 0: no NCCL";
  EXPECT_EQ(Judge(report).verdict, Verdict::kSlow);
  EXPECT_THAT(Judge(report).summary,
              AllOf(HasSubstr("6 ranks over Gloo"),
                    HasSubstr("the GPUs were not tried together: rank 0: no "
                              "NCCL")));
  PairOf(report, 1, 4).failed = true;
  EXPECT_EQ(Judge(report).verdict, Verdict::kFailed);
  EXPECT_THAT(Judge(report).summary,
              AllOf(HasSubstr("ranks 1 and 4"), HasSubstr("no NCCL")));
}

TEST(JudgeTest, BelowHalfOfItsLikeIsSlow) {
  PreflightReport report = Gang(6);
  PairOf(report, 1, 4).host.gigabytes_per_second = 0.51;
  EXPECT_EQ(Judge(report).verdict, Verdict::kPassed);
  PairOf(report, 1, 4).host.gigabytes_per_second = 0.49;
  const Judgement judgement = Judge(report);
  EXPECT_EQ(judgement.verdict, Verdict::kSlow);
  EXPECT_EQ(judgement.summary,
            "ranks 1 and 4 over Gloo (eth0 10.0.0.1, eth0 10.0.0.1): 0.49 GB/s "
            "where 1 GB/s is usual");
}

TEST(JudgeTest, BelowATenthIsBroken) {
  PreflightReport report = Gang(6);
  PairOf(report, 1, 4).host.gigabytes_per_second = 0.3;
  PairOf(report, 0, 5).host.gigabytes_per_second = 0.09;
  const Judgement judgement = Judge(report);
  EXPECT_EQ(judgement.verdict, Verdict::kFailed);
  EXPECT_THAT(judgement.summary,
              AllOf(HasSubstr("ranks 0 and 5"), HasSubstr("0.09 GB/s"),
                    HasSubstr("; and 1 more of 15 pairs")));
}

// Ranks of one node are faster together than with others.
TEST(JudgeTest, PairsAreComparedWithTheirLike) {
  PreflightReport report = Gang(8);
  for (int rank = 0; rank < 8; rank += 2) {
    PairOf(report, rank, rank + 1).host.gigabytes_per_second = 100;
  }
  EXPECT_EQ(Judge(report).verdict, Verdict::kPassed);
  PairOf(report, 2, 3).host.gigabytes_per_second = 20;
  EXPECT_EQ(Judge(report).verdict, Verdict::kSlow);
}

TEST(JudgeTest, OfTwoPairsNoneIsUsual) {
  PreflightReport report = Gang(4);
  // Those on one node: there are two.
  PairOf(report, 0, 1).host.gigabytes_per_second = 0.001;
  EXPECT_EQ(Judge(report).verdict, Verdict::kPassed);
}

TEST(JudgeTest, GpusAreJudgedApart) {
  PreflightReport report = Gang(6);
  report.gpus_over = "NCCL 2.28.9";
  report.all_gpu = LinkFigures{.latency_us = 9, .gigabytes_per_second = 300};
  for (PairResult& pair : report.pairs) {
    pair.gpu = LinkFigures{.latency_us = 8, .gigabytes_per_second = 200};
  }
  EXPECT_THAT(Judge(report).summary,
              HasSubstr("over NCCL 2.28.9: all together 300 GB/s, 9 us"));
  PairOf(report, 0, 5).gpu->gigabytes_per_second = 40;
  const Judgement judgement = Judge(report);
  EXPECT_EQ(judgement.verdict, Verdict::kSlow);
  EXPECT_THAT(judgement.summary,
              AllOf(HasSubstr("over NCCL 2.28.9"), HasSubstr("40 GB/s")));
}

TEST(JudgeTest, AFailedPairSaysWhyBeforeOneThatIsSlow) {
  PreflightReport report = Gang(6);
  PairOf(report, 0, 2).host.gigabytes_per_second = 0.01;
  PairOf(report, 1, 5).failed = true;
  PairOf(report, 1, 5).error = "no route to host";
  PairOf(report, 0, 5).failed = true;
  const Judgement judgement = Judge(report);
  EXPECT_EQ(judgement.verdict, Verdict::kFailed);
  EXPECT_EQ(judgement.summary,
            "ranks 1 and 5 over Gloo (eth0 10.0.0.1, eth0 10.0.0.1): no route "
            "to host; and 2 more of 15 pairs");
}

TEST(ReportJsonTest, TellsWhatWasMeasured) {
  PreflightReport report = Gang(4);
  PairOf(report, 0, 3).host.gigabytes_per_second = 0.0123456;
  report.seconds = 0.4567;
  const auto json = nlohmann::json::parse(ToJson(report, Judge(report)));
  EXPECT_EQ(json["pairs"], 6);
  EXPECT_EQ(json["pairs_measured"], 6);
  EXPECT_EQ(json["seconds"], 0.457);
  EXPECT_EQ(json["transport"], "Gloo");
  EXPECT_EQ(json["host"]["gigabytes_per_second"]["min"], 0.0123);
  EXPECT_EQ(json["host"]["gigabytes_per_second"]["median"], 1);
  EXPECT_EQ(json["findings"][0]["ranks"], nlohmann::json({0, 3}));
  EXPECT_EQ(json["findings"][0]["is"], "failed");
  EXPECT_EQ(json["findings"][0]["measured"], 0.0123);
  EXPECT_EQ(json["findings"][0]["expected"], 1);
  EXPECT_EQ(json["each_pair"][0]["ranks"], nlohmann::json({0, 3}));
  EXPECT_EQ(json["each_rank"][3]["interface"], "eth0");
  EXPECT_EQ(json["each_rank"][3]["megabits_per_second"], 10'000);
  EXPECT_TRUE(json["gpus"].is_null());
}

// PF-5: with what takes most room.
TEST(ReportJsonTest, IsBounded) {
  PreflightReport report = Gang(200);
  for (RankFacts& rank : report.ranks) {
    rank.host = rank.no_gpu = std::string(300, '\x80');
  }
  for (PairResult& pair : report.pairs) {
    pair.failed = true;
    pair.error = std::string(1000, '"');
  }
  report.no_gpus_because = std::string(5000, 'x');
  const Judgement judgement = Judge(report);
  EXPECT_LE(judgement.summary.size(), kSummaryBytesMax);
  const std::string json = ToJson(report, judgement);
  EXPECT_LE(json.size(), kReportBytesMax);
  const auto parsed = nlohmann::json::parse(json);
  EXPECT_EQ(parsed["pairs_measured"], 19'900);
  EXPECT_THAT(parsed["each_pair"], Not(IsEmpty()));
}

}  // namespace
}  // namespace cohort::trainer

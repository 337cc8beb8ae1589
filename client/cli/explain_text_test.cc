#include "client/cli/explain_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::cli {
namespace {

using ::testing::HasSubstr;

JobId JobOfDigit(const char* digit) {
  std::string text;
  while (text.size() < 32) text += digit;
  return *JobId::FromText(text);
}

Explanation Waiting() {
  Explanation explanation;
  explanation.job = JobOfDigit("1");
  explanation.name = "train";
  explanation.state = JobState::kPending;
  Blocker& blocker = explanation.blockers.emplace_back();
  blocker.kind = "resources";
  blocker.shape = "4 x {GPU 2} (PACK)";
  blocker.num_workers = 4;
  blocker.nodes = 16;
  blocker.nodes_that_fit = 2;
  blocker.workers_that_fit = 3;
  blocker.failures = {{.by = "resource",
                       .what = "GPU",
                       .nodes = 10,
                       .nodes_in_all = 10,
                       .short_least = Amount::FromUnits(1),
                       .short_median = Amount::FromUnits(2),
                       .closest = "n7"},
                      {.by = "state",
                       .what = "DRAINED",
                       .nodes = 2,
                       .since = absl::FromUnixSeconds(1'700'000'000)},
                      {.by = "label", .what = "zone=a", .nodes = 1},
                      {.by = "taint", .what = "lab", .nodes = 1}};
  blocker.holders = {{.resource = "GPU",
                      .job = JobOfDigit("2"),
                      .amount = Amount::FromUnits(12),
                      .nodes = 3}};
  explanation.ahead = {
      .jobs = 2,
      .first = {{.id = JobOfDigit("3"), .name = "sweep", .priority = 0}}};
  explanation.changes = {{.kind = "FEWER_WORKERS",
                          .of_request = true,
                          .text = "3 workers instead of 4",
                          .how = "--num-workers 3"},
                         {.kind = "MORE_NODES", .text = "1 more node like n1"}};
  return explanation;
}

TEST(ExplainText, SaysWhatIsMissingWhoHasItAndWhatHelps) {
  EXPECT_EQ(
      ExplanationText(Waiting()),
      "Job 11111111111111111111111111111111 (train) is PENDING.\n"
      "\n"
      "It needs 4 x {GPU 2} (PACK).\n"
      "There is not room for that now.\n"
      "\n"
      "Of 16 nodes:\n"
      "  10  lack GPU 1 or more (n7), half of them 2 or more\n"
      "   2  are DRAINED, the first since 2023-11-14T22:13:20.000Z\n"
      "   1  does not match zone=a\n"
      "   1  has the taint lab, which it does not tolerate\n"
      "   2  have room, for 3 workers\n"
      "\n"
      "Held by:\n"
      "  GPU 12 on 3 nodes  job 22222222222222222222222222222222\n"
      "\n"
      "Ahead in line: 2 jobs, first 33333333333333333333333333333333 "
      "(sweep).\n"
      "Whoever fits starts, so a job behind it may come first, and it before "
      "those ahead.\n"
      "\n"
      "Any one of these would let it start:\n"
      "  - 3 workers instead of 4  [--num-workers 3]\n"
      "  - 1 more node like n1\n");
}

TEST(ExplainText, SaysThatAJobNeverFits) {
  Explanation explanation = Waiting();
  explanation.blockers[0].never_fits = true;

  const std::string text = ExplanationText(explanation);

  EXPECT_THAT(text, HasSubstr("not even if all nodes were idle"));
  // Other nodes alone may not do either, while these are taken.
  EXPECT_THAT(text, HasSubstr("\nHeld by these, whose end alone does not help:"
                              "\n  GPU 12 on 3 nodes"));
}

TEST(ExplainText, SaysBothThatAJobIsHeldAndThatItNeverFits) {
  Explanation explanation = Waiting();
  explanation.blockers[0].never_fits = true;
  explanation.blockers[0].text = "needs 4 x {GPU 2} (PACK); never fits";
  explanation.blockers.insert(
      explanation.blockers.begin(),
      {.kind = "held",
       .text = "held by ada; `cohort jobs release 1` lets it "
               "go"});

  EXPECT_EQ(NeverFitsText(explanation),
            "needs 4 x {GPU 2} (PACK); never fits\n"
            "cohort: besides it is held by ada; `cohort jobs release 1` lets "
            "it go\n");
  const std::string text = ExplanationText(explanation);
  EXPECT_THAT(text, HasSubstr("\nIt is held by ada; `cohort jobs release 1` "
                              "lets it go\n"));
  EXPECT_THAT(text, HasSubstr("not even if all nodes were idle"));
}

// The nodes have room, but not for all workers together.
TEST(ExplainText, SaysWhatKeepsTheGangTogether) {
  Explanation explanation = Waiting();
  Blocker& blocker = explanation.blockers[0];
  blocker.nodes = 3;
  blocker.nodes_that_fit = 2;
  blocker.workers_that_fit = 2;
  blocker.holders.clear();
  blocker.failures = {{.by = "domain",
                       .what = "rack=r1",
                       .nodes = 1,
                       .nodes_in_all = 3,
                       .short_least = Amount::FromUnits(2),
                       .short_median = Amount::FromUnits(2)},
                      {.by = "spread",
                       .what = "different nodes",
                       .nodes_in_all = 2,
                       .short_least = Amount::FromUnits(2),
                       .short_median = Amount::FromUnits(2)}};

  EXPECT_THAT(
      ExplanationText(explanation),
      HasSubstr("Of 3 nodes:\n"
                "  1  has room, but not in rack=r1\n"
                "  2  have room, for 2 workers\n"
                "It must be all in one, and rack=r1 comes nearest, with room "
                "for 2 of 4 workers.\n"
                "Each worker must have a node of its own: there is room on 2 "
                "of the 4 different nodes that it must have.\n"));
}

// As much more is enough.
TEST(ExplainText, WhatMemoryIsLackingIsRoundedUp) {
  Explanation explanation = Waiting();
  NodeFailure& failure = explanation.blockers[0].failures[0];
  failure.what = "memory";
  failure.short_least = Amount::FromUnits((int64_t{4} << 30) + 4096);
  failure.short_median = Amount::FromUnits(int64_t{5} << 30);

  EXPECT_THAT(ExplanationText(explanation),
              HasSubstr("10  lack memory 4.1GiB or more (n7), half of them "
                        "5GiB or more"));
}

TEST(ExplainText, IsOneLineForAJobThatDoesNotWait) {
  Explanation explanation;
  explanation.job = JobOfDigit("1");
  explanation.state = JobState::kRunning;
  explanation.summary = "it waits for nothing: attempt 1 runs on n1";

  EXPECT_EQ(ExplanationText(explanation),
            "Job 11111111111111111111111111111111 is RUNNING: it waits for "
            "nothing: attempt 1 runs on n1.\n");
}

TEST(ExplainText, ShowsOtherBlockersAsTheyAre) {
  Explanation explanation;
  explanation.state = JobState::kPending;
  explanation.blockers = {{.kind = "held", .text = "held by ada"},
                          {.kind = "after", .text = "after 1, which runs"}};

  EXPECT_THAT(ExplanationText(explanation),
              HasSubstr("\nIt is held by ada\n\nIt waits: after 1, which "
                        "runs\n"));
}

}  // namespace
}  // namespace cohort::cli

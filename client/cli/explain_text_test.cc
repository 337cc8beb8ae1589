#include "client/cli/explain_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "client/testing/messages.h"
#include "common/resources.h"

namespace cohort::cli {
namespace {

using ::testing::HasSubstr;

using client::Parsed;

Explanation Waiting() {
  return Parsed<Explanation>(R"pb(
    job_id: $11
    name: "train"
    state: JOB_STATE_PENDING
    blockers {
      kind: "resources"
      shape: "4 x {GPU 2} (PACK)"
      num_workers: 4
      nodes: 16
      nodes_that_fit: 2
      workers_that_fit: 3
      failures {
        by: "resource"
        what: "GPU"
        nodes: 10
        nodes_in_all: 10
        short_least: 10000
        short_median: 20000
        closest: "n7"
      }
      failures {
        by: "state"
        what: "DRAINED"
        nodes: 2
        since_us: 1700000000000000
      }
      failures { by: "label" what: "zone=a" nodes: 1 }
      failures { by: "taint" what: "lab" nodes: 1 }
      holders { resource: "GPU" job_id: $22 amount: 120000 nodes: 3 }
    }
    ahead {
      jobs: 2
      first { job_id: $33 name: "sweep" }
    }
    changes {
      kind: "FEWER_WORKERS"
      of_request: true
      text: "3 workers instead of 4"
      how: "--num-workers 3"
    }
    changes { kind: "MORE_NODES" text: "1 more node like n1" }
    changes_complete: true)pb");
}

TEST(ExplainText, SaysWhatIsMissingWhoHasItAndWhatHelps) {
  EXPECT_EQ(ExplanationText(Waiting()),
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
            "Any job that fits starts, so one behind it may come first, and it "
            "before "
            "those ahead.\n"
            "\n"
            "Any one of these would let it start:\n"
            "  - 3 workers instead of 4  [--num-workers 3]\n"
            "  - 1 more node like n1\n");
}

TEST(ExplainText, SaysThatAJobNeverFits) {
  Explanation explanation = Waiting();
  explanation.mutable_blockers(0)->set_never_fits(true);

  const std::string text = ExplanationText(explanation);

  EXPECT_THAT(text, HasSubstr("not even if all nodes were idle"));
  // Other nodes alone may not do either, while these are taken.
  EXPECT_THAT(text, HasSubstr("\nHeld by these, whose end alone does not help:"
                              "\n  GPU 12 on 3 nodes"));
}

TEST(ExplainText, SaysBothThatAJobIsHeldAndThatItNeverFits) {
  Explanation explanation = Waiting();
  explanation.mutable_blockers(0)->set_never_fits(true);
  explanation.mutable_blockers(0)->set_text(
      "needs 4 x {GPU 2} (PACK); never fits");
  *explanation.add_blockers() = Parsed<v1::Blocker>(
      "kind: \"held\" text: \"held by ada; `cohort jobs release 1` lets "
      "it "
      "go\"");
  explanation.mutable_blockers()->SwapElements(0, 1);

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
  *explanation.mutable_blockers(0) = Parsed<v1::Blocker>(R"pb(
    kind: "resources"
    shape: "4 x {GPU 2} (PACK)"
    num_workers: 4
    nodes: 3
    nodes_that_fit: 2
    workers_that_fit: 2
    failures {
      by: "domain"
      what: "rack=r1"
      nodes: 1
      nodes_in_all: 3
      short_least: 20000
      short_median: 20000
    }
    failures {
      by: "spread"
      what: "different nodes"
      nodes_in_all: 2
      short_least: 20000
      short_median: 20000
    })pb");

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
  v1::NodeFailure& failure =
      *explanation.mutable_blockers(0)->mutable_failures(0);
  failure.set_what("memory");
  failure.set_short_least(((int64_t{4} << 30) + 4096) * Amount::kScale);
  failure.set_short_median((int64_t{5} << 30) * Amount::kScale);

  EXPECT_THAT(ExplanationText(explanation),
              HasSubstr("10  lack memory 4.1GiB or more (n7), half of them "
                        "5GiB or more"));
}

TEST(ExplainText, IsOneLineForAJobThatDoesNotWait) {
  EXPECT_EQ(ExplanationText(Parsed<Explanation>(R"pb(
              job_id: $11
              state: JOB_STATE_RUNNING
              summary: "it waits for nothing: attempt 1 runs on n1")pb")),
            "Job 11111111111111111111111111111111 is RUNNING: it waits for "
            "nothing: attempt 1 runs on n1.\n");
}

TEST(ExplainText, OfAJobThatRunsItSaysWhatItsRanksWaitFor) {
  Explanation explanation = Waiting();
  explanation.set_state(v1::JOB_STATE_RUNNING);
  explanation.set_summary("it waits for nothing; rank 3 waits");
  EXPECT_THAT(ExplanationText(explanation),
              HasSubstr("\nAny one of these would let those ranks start:\n"));
  explanation.clear_changes();
  EXPECT_THAT(ExplanationText(explanation),
              HasSubstr("\nNo change that is known would let those ranks "
                        "start.\n"));
}

TEST(ExplainText, ShowsOtherBlockersAsTheyAre) {
  EXPECT_THAT(ExplanationText(Parsed<Explanation>(R"pb(
                state: JOB_STATE_PENDING
                blockers { kind: "held" text: "held by ada" }
                blockers { kind: "after" text: "after 1, which runs" })pb")),
              HasSubstr("\nIt is held by ada\n\nIt waits: after 1, which "
                        "runs\n"));
}

}  // namespace
}  // namespace cohort::cli

#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "head/state/attempt_table.h"
#include "head/state/job_table.h"
#include "head/state/run_controller.h"
#include "head/store/enum_text.h"
#include "head/testing/messages.h"

namespace cohort::head {

inline NodeNames NamesFor(const NodeId& a, const std::string& name) {
  return [a, name](const NodeId& node) { return node == a ? name : "b"; };
}

// One job of two ranks on two nodes, driven by what the nodes would say.
class RunControllerTest : public ::testing::Test {
 protected:
  RunControllerTest() {
    job_.id = JobId::New(random_);
    job_.spec.Own().mutable_scaling()->set_num_workers(2);
    job_.state = v1::JOB_STATE_PENDING;
    Begin();
  }

  void Begin() {
    Plan plan;
    for (int i = 0; i < 2; ++i) {
      PlannedPart part;
      part.node = i == 0 ? a_ : b_;
      part.ranks = {{.rank = i, .local_rank = 0, .devices = {}}};
      plan.parts.push_back(part);
    }
    attempt_ = controller_.Begin(job_, AttemptId::New(random_), plan, "host-a");
    job_.state = v1::JOB_STATE_STARTING;
  }

  ObservedAttempt At(v1::Phase phase) {
    ObservedAttempt observed;
    observed.attempt = attempt_.id;
    observed.epoch = attempt_.epoch;
    observed.phase = phase;
    observed.master_port = 4711;
    return observed;
  }

  ObservedAttempt Exited(int rank, int code, bool by_order = false) {
    ObservedAttempt observed = At(v1::PHASE_ENDED);
    observed.end = v1::END_CAUSE_EXITED;
    observed.ranks = {{.rank = rank,
                       .state = v1::RANK_STATE_EXITED,
                       .pid = 100,
                       .exit = ExitOf({.code = code}),
                       .exit_order = 1,
                       .ended_by_order = by_order}};
    return observed;
  }

  // Applies what a node says, and makes the job's moves as the state does.
  RunOutcome Say(const NodeId& node, const ObservedAttempt& observed) {
    return Made(controller_.Observe(job_, attempt_, node, observed));
  }
  RunOutcome Made(RunOutcome outcome) {
    for (const JobState state : outcome.job_moves) {
      EXPECT_TRUE(MayMove(job_.state, state))
          << EnumText(job_.state) << " " << EnumText(state);
      job_.state = state;
    }
    return outcome;
  }

  void Run() {
    Say(a_, At(v1::PHASE_PREPARED));
    Say(b_, At(v1::PHASE_PREPARED));
    Say(a_, At(v1::PHASE_RUNNING));
    Say(b_, At(v1::PHASE_RUNNING));
    ASSERT_EQ(job_.state, v1::JOB_STATE_RUNNING);
  }

  std::string Path(int step) {
    return absl::StrCat("/s/j/attempt-", attempt_.number, ".", attempt_.epoch,
                        "/step-", step);
  }
  ObservedAttempt Committing(int step) {
    ObservedAttempt observed = At(v1::PHASE_RUNNING);
    observed.checkpoints = {CheckpointOf(Path(step), step, attempt_.epoch)};
    return observed;
  }

  SeededRandom random_{1};
  const NodeId a_ = NodeId::New(random_);
  const NodeId b_ = NodeId::New(random_);
  const RunController controller_{{}, NamesFor(a_, "a")};
  JobRecord job_;
  AttemptRecord attempt_;
};

}  // namespace cohort::head

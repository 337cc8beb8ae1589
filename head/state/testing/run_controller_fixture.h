#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/exception_text.h"
#include "common/random.h"
#include "head/state/attempt_table.h"
#include "head/state/job_table.h"
#include "head/state/reconciler.h"
#include "head/state/run_controller.h"
#include "head/testing/messages.h"
#include "head/testing/observed_places.h"
#include "rpc/enum_text.h"

namespace cohort::head {

inline NodeNames NamesFor(const NodeId& a, const std::string& name) {
  return [a, name](const NodeId& node) { return node == a ? name : "b"; };
}

// One job of two ranks on two nodes, driven by what the nodes would say.
class RunControllerTest : public ::testing::Test {
 protected:
  RunControllerTest() {
    job_ = JobRecord(JobId::New(random_));
    job_.spec.Own().mutable_scaling()->set_num_workers(2);
    job_.row.set_state(v1::JOB_STATE_PENDING);
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
    job_.row.set_state(v1::JOB_STATE_STARTING);
  }

  v1::ObservedPlace At(Stage stage) { return PlaceAt(attempt_, stage); }

  // One rank alone.
  v1::ObservedPlace Exited(int rank, int code, bool by_order = false) {
    v1::ObservedPlace place = ExitedAt(attempt_, code, by_order);
    const v1::ObservedProcess process = place.processes(rank);
    place.clear_processes();
    *place.add_processes() = process;
    place.mutable_processes(0)->set_exit_order(1);
    return place;
  }

  // The same, at so many seconds of its node's clock.
  v1::ObservedPlace EndedAt(int rank, int code, int second) {
    v1::ObservedPlace place = Exited(rank, code);
    place.mutable_processes(0)->mutable_exit()->set_ended_at_us(
        int64_t{second} * 1'000'000);
    return place;
  }
  // The same, of a rank that raised something then.
  static v1::ObservedPlace Raised(v1::ObservedPlace place, double second) {
    place.mutable_processes(0)->mutable_exit()->set_detail(absl::StrCat(
        "E", RaisedText(absl::UnixEpoch() + absl::Seconds(second))));
    return place;
  }

  // What is wanted of the process on a.
  v1::DesiredProcess DesiredOfA(const JobRecord& job,
                                const AttemptRecord& attempt) {
    return DesiredFor(job, attempt, *PlaceOn(attempt, a_), {}, NodeRecord(),
                      absl::Now())
        .processes(0);
  }

  // Applies what a node says, and makes the job's moves as the state does.
  RunOutcome Say(const NodeId& node, const v1::ObservedPlace& observed) {
    return Made(controller_.Observe(job_, attempt_, node,
                                    OnlyOn(node, &attempt_, observed)));
  }
  RunOutcome Made(RunOutcome outcome) {
    for (const JobState state : outcome.job_moves) {
      EXPECT_TRUE(MayMove(job_.row.state(), state))
          << EnumText(job_.row.state()) << " " << EnumText(state);
      job_.row.set_state(state);
    }
    return outcome;
  }

  void Run() {
    Say(a_, At(Stage::kPrepared));
    Say(b_, At(Stage::kPrepared));
    Say(a_, At(Stage::kRunning));
    Say(b_, At(Stage::kRunning));
    ASSERT_EQ(job_.row.state(), v1::JOB_STATE_RUNNING);
  }

  std::string Path(int step) {
    return absl::StrCat("/s/j/attempt-", attempt_.number, ".", attempt_.epoch,
                        "/step-", step);
  }
  v1::ObservedPlace Committing(int step) {
    v1::ObservedPlace observed = At(Stage::kRunning);
    v1::Checkpoint* const checkpoint = observed.add_checkpoints();
    checkpoint->set_path(Path(step));
    checkpoint->set_step(step);
    checkpoint->set_epoch(attempt_.epoch);
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

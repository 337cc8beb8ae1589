#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "head/state/testing/cluster_state_fixture.h"

namespace cohort::head {

// BD-1: what follows from one decision comes in turns.
class TurnsTest : public ClusterStateTest {
 protected:
  static constexpr size_t kTurn = 10;
  // The decision's own: its request, events, the array's row, the cluster's.
  static constexpr size_t kOwn = 6;

  TurnsTest() {
    limits_.turn_rows_max = kTurn;
    Reload();
  }

  JobId SubmitArray(int size, const JobId* after = nullptr) {
    JobSpec spec = Spec(1, 1);
    spec.set_array(absl::StrCat("0-", size - 1));
    if (after != nullptr) AddAfter(spec, *after);
    return SubmitJob(std::move(spec));
  }
  int64_t Count(const JobId& array, JobState state) {
    return state_->jobs().arrays().Find(array)->CountOf(state);
  }
  void GoOn() {
    Transition transition;
    state_->GoOn(transition);
    Submit(std::move(transition));
    EXPECT_LE(rows_, kTurn + kOwn);
  }
  // Gives how many turns it took; with a restart of the head before each.
  int Finish(bool restart) {
    int turns = 0;
    for (; state_->HasToGoOn() && turns < 1000; ++turns) {
      if (restart) {
        Reload();
        EXPECT_LE(rows_, kTurn + kOwn);
      }
      GoOn();
    }
    EXPECT_FALSE(state_->HasToGoOn());
    return turns;
  }
  // Of the events of `job` itself.
  std::vector<std::string> KindsOf(const JobId& job) {
    std::vector<std::string> kinds;
    const auto events = LoadRecords<EventRecord>(*store_);
    COHORT_EXPECT_OK(events);
    for (const EventRecord& event : *events) {
      if (IdOf<JobId>(event.job_id()) == job) kinds.push_back(event.kind());
    }
    return kinds;
  }
};

}  // namespace cohort::head

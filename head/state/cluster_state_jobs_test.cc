#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "head/state/cause_chain.h"
#include "head/state/cluster_state.h"
#include "head/state/job_query.h"
#include "head/state/testing/cluster_state_fixture.h"
#include "head/testing/job_specs.h"
#include "head/testing/messages.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

// A state over a memory store with one node, whose ranks do as they are told.
class ClusterStateJobsTest : public ClusterStateTest {
 protected:
  ClusterStateJobsTest() {
    node_.id = NodeId::New(random_);
    node_.node.set_name("n1");
    node_.node.set_host("10.0.0.1");
    SetResources(node_.node, *ParseResources("CPU=4"));
    node_.observed.set_full(true);
  }

  using ClusterStateTest::Submit;

  // The node with all that it has to do, and nothing of it begun.
  void JoinNode() {
    node_.observed.clear_places();
    for (const AttemptId& id : state_->attempts().OnNode(node_.id)) {
      *node_.observed.add_places() =
          PlaceAt(*state_->attempts().Find(id), Stage::kPreparing);
    }
    Transition transition;
    const auto registered = state_->RegisterNode(node_, transition);
    COHORT_ASSERT_OK(registered);
    incarnation_ = registered->incarnation;
    Submit(std::move(transition));
  }

  static JobSpec Spec() {
    JobSpec spec = OneWorker();
    SetCommand(spec, {"run"});
    SetResources(spec, *ParseResources("CPU=1"));
    return spec;
  }

  absl::StatusOr<JobId> TrySubmit(JobSpec spec, std::string request = "") {
    if (request.empty()) request = absl::StrCat("r", ++requests_);
    Transition transition;
    const absl::StatusOr<JobId> id =
        state_->SubmitJob(Key(request), "default", std::move(spec), transition);
    Submit(std::move(transition));
    return id;
  }
  JobId Submit(JobSpec spec) { return *TrySubmit(std::move(spec)); }
  JobId SubmitAfter(JobId job, DependencyKind kind = v1::DEPENDENCY_KIND_OK) {
    JobSpec spec = Spec();
    AddAfter(spec, job, kind);
    return Submit(std::move(spec));
  }
  JobId SubmitArray(const std::string& array) {
    JobSpec spec = Spec();
    spec.set_array(array);
    return Submit(std::move(spec));
  }

  RequestKey Key(const std::string& request) {
    return {.principal = "cluster", .request_id = request, .body_hash = "h"};
  }
  using Call = absl::Status (ClusterState::*)(const RequestKey&, const JobId&,
                                              Transition&);
  absl::Status Do(Call call, const JobId& job) {
    Transition transition;
    const absl::Status status =
        ((*state_).*call)(Key(absl::StrCat("r", ++requests_)), job, transition);
    Submit(std::move(transition));
    return status;
  }

  // An array's too.
  JobState StateOfJob(const JobId& id) {
    return *head::StateOf(state_->jobs(), id);
  }
  std::string Reason(const JobId& id) { return state_->ReasonOf(Job(id)); }
  int64_t Count(const JobId& array, JobState state) {
    return state_->jobs().arrays().Find(array)->CountOf(state);
  }

  // The job's attempt, which is placed, ends by itself.
  void End(const JobId& job, int code = 0) {
    const auto say = [&](const v1::ObservedPlace& seen) {
      v1::Observed observed;
      *observed.add_places() = seen;
      Transition transition;
      static_cast<void>(
          state_->Observe(node_.id, incarnation_, observed, transition));
      Submit(std::move(transition));
    };
    const AttemptRecord attempt = *state_->attempts().LastOf(job);
    say(PlaceAt(attempt, Stage::kPrepared));
    say(PlaceAt(attempt, Stage::kRunning));
    say(ExitedAt(attempt, code));
  }

  Registration node_;
  uint64_t incarnation_ = 0;
};

// ---- hold and release ----

TEST_F(ClusterStateJobsTest, AHeldJobWaitsUntilItIsReleased) {
  JoinNode();
  JobSpec spec = Spec();
  spec.set_hold(true);
  const JobId job = Submit(spec);
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(Reason(job), "held by cluster");
  Reload();
  JoinNode();
  EXPECT_EQ(Reason(job), "held by cluster");
  COHORT_EXPECT_OK(Do(&ClusterState::ReleaseJob, job));
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_STARTING);
  COHORT_EXPECT_OK(Do(&ClusterState::ReleaseJob, job));
}

TEST_F(ClusterStateJobsTest, AJobThatWaitsCanBeHeldAndOneThatRunsCannot) {
  const JobId job = Submit(Spec());
  COHORT_EXPECT_OK(Do(&ClusterState::HoldJob, job));
  COHORT_EXPECT_OK(Do(&ClusterState::HoldJob, job));
  JoinNode();
  EXPECT_EQ(Reason(job), "held by cluster");
  COHORT_EXPECT_OK(Do(&ClusterState::ReleaseJob, job));
  EXPECT_THAT(Do(&ClusterState::HoldJob, job),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("is STARTING: only what waits")));
  EXPECT_THAT(Do(&ClusterState::HoldJob, JobId::New(random_)),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(ClusterStateJobsTest, WhatHasEndedIsNotReleased) {
  const JobId job = Submit(Spec());
  COHORT_EXPECT_OK(Do(&ClusterState::HoldJob, job));
  COHORT_EXPECT_OK(Do(&ClusterState::StopJob, job));
  EXPECT_THAT(Do(&ClusterState::ReleaseJob, job),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("is STOPPED: only what waits")));
}

TEST_F(ClusterStateJobsTest, AReleasedJobGoesBackToItsPlace) {
  const JobId first = Submit(Spec());
  const JobId second = Submit(Spec());
  COHORT_EXPECT_OK(Do(&ClusterState::HoldJob, first));
  COHORT_EXPECT_OK(Do(&ClusterState::ReleaseJob, first));
  SetResources(node_.node, *ParseResources("CPU=1"));
  JoinNode();
  EXPECT_EQ(Job(first).row.state(), v1::JOB_STATE_STARTING);
  EXPECT_EQ(Job(second).row.state(), v1::JOB_STATE_PENDING);
}

TEST_F(ClusterStateJobsTest, HigherPrioritiesStartFirst) {
  JobSpec urgent = Spec();
  urgent.set_priority(5);
  const JobId first = Submit(Spec());
  const JobId second = Submit(urgent);
  SetResources(node_.node, *ParseResources("CPU=1"));
  JoinNode();
  EXPECT_EQ(Job(first).row.state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(Job(second).row.state(), v1::JOB_STATE_STARTING);
}

// ---- after ----

TEST_F(ClusterStateJobsTest, AJobStartsOnceTheOneBeforeHasSucceeded) {
  JoinNode();
  const JobId first = Submit(Spec());
  const JobId second = SubmitAfter(first);
  EXPECT_EQ(Reason(second),
            absl::StrCat("after ", first.ToText(), ", which is STARTING"));
  Reload();
  JoinNode();
  EXPECT_EQ(Job(second).row.state(), v1::JOB_STATE_PENDING);
  End(first);
  EXPECT_EQ(Job(first).row.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Job(second).row.state(), v1::JOB_STATE_STARTING);
}

// DP-1
TEST_F(ClusterStateJobsTest, WhoCanNeverStartFailsAndSaysWhy) {
  JoinNode();
  const JobId first = Submit(Spec());
  const JobId second = SubmitAfter(first);
  const JobId third = SubmitAfter(second);
  const JobId anyway = SubmitAfter(first, v1::DEPENDENCY_KIND_ANY);
  End(first, 3);
  EXPECT_EQ(Job(first).row.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Job(second).row.state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(Job(second).row.reason(),
              HasSubstr(absl::StrCat("after ", first.ToText())));
  EXPECT_EQ(Job(third).row.state(), v1::JOB_STATE_FAILED);
  ASSERT_THAT(Job(third).row.causes(), Not(IsEmpty()));
  EXPECT_THAT(
      *Job(third).row.causes().rbegin(),
      StartsWith(absl::StrCat("job ", second.ToText(), " ended FAILED")));
  EXPECT_THAT(absl::StrJoin(Job(third).row.causes(), "\n"),
              HasSubstr(absl::StrCat("job ", first.ToText(), " ended FAILED")));
  EXPECT_EQ(Job(anyway).row.state(), v1::JOB_STATE_STARTING);
  Reload();
  EXPECT_EQ(Job(third).row.state(), v1::JOB_STATE_FAILED);
}

TEST_F(ClusterStateJobsTest, AJobThatHasEndedIsJudgedAtOnce) {
  JoinNode();
  const JobId good = Submit(Spec());
  const JobId bad = Submit(Spec());
  End(good);
  End(bad, 1);
  EXPECT_EQ(Job(SubmitAfter(good)).row.state(), v1::JOB_STATE_STARTING);
  EXPECT_EQ(Job(SubmitAfter(bad)).row.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Job(SubmitAfter(bad, v1::DEPENDENCY_KIND_ANY)).row.state(),
            v1::JOB_STATE_STARTING);
  JobSpec spec = Spec();
  AddAfter(spec, JobId::New(random_), v1::DEPENDENCY_KIND_OK);
  EXPECT_THAT(TrySubmit(spec),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr(JobOf(spec.after(0)).ToText())));
  AddAfter(spec, good);
  AddAfter(spec, good);
  EXPECT_THAT(TrySubmit(spec),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("twice")));
}

TEST_F(ClusterStateJobsTest, AStoppedJobFailsWhoWaitsForItsSuccess) {
  const JobId first = Submit(Spec());
  const JobId second = SubmitAfter(first);
  COHORT_EXPECT_OK(Do(&ClusterState::StopJob, first));
  EXPECT_EQ(Job(second).row.state(), v1::JOB_STATE_FAILED);
}

TEST_F(ClusterStateJobsTest, WhatSomebodyWaitsForIsNotForgotten) {
  limits_.history.jobs.count_max = 1;
  Reload();
  JoinNode();
  const JobId first = Submit(Spec());
  End(first);
  JobSpec spec = Spec();
  AddAfter(spec, first);
  spec.set_hold(true);
  const JobId second = Submit(spec);
  for (int i = 0; i < 3; ++i) End(Submit(Spec()));
  Transition transition;
  state_->Tick(transition);
  Submit(std::move(transition));
  EXPECT_NE(state_->jobs().Find(first), nullptr);
  Reload();
  JoinNode();
  COHORT_EXPECT_OK(Do(&ClusterState::ReleaseJob, second));
  time_.AdvanceBy(absl::Seconds(1));
  End(second);
  Transition again;
  state_->Tick(again);
  Submit(std::move(again));
  EXPECT_EQ(state_->jobs().Find(first), nullptr);
}

// ---- arrays ----

TEST_F(ClusterStateJobsTest, AnArrayIsOneRequestOneEventAndManyJobs) {
  JobSpec spec = Spec();
  spec.set_array("0-2,9");
  const uint64_t events = state_->cluster().next_event();
  const JobId array = *TrySubmit(spec, "same");
  EXPECT_EQ(state_->cluster().next_event(), events + 1);
  EXPECT_EQ(*TrySubmit(spec, "same"), array);
  EXPECT_EQ(state_->jobs().size(), 4u);
  EXPECT_THAT(state_->jobs().Named(array),
              ElementsAre(array.Element(0), array.Element(1), array.Element(2),
                          array.Element(9)));
  EXPECT_TRUE(
      Job(array.Element(0)).spec.IsSharedWith(Job(array.Element(9)).spec));
  Reload();
  EXPECT_EQ(state_->jobs().size(), 4u);
  EXPECT_EQ(Job(array.Element(9)).spec, Shared<JobSpec>(spec));
  EXPECT_TRUE(
      Job(array.Element(0)).spec.IsSharedWith(Job(array.Element(9)).spec));
}

// EL-2
TEST_F(ClusterStateJobsTest, NoMoreElementsRunThanTheArrayAllows) {
  JoinNode();
  const JobId array = SubmitArray("0-5%2");
  EXPECT_EQ(Count(array, v1::JOB_STATE_STARTING), 2);
  EXPECT_THAT(Reason(array.Element(4)), HasSubstr("its limit"));
  Reload();
  JoinNode();
  EXPECT_EQ(Count(array, v1::JOB_STATE_STARTING), 2);
  for (uint32_t i = 0; i < 6; ++i) {
    EXPECT_LE(Count(array, v1::JOB_STATE_STARTING), 2);
    End(array.Element(i));
  }
  EXPECT_EQ(Count(array, v1::JOB_STATE_SUCCEEDED), 6);
  EXPECT_EQ(StateOfJob(array), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(ClusterStateJobsTest, AHeldElementGivesItsPlaceToAnother) {
  const JobId array = SubmitArray("0-3%1");
  COHORT_EXPECT_OK(Do(&ClusterState::HoldJob, array.Element(0)));
  JoinNode();
  EXPECT_EQ(Job(array.Element(0)).row.state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(Job(array.Element(1)).row.state(), v1::JOB_STATE_STARTING);
  COHORT_EXPECT_OK(Do(&ClusterState::ReleaseJob, array.Element(0)));
  EXPECT_EQ(Count(array, v1::JOB_STATE_STARTING), 1);
  End(array.Element(1));
  EXPECT_EQ(Job(array.Element(0)).row.state(), v1::JOB_STATE_STARTING);
}

TEST_F(ClusterStateJobsTest, TheArraysIdNamesAllItsElements) {
  const JobId array = SubmitArray("0-3");
  COHORT_EXPECT_OK(Do(&ClusterState::HoldJob, array));
  JoinNode();
  EXPECT_EQ(Count(array, v1::JOB_STATE_PENDING), 4);
  COHORT_EXPECT_OK(Do(&ClusterState::ReleaseJob, array));
  EXPECT_EQ(Count(array, v1::JOB_STATE_STARTING), 4);
  End(array.Element(2), 1);
  COHORT_EXPECT_OK(Do(&ClusterState::StopJob, array));
  EXPECT_EQ(Count(array, v1::JOB_STATE_STOPPING), 3);
  EXPECT_EQ(Count(array, v1::JOB_STATE_FAILED), 1);
}

TEST_F(ClusterStateJobsTest, StoppingWaitingElementsIsOneEvent) {
  const JobId array = SubmitArray("0-99");
  const uint64_t events = state_->cluster().next_event();
  COHORT_EXPECT_OK(Do(&ClusterState::StopJob, array));
  EXPECT_EQ(StateOfJob(array), v1::JOB_STATE_STOPPED);
  EXPECT_EQ(state_->cluster().next_event(), events + 1);
}

TEST_F(ClusterStateJobsTest, AJobWaitsForAllElementsAndAnArrayForAJob) {
  JoinNode();
  const JobId array = SubmitArray("0-1");
  const JobId after = SubmitAfter(array);
  JobSpec spec = Spec();
  spec.set_array("0-1");
  AddAfter(spec, after);
  const JobId last = Submit(spec);
  End(array.Element(0));
  EXPECT_EQ(Job(after).row.state(), v1::JOB_STATE_PENDING);
  End(array.Element(1));
  EXPECT_EQ(Job(after).row.state(), v1::JOB_STATE_STARTING);
  EXPECT_EQ(Count(last, v1::JOB_STATE_PENDING), 2);
  End(after, 1);
  EXPECT_EQ(Count(last, v1::JOB_STATE_FAILED), 2);
  EXPECT_EQ(StateOfJob(last), v1::JOB_STATE_FAILED);
}

// DP-1, whichever element ended before.
TEST_F(ClusterStateJobsTest, AnArrayFailsWithItsDependencyAlsoInPart) {
  JoinNode();
  for (const bool restart : {false, true}) {
    const JobId first = Submit(Spec());
    JobSpec spec = Spec();
    spec.set_array("0-2");
    AddAfter(spec, first);
    const JobId array = Submit(spec);
    const JobId last = SubmitAfter(array);
    COHORT_EXPECT_OK(Do(&ClusterState::StopJob, array.Element(0)));
    if (restart) {
      Reload();
      JoinNode();
    }
    End(first, 1);
    EXPECT_EQ(StateOfJob(array), v1::JOB_STATE_FAILED);
    EXPECT_EQ(Count(array, v1::JOB_STATE_FAILED), 2);
    EXPECT_EQ(Job(last).row.state(), v1::JOB_STATE_FAILED);
  }
}

TEST_F(ClusterStateJobsTest, ALongChainSaysHowManyCausesItLeavesOut) {
  JoinNode();
  const JobId first = Submit(Spec());
  JobId last = first;
  for (size_t i = 0; i < kCausesMax + 5; ++i) last = SubmitAfter(last);
  End(first, 3);
  const auto& causes = Job(last).row.causes();
  ASSERT_THAT(causes, SizeIs(kCausesMax));
  EXPECT_THAT(causes[0], HasSubstr("exited with code 3"));
  EXPECT_THAT(causes[1], ::testing::MatchesRegex("\\.\\.\\. [0-9]+ more"));
}

TEST_F(ClusterStateJobsTest, AnArrayIsForgottenAsAWhole) {
  limits_.history.jobs.count_max = 1;
  Reload();
  const JobId array = SubmitArray("0-9");
  COHORT_EXPECT_OK(Do(&ClusterState::StopJob, array.Element(3)));
  const JobId other = Submit(Spec());
  COHORT_EXPECT_OK(Do(&ClusterState::StopJob, other));
  Transition first;
  state_->Tick(first);
  Submit(std::move(first));
  EXPECT_EQ(state_->jobs().size(), 11u);
  COHORT_EXPECT_OK(Do(&ClusterState::StopJob, array));
  EXPECT_EQ(state_->jobs().Find(other), nullptr);
  EXPECT_EQ(state_->jobs().size(), 10u);
  COHORT_EXPECT_OK(Do(&ClusterState::StopJob, Submit(Spec())));
  Transition second;
  state_->Tick(second);
  Submit(std::move(second));
  EXPECT_EQ(state_->jobs().size(), 1u);
  EXPECT_EQ(state_->jobs().arrays().Find(array), nullptr);
  Reload();
  EXPECT_EQ(state_->jobs().size(), 1u);
  EXPECT_TRUE(state_->jobs().arrays().all().empty());
}

// ---- lists ----

TEST_F(ClusterStateJobsTest, PagesNeitherShiftNorDoubleWhatTheyShow) {
  std::vector<JobId> jobs;
  for (int i = 0; i < 5; ++i) jobs.push_back(Submit(Spec()));
  JobPage page = FindJobs(state_->jobs(), {}, 2, 100);
  ASSERT_THAT(page.jobs, SizeIs(2));
  EXPECT_EQ(page.jobs[0].job->id, jobs[4]);
  Submit(Spec());
  page = FindJobs(state_->jobs(), {.before = page.next}, 2, 100);
  ASSERT_THAT(page.jobs, SizeIs(2));
  EXPECT_EQ(page.jobs[0].job->id, jobs[2]);
  page = FindJobs(state_->jobs(), {.before = page.next}, 2, 100);
  ASSERT_THAT(page.jobs, SizeIs(1));
  EXPECT_FALSE(page.next.has_value());
}

TEST_F(ClusterStateJobsTest, ListsShowWhatWasAskedFor) {
  JobSpec labelled = Spec();
  (*labelled.mutable_labels())["team"] = "a";
  (*labelled.mutable_labels())["x"] = "y";
  const JobId job = Submit(labelled);
  const JobId stopped = Submit(Spec());
  COHORT_EXPECT_OK(Do(&ClusterState::StopJob, stopped));
  const JobId array = SubmitArray("0-2");
  const auto ids = [this](const JobQuery& query) {
    std::vector<JobId> found;
    for (const JobPage::Item& each :
         FindJobs(state_->jobs(), query, 10, 100).jobs) {
      found.push_back(each.array == nullptr ? each.job->id
                                            : each.array->record.id);
    }
    return found;
  };
  EXPECT_THAT(ids({.labels = {{"team", "a"}}}), ElementsAre(job));
  EXPECT_THAT(ids({.labels = {{"team", "b"}}}), IsEmpty());
  EXPECT_THAT(ids({.states = {v1::JOB_STATE_STOPPED}}), ElementsAre(stopped));
  EXPECT_THAT(ids({.name_space = "other"}), IsEmpty());
  EXPECT_THAT(
      ids({.array = array}),
      ElementsAre(array.Element(2), array.Element(1), array.Element(0)));
  COHORT_EXPECT_OK(ValidateJobQuery(state_->jobs(), {.array = array}));
  EXPECT_THAT(ValidateJobQuery(state_->jobs(), {.array = array.Element(1)}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("name its array, " + array.ToText())));
  EXPECT_THAT(
      ValidateJobQuery(state_->jobs(), {.array = job}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not an array")));
  EXPECT_THAT(ValidateJobQuery(state_->jobs(), {.array = JobId::New(random_)}),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(ids({.fold_arrays = true}), ElementsAre(array, stopped, job));
  EXPECT_THAT(ids({.states = {v1::JOB_STATE_PENDING}, .fold_arrays = true}),
              ElementsAre(array, job));
  EXPECT_THAT(ids({.kinds = {v1::JOB_KIND_ACTOR}}), IsEmpty());
  EXPECT_THAT(ids({.fold_arrays = true, .kinds = {v1::JOB_KIND_JOB}}),
              ElementsAre(array, stopped, job));
  // Looks at no more than it may, and goes on.
  const JobPage page =
      FindJobs(state_->jobs(), {.labels = {{"team", "a"}}}, 10, 2);
  EXPECT_THAT(page.jobs, IsEmpty());
  EXPECT_TRUE(page.next.has_value());
}

TEST_F(ClusterStateJobsTest, TellsWhatAJobIs) {
  JobSpec spec = Spec();
  EXPECT_EQ(KindOf(spec), v1::JOB_KIND_JOB);
  spec.mutable_actor();
  EXPECT_EQ(KindOf(spec), v1::JOB_KIND_ACTOR);
  spec.mutable_actor()->add_dimensions()->set_size(2);
  EXPECT_EQ(KindOf(spec), v1::JOB_KIND_GROUP);
  spec.mutable_actor()->clear_dimensions();
  spec.mutable_actor()->set_executor(true);
  EXPECT_EQ(KindOf(spec), v1::JOB_KIND_EXECUTOR);
}

TEST_F(ClusterStateJobsTest, ListsFindByNameAndBeginningOfAnId) {
  JobSpec named = Spec();
  named.set_name("eval");
  const JobId first = Submit(named);
  Submit(Spec());
  const JobId second = Submit(named);
  const auto ids = [this](const JobQuery& query) {
    std::vector<JobId> found;
    for (const JobPage::Item& each :
         FindJobs(state_->jobs(), query, 10, 100).jobs) {
      found.push_back(each.job->id);
    }
    return found;
  };
  EXPECT_THAT(ids({.name = "eval"}), ElementsAre(second, first));
  EXPECT_THAT(ids({.name = "eva"}), IsEmpty());
  const std::string digits = first.ToText();
  EXPECT_THAT(ids({.id_prefix = digits}), ElementsAre(first));
  EXPECT_THAT(ids({.id_prefix = digits.substr(0, 12)}), ElementsAre(first));
  EXPECT_THAT(ids({.id_prefix = "x"}), IsEmpty());
}

}  // namespace
}  // namespace cohort::head

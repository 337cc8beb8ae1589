#include "head/explain/explanation.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "head/explain/testing/world.h"
#include "head/state/testing/cluster_state_fixture.h"
#include "head/testing/job_specs.h"
#include "head/testing/messages.h"
#include "rpc/enum_text.h"

namespace cohort::head {
namespace {

using Explanation = v1::ExplainJobResponse;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class ExplanationTest : public ClusterStateTest {
 protected:
  ExplanationTest() { Reload(); }

  Explanation Why(const JobId& job, const ExplainWhen& when = {}) {
    return explainer_->Explain(*state_, Job(job), /*read_only=*/false, when);
  }
  Explanation WhyArray(const JobId& array, const ExplainWhen& when = {}) {
    return explainer_->ExplainArray(*state_, array, /*read_only=*/false, when);
  }

  static JobSpec ArraySpecOf(const std::string& array, int cpus) {
    JobSpec spec = Spec(1, cpus);
    spec.set_array(array);
    return spec;
  }

  void Hold(const JobId& job) {
    Transition transition;
    COHORT_ASSERT_OK(state_->HoldJob(Key(), job, transition));
    Submit(std::move(transition));
  }
  void Release(const JobId& job) {
    Transition transition;
    COHORT_ASSERT_OK(state_->ReleaseJob(Key(), job, transition));
    Submit(std::move(transition));
  }
  // It ends by itself.
  void End(const JobId& job, int code = 0) {
    if (StateOf(job) == v1::JOB_STATE_STARTING) Run(job);
    Say(a_, Exited(job, a_, code));
  }

  static std::vector<std::string> Kinds(const Explanation& explanation) {
    std::vector<std::string> kinds;
    for (const v1::Remedy& change : explanation.changes()) {
      kinds.push_back(change.kind());
    }
    return kinds;
  }
  static std::vector<std::string> Blockers(const Explanation& explanation) {
    std::vector<std::string> kinds;
    for (const v1::Blocker& blocker : explanation.blockers()) {
      kinds.push_back(blocker.kind());
    }
    return kinds;
  }
  static std::vector<JobId> FirstAhead(const Explanation& explanation) {
    std::vector<JobId> jobs;
    for (const v1::Ahead::First& first : explanation.ahead().first()) {
      jobs.push_back(*JobId::FromBytes(first.job_id()));
    }
    return jobs;
  }
  static std::vector<std::string> PastKinds(const Explanation& explanation) {
    std::vector<std::string> kinds;
    for (const v1::WaitReason& wait : explanation.history()) {
      kinds.push_back(wait.blocker().kind());
    }
    return kinds;
  }
  static v1::Remedy Find(const Explanation& explanation,
                         const std::string& kind) {
    for (const v1::Remedy& change : explanation.changes()) {
      if (change.kind() == kind) return change;
    }
    ADD_FAILURE() << "no " << kind;
    return {};
  }

  // Ticks, and looks at what waits, as HeadCore does.
  void Pass(absl::Duration span, const std::vector<NodeId>& alive) {
    for (absl::Duration t; t < span; t += limits_.tick_period) {
      ClusterStateTest::Pass(limits_.tick_period, alive);
      Transition transition;
      explainer_->Look(*state_, transition);
      Submit(std::move(transition));
    }
  }
  // As a restart of the head.
  void Reload() {
    ClusterStateTest::Reload();
    MemoryStore reader(disk_);
    explainer_.emplace(limits_.history.wait_reasons, time_,
                       *LoadRecords<WaitReasonRecord>(reader));
  }

  std::optional<Explainer> explainer_;

 private:
  RequestKey Key() {
    return {.principal = "ada",
            .request_id = absl::StrCat("key-", ++keys_),
            .body_hash = "h"};
  }
  int keys_ = 0;
};

TEST_F(ExplanationTest, SaysWhatBecameOfAJobThatDoesNotWait) {
  Join(a_, 4);
  Join(b_, 4);
  const JobId job = SubmitJob(Spec(8, 1));
  const std::string both = absl::StrCat(
      state_->nodes().Find(Attempt(job).places[0].node)->node.name(), " and ",
      state_->nodes().Find(Attempt(job).places[1].node)->node.name());

  EXPECT_EQ(Why(job).summary(),
            absl::StrCat("it waits for nothing: attempt 1 is starting on ",
                         both, "; ", both, " still prepare"));
  Say(a_, At(job, Stage::kPrepared));
  EXPECT_THAT(
      Why(job).summary(),
      HasSubstr(absl::StrCat("; ", state_->nodes().Find(b_)->node.name(),
                             " still prepares")));
  EXPECT_THAT(Why(job).changes(), IsEmpty());

  COHORT_ASSERT_OK(StopJob(job));
  EXPECT_THAT(Why(job).summary(), HasSubstr("it is being stopped on "));

  const JobId other = SubmitJob(Spec(1, 99));
  COHORT_ASSERT_OK(StopJob(other));
  EXPECT_THAT(Why(other).summary(), "stopped on request");
  EXPECT_THAT(Why(other).blockers(), IsEmpty());
}

TEST_F(ExplanationTest, AHoldIsLiftedByItsRelease) {
  Join(a_, 4);
  JobSpec spec = Spec(1, 1);
  spec.set_hold(true);
  const JobId job = SubmitJob(spec);

  const Explanation why = Why(job);

  EXPECT_THAT(Blockers(why), ElementsAre("held"));
  EXPECT_THAT(Kinds(why), ElementsAre("RELEASE_HOLD"));
  EXPECT_EQ(why.changes(0).how(), "cohort jobs release " + job.ToText());
  Release(job);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
}

// One change alone would not do: what keeps it is told, and no change.
TEST_F(ExplanationTest, WhatIsKeptByMuchStartsAfterNoSingleChange) {
  Join(a_, 4);
  const JobId first = SubmitJob(Spec(1, 4));
  JobSpec spec = Spec(2, 2);
  spec.set_hold(true);
  AddAfter(spec, first, v1::DEPENDENCY_KIND_OK);
  const JobId job = SubmitJob(spec);

  const Explanation why = Why(job);

  EXPECT_THAT(Blockers(why), ElementsAre("held", "after", "resources"));
  EXPECT_THAT(why.changes(), IsEmpty());
  End(first);
  EXPECT_THAT(Kinds(Why(job)), ElementsAre("RELEASE_HOLD"));
  Release(job);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
}

TEST_F(ExplanationTest, ABackOffEndsByItself) {
  Join(a_, 4);
  JobSpec spec = Spec(1, 1);
  spec.mutable_run()->set_max_failures(3);
  spec.mutable_run()->set_retry_delay_us(
      absl::ToInt64Microseconds(absl::Seconds(8)));
  const JobId job = SubmitJob(spec);
  End(job, 1);

  const Explanation why = Why(job);

  EXPECT_THAT(Blockers(why), ElementsAre("back_off"));
  EXPECT_THAT(Kinds(why), ElementsAre("BACK_OFF_ENDS"));
  EXPECT_THAT(why.changes(0).text(), HasSubstr("attempt 2 starts in 8s"));
  Pass(absl::Seconds(9), {a_});
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
}

TEST_F(ExplanationTest, AStartTimeComesByItselfAndIsRemembered) {
  Join(a_, 4);
  JobSpec spec = Spec(1, 1);
  spec.set_start_in_us(absl::ToInt64Microseconds(absl::Seconds(80)));
  const JobId job = SubmitJob(spec);

  const Explanation why = Why(job);

  EXPECT_THAT(Blockers(why), ElementsAre("start_time"));
  EXPECT_THAT(why.summary(), HasSubstr("starts at "));
  EXPECT_THAT(why.changes(0).text(), HasSubstr(", in 1m20s"));
  EXPECT_THAT(Kinds(why), ElementsAre("START_TIME_COMES", "DROP_BEGIN"));
  Pass(absl::Seconds(81), {a_});
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
  EXPECT_THAT(PastKinds(Why(job, {.history = true})),
              ElementsAre("start_time"));
}

TEST_F(ExplanationTest, AHoldDoesNotHideTheBackOffNorEndIt) {
  Join(a_, 4);
  JobSpec spec = Spec(1, 1);
  spec.mutable_run()->set_max_failures(3);
  spec.mutable_run()->set_retry_delay_us(
      absl::ToInt64Microseconds(absl::Seconds(8)));
  const JobId job = SubmitJob(spec);
  End(job, 1);
  Hold(job);
  Pass(absl::Seconds(3), {a_});

  const Explanation why = Why(job);

  EXPECT_THAT(Blockers(why), ElementsAre("held", "back_off"));
  EXPECT_EQ(why.blockers(1).text(), "attempt 2 is due in 5s");
  EXPECT_THAT(Kinds(why), IsEmpty());
  EXPECT_THAT(state_->ReasonOf(Job(job)),
              HasSubstr("held by ada; attempt 2 is due in 5s"));
  Release(job);
  EXPECT_EQ(Why(job).blockers(0).text(), "attempt 2 starts in 5s");
  Pass(absl::Seconds(6), {a_});
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
}

// It is not longer than its back-off that a hold keeps it.
TEST_F(ExplanationTest, AHoldThatOutlastsTheBackOffIsAllThatKeepsTheJob) {
  Join(a_, 4);
  JobSpec spec = Spec(1, 1);
  spec.mutable_run()->set_max_failures(3);
  spec.mutable_run()->set_retry_delay_us(
      absl::ToInt64Microseconds(absl::Seconds(8)));
  const JobId job = SubmitJob(spec);
  End(job, 1);
  Hold(job);
  Pass(absl::Seconds(9), {a_});
  EXPECT_THAT(Blockers(Why(job)), ElementsAre("held"));
  Release(job);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
}

// What came free would go to the one ahead.
TEST_F(ExplanationTest, ChangesAreTrueInSpiteOfTheLine) {
  Join(a_, 4);
  const JobId holder = SubmitJob(Spec(1, 4));
  const JobId ahead = SubmitJob(Spec(1, 3));
  const JobId job = SubmitJob(Spec(2, 2));

  EXPECT_THAT(Kinds(Why(ahead)), Contains("JOB_ENDS"));
  const Explanation why = Why(job);
  EXPECT_EQ(why.ahead().jobs(), 1);
  EXPECT_THAT(FirstAhead(why), ElementsAre(ahead));
  EXPECT_THAT(Kinds(why), Not(Contains("JOB_ENDS")));

  Hold(ahead);
  EXPECT_EQ(Find(Why(job), "JOB_ENDS").text(),
            "the end of job " + holder.ToText());
  End(holder);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
}

// A node rarely has a round number of bytes.
TEST_F(ExplanationTest, AmountsOfMemoryAreWhatTheySay) {
  Registration node = Node(a_, 4);
  const int64_t bytes = (int64_t{64} << 30) - (10 << 20);
  SetResource(node.node, kMemory, Amount::FromUnits(bytes));
  Join(node);
  JobSpec spec = Spec(1, 1);
  SetResource(spec, kMemory, Amount::FromUnits(int64_t{64} << 30));

  const Explanation why = Why(SubmitJob(spec));

  EXPECT_THAT(why.summary(),
              HasSubstr("memory (most free on a node 63.9GiB of 63.9GiB)"));
  const v1::Remedy less = Find(why, "LESS_OF_RESOURCE");
  EXPECT_EQ(less.text(), "memory 65526MiB a worker instead of 64GiB");
  EXPECT_EQ(less.how(), "--memory 65526MiB");
  SetResource(spec, kMemory, Amount::FromUnits(int64_t{65526} << 20));
  EXPECT_EQ(StateOf(SubmitJob(spec)), v1::JOB_STATE_STARTING);
}

// They are noted down apart.
TEST_F(ExplanationTest, ShapesThatDifferByLittleHaveTheirOwnKeys) {
  GangRequest request{.num_workers = 1};
  request.per_worker.Set(kMemory, Amount::FromUnits(int64_t{64} << 30));
  GangRequest other = request;
  other.per_worker.Set(kMemory, Amount::FromUnits((int64_t{64} << 30) + 1));
  EXPECT_NE(ShapeKeyOf(request), ShapeKeyOf(other));
}

TEST_F(ExplanationTest, WhoWantsOtherNodesIsNotAhead) {
  Registration a = Node(a_, 4);
  SetLabels(a.node, {{"zone", "a"}});
  Registration b = Node(b_, 4);
  SetLabels(b.node, {{"zone", "b"}});
  Join(a);
  Join(b);
  SubmitJob(Spec(2, 4));
  const auto in_zone = [&](const std::string& zone) {
    JobSpec spec = Spec(1, 2);
    spec.mutable_scaling()->add_selectors("zone=" + zone);
    return SubmitJob(spec);
  };
  in_zone("a");
  const JobId b1 = in_zone("b"), b2 = in_zone("b");

  EXPECT_EQ(Why(b1).ahead().jobs(), 0);
  EXPECT_FALSE(Why(b1).ahead().more());
  EXPECT_THAT(FirstAhead(Why(b2)), ElementsAre(b1));
}

// ---- arrays ----

TEST_F(ExplanationTest, AnArrayIsExplainedByWhatItsElementsWaitFor) {
  Join(a_, 4);
  const JobId array = SubmitJob(ArraySpecOf("0-9%3", 1));
  Hold(array.Element(8));

  const Explanation why = WhyArray(array);

  EXPECT_EQ(why.job_id(), array.bytes());
  EXPECT_EQ(why.element_id(), array.Element(3).bytes());
  EXPECT_THAT(ElementTexts(why),
              ElementsAre(ElementText("array", 6, array.Element(3)),
                          ElementText("held", 1, array.Element(8))));
  EXPECT_THAT(why.summary(), HasSubstr("an array of 10 elements: 7 PENDING, 3 "
                                       "STARTING, at most 3 at once"));
  EXPECT_THAT(Blockers(why), ElementsAre("array"));
  EXPECT_THAT(Kinds(why), ElementsAre("RAISE_ARRAY_LIMIT", "ELEMENT_ENDS"));
  EXPECT_EQ(why.changes(0).how(), "--array 0-9%4");
  End(array.Element(0));
  EXPECT_EQ(StateOf(array.Element(3)), v1::JOB_STATE_STARTING);
  // Four come before it, and there is no room for four more.
  EXPECT_THAT(Kinds(Why(array.Element(7))), IsEmpty());
}

TEST_F(ExplanationTest, TheEndOfAnElementMakesRoomForTheNext) {
  Join(a_, 2);
  const JobId array = SubmitJob(ArraySpecOf("0-3%2", 1));

  const Explanation why = WhyArray(array);

  ASSERT_THAT(Blockers(why), Contains("resources"));
  ASSERT_FALSE(why.changes().empty());
  EXPECT_EQ(why.changes(0).kind(), "ELEMENT_ENDS");
  EXPECT_EQ(why.changes(0).text(), "the end of " + array.Element(0).ToText());
  End(array.Element(0));
  EXPECT_EQ(StateOf(array.Element(2)), v1::JOB_STATE_STARTING);
}

// The least that helps is one element's end, even if other jobs hold room.
TEST_F(ExplanationTest, AnArrayAtItsLimitNeedsNoMoreThanAnElementsEnd) {
  Join(a_, 9);
  const JobId unrelated = SubmitJob(Spec(1, 1));
  const JobId array = SubmitJob(ArraySpecOf("0-99%4", 2));
  SubmitJob(Spec(9, 1));

  const Explanation why = WhyArray(array);

  EXPECT_EQ(why.element_id(), array.Element(4).bytes());
  EXPECT_THAT(Kinds(why), ElementsAre("ELEMENT_ENDS"));
  EXPECT_EQ(why.changes(0).text(), "the end of " + array.Element(0).ToText());
  EXPECT_THAT(Kinds(Why(array.Element(5))), IsEmpty()) << "one comes before";
  End(unrelated);
  EXPECT_EQ(StateOf(array.Element(4)), v1::JOB_STATE_PENDING);
  End(array.Element(0));
  EXPECT_EQ(StateOf(array.Element(4)), v1::JOB_STATE_STARTING);
}

// Those of the array that have a place and no room come first.
TEST_F(ExplanationTest, AnArrayAtItsLimitAlsoWaitsForItsOwnInLine) {
  Join(a_, 2);
  const JobId holder = SubmitJob(Spec(1, 1));
  const JobId array = SubmitJob(ArraySpecOf("0-9%2", 1));
  ASSERT_EQ(StateOf(array.Element(1)), v1::JOB_STATE_PENDING);
  const JobId job = array.Element(2);

  EXPECT_THAT(Why(job).changes(), IsEmpty());
  Hold(array.Element(1));
  End(array.Element(0));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
  EXPECT_EQ(StateOf(holder), v1::JOB_STATE_STARTING);
}

// What an element's end frees goes to the next of its array, which is ahead.
TEST_F(ExplanationTest, TheNextElementIsInTheWayOfThoseBehindItsArray) {
  Join(a_, 2);
  const JobId array = SubmitJob(ArraySpecOf("0-9%2", 1));
  const JobId job = SubmitJob(Spec(1, 1));
  JobSpec dependent = Spec(1, 1);
  AddAfter(dependent, job, v1::DEPENDENCY_KIND_ANY);
  SubmitJob(dependent);

  EXPECT_THAT(Kinds(Why(job)), Not(Contains("JOB_ENDS")));
  Hold(array);
  EXPECT_THAT(Kinds(Why(job)), Contains("JOB_ENDS"));
  End(array.Element(0));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
}

// So does it to those that waited for the end of the job.
TEST_F(ExplanationTest, WhoWaitsForTheEndOfAJobIsInTheWayOfThoseBehind) {
  Join(a_, 2);
  const JobId holder = SubmitJob(Spec(1, 2));
  JobSpec spec = Spec(1, 2);
  AddAfter(spec, holder, v1::DEPENDENCY_KIND_ANY);
  const JobId next = SubmitJob(spec);
  const JobId job = SubmitJob(Spec(1, 2));

  EXPECT_THAT(Kinds(Why(job)), Not(Contains("JOB_ENDS")));
  // It is told once what it waits for.
  const Explanation why = Why(next);
  EXPECT_EQ(why.changes(0).text(), "job " + holder.ToText() + " ending");
  EXPECT_THAT(why.changes(), SizeIs(1));
  End(holder);
  EXPECT_EQ(StateOf(next), v1::JOB_STATE_STARTING);
}

TEST_F(ExplanationTest, ElementsThatWaitForRoomAreCounted) {
  Join(a_, 2);
  const JobId array = SubmitJob(ArraySpecOf("0-9999", 1));

  const Explanation why = WhyArray(array);

  EXPECT_THAT(ElementTexts(why),
              ElementsAre(ElementText("resources", 9'998, array.Element(2))));
  EXPECT_EQ(why.element_id(), array.Element(2).bytes());
  EXPECT_THAT(Find(why, "MORE_NODES").text(),
              HasSubstr("1 more node like node-"));
  EXPECT_EQ(why.ahead().jobs(), 0);
}

TEST_F(ExplanationTest, AnArrayOfWhichNoneWaitsSaysSo) {
  Join(a_, 2);
  const JobId array = SubmitJob(ArraySpecOf("3,5", 1));

  const Explanation why = WhyArray(array);

  EXPECT_EQ(why.state(), v1::JOB_STATE_STARTING);
  EXPECT_THAT(ElementTexts(why), IsEmpty());
  EXPECT_THAT(why.blockers(), IsEmpty());
  EXPECT_EQ(why.summary(), "an array of 2 elements: 2 STARTING");
}

TEST_F(ExplanationTest, AnArrayMayWaitForOthers) {
  Join(a_, 2);
  const JobId first = SubmitJob(Spec(1, 1));
  JobSpec spec = ArraySpecOf("0-4%2", 1);
  AddAfter(spec, first, v1::DEPENDENCY_KIND_ANY);
  const JobId array = SubmitJob(spec);

  const Explanation why = WhyArray(array);

  EXPECT_THAT(ElementTexts(why),
              ElementsAre(ElementText("after", 5, std::nullopt)));
  EXPECT_EQ(why.element_id(), array.Element(0).bytes());
  EXPECT_EQ(why.changes(0).text(),
            absl::StrCat("job ", first.ToText(), " ending"));
}

// ---- the past ----

TEST_F(ExplanationTest, TellsOfThePastAlsoAfterARestart) {
  Join(a_, 4);
  const JobId holder = SubmitJob(Spec(1, 4));
  const absl::Time before = time_.Wall();
  time_.AdvanceBy(absl::Seconds(1));
  const JobId job = SubmitJob(Spec(1, 2));
  Pass(absl::Seconds(2), {a_});
  const absl::Time then = time_.Wall();
  time_.AdvanceBy(absl::Seconds(1));
  End(holder);
  ASSERT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
  Run(job);
  Pass(absl::Seconds(8), {a_});
  End(job);
  Reload();

  EXPECT_THAT(Why(job, {.at = before}).summary(), HasSubstr("submitted later"));
  EXPECT_THAT(Why(job, {.at = then}).summary(),
              HasSubstr("it waited: needs 1 x {CPU 2}"));
  EXPECT_THAT(Why(job, {.at = time_.Wall()}).summary(),
              HasSubstr("it had ended"));
  EXPECT_THAT(Why(job, {.at = {}, .history = true}).history(), SizeIs(1));
}

// Others that ask for the same stood in line all the time, which is not why it
// waited.
TEST_F(ExplanationTest, TellsWhatKeptTheJobItselfInThePast) {
  Join(a_, 4);
  const JobId holder = SubmitJob(Spec(1, 4));
  SubmitJob(Spec(1, 2));  // in line
  JobSpec held_spec = Spec(1, 2);
  held_spec.set_hold(true);
  const JobId held = SubmitJob(held_spec);
  JobSpec after_spec = Spec(1, 2);
  AddAfter(after_spec, holder, v1::DEPENDENCY_KIND_ANY);
  const JobId after = SubmitJob(after_spec);
  Pass(absl::Seconds(20), {a_});
  const absl::Time early = time_.Wall();
  const auto at = [&](const JobId& job, absl::Time when) {
    return Why(job, {.at = when});
  };

  EXPECT_EQ(at(held, early).summary(), "it waited: held");
  EXPECT_THAT(PastKinds(at(held, early)), ElementsAre("held"));
  EXPECT_EQ(
      at(after, early).summary(),
      absl::StrCat("it waited: job ", holder.ToText(), " had to end first"));
  EXPECT_THAT(PastKinds(at(after, early)), ElementsAre("after"));

  time_.AdvanceBy(absl::Seconds(1));
  Release(held);
  const absl::Time released = time_.Wall();
  Pass(absl::Seconds(20), {a_});
  EXPECT_THAT(at(held, time_.Wall()).summary(),
              HasSubstr("it waited: needs 1 x {CPU 2}"));
  EXPECT_THAT(at(held, early).summary(), "it waited: held");
  const Explanation history = Why(held, {.at = {}, .history = true});
  EXPECT_THAT(PastKinds(history), ElementsAre("held", "resources"));
  EXPECT_EQ(history.history(0).until_us(), absl::ToUnixMicros(released));
  // Not since when the others wait.
  EXPECT_EQ(history.history(1).since_us(), absl::ToUnixMicros(released));
  EXPECT_EQ(history.history(1).until_us(), 0);

  End(holder);
  ASSERT_EQ(StateOf(held), v1::JOB_STATE_STARTING);
  ASSERT_EQ(StateOf(after), v1::JOB_STATE_PENDING);
  const absl::Time started = time_.Wall();
  Pass(absl::Seconds(20), {a_});
  EXPECT_THAT(at(held, time_.Wall()).summary(),
              HasSubstr("it waited for nothing: an attempt of it had begun"));
  EXPECT_THAT(PastKinds(at(held, time_.Wall())), IsEmpty());
  EXPECT_THAT(PastKinds(Why(held, {.at = {}, .history = true})),
              ElementsAre("held", "resources"));
  const Explanation line = Why(after, {.at = {}, .history = true});
  EXPECT_THAT(PastKinds(line), ElementsAre("after", "resources"));
  EXPECT_EQ(line.history(0).until_us(), absl::ToUnixMicros(started));
}

TEST_F(ExplanationTest, TellsOfBackOffAndOfTheArraysLimitInThePast) {
  Join(a_, 2);
  JobSpec spec = ArraySpecOf("0-1%1", 2);
  spec.mutable_run()->set_max_failures(3);
  spec.mutable_run()->set_retry_delay_us(
      absl::ToInt64Microseconds(absl::Seconds(30)));
  const JobId array = SubmitJob(spec);
  const JobId first = array.Element(0);
  SubmitJob(Spec(1, 2));
  Pass(absl::Seconds(20), {a_});
  const absl::Time running = time_.Wall();
  time_.AdvanceBy(absl::Seconds(1));
  End(first, 1);
  Pass(absl::Seconds(20), {a_});
  const absl::Time backing_off = time_.Wall();
  Pass(absl::Seconds(20), {a_});
  Reload();

  EXPECT_THAT(Why(first, {.at = running}).summary(),
              HasSubstr("an attempt of it had begun"));
  EXPECT_EQ(Why(first, {.at = backing_off}).summary(),
            "it waited: its next attempt was not due yet");
  EXPECT_EQ(Why(array.Element(1), {.at = running}).summary(),
            "it waited: its array ran as many elements as it may");
  EXPECT_THAT(WhyArray(array, {.at = backing_off}).summary(),
              HasSubstr(absl::StrCat("of ", array.ToText(), ".")));
  EXPECT_THAT(WhyArray(array, {.at = backing_off}).elements(), IsEmpty());
}

TEST_F(ExplanationTest, SaysWhatIsNotRememberedOfThePast) {
  limits_.history.wait_reasons.age_max = absl::Seconds(30);
  Reload();
  Join(a_, 2);
  const JobId holder = SubmitJob(Spec(1, 2));
  const JobId job = SubmitJob(Spec(1, 2));
  Pass(absl::Seconds(20), {a_});
  const absl::Time then = time_.Wall();
  time_.AdvanceBy(absl::Seconds(1));
  End(holder);
  Pass(absl::Seconds(60), {a_});

  EXPECT_THAT(Why(job, {.at = then}).summary(),
              HasSubstr("it waited: it stood in line; why there was no room is "
                        "not remembered"));
  EXPECT_THAT(PastKinds(Why(job, {.at = {}, .history = true})),
              ElementsAre("resources"));
}

}  // namespace
}  // namespace cohort::head

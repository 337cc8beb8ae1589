// What is shown of orphans.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "head/explain/explanation.h"
#include "head/explain/testing/world.h"
#include "head/state/testing/orphan_fixture.h"
#include "head/testing/job_specs.h"

namespace cohort::head {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class OrphansExplainedTest : public OrphansTest {
 protected:
  JobId SubmitArray(const std::string& array) {
    JobSpec spec = OneWorker();
    SetCommand(spec, {"train"});
    spec.set_array(array);
    SetResource(spec, kCpu, Amount::FromUnits(1));
    Transition transition;
    const JobId id = *state_->SubmitJob(Key(), "default", spec, transition);
    Submit(std::move(transition));
    return id;
  }

  Explainer explainer_{limits_.history.wait_reasons, time_, {}};
};

// There is no job to list, but somebody has to say what becomes of it.
TEST_F(OrphansExplainedTest, ExplainNamesItAmongThoseThatHoldWhatAnotherLacks) {
  Backup();
  Join(kNode);
  const JobId job = NewJob();
  const v1::ObservedPlace running = Run(job, kNode);
  Restore();
  Join(kNode, {running});
  Settle();
  const JobId other = NewJob(/*cpus=*/2);
  const v1::ExplainJobResponse waits =
      explainer_.Explain(*state_, Job(other), /*read_only=*/false);
  ASSERT_THAT(waits.blockers(), SizeIs(1));
  ASSERT_THAT(waits.blockers(0).holders(), SizeIs(1));
  EXPECT_EQ(HolderText(waits.blockers(0).holders(0)),
            HolderText(kCpu, job, Amount::FromUnits(1), 1));
}

// Whether the store knows of the attempt or not.
TEST_F(OrphansExplainedTest, ExplainSaysWhatAPersonMaySayOfIt) {
  Join(kNode);
  const JobId known = NewJob(2);
  const v1::ObservedPlace one = Run(known, kNode);
  const JobId job = NewJob(2);
  Backup();
  Join(kOtherNode);
  const v1::ObservedPlace two = Run(job, kOtherNode);
  Restore();
  Join(kNode, {one});
  Join(kOtherNode, {two});
  Settle();

  const v1::ExplainJobResponse runs =
      explainer_.Explain(*state_, Job(known), /*read_only=*/false);
  EXPECT_THAT(runs.summary(),
              AllOf(HasSubstr("cohort adopt " + AttemptOf(one).ToHex()),
                    HasSubstr("cohort end " + AttemptOf(one).ToHex())));
  const v1::ExplainJobResponse waits =
      explainer_.Explain(*state_, Job(job), /*read_only=*/false);
  EXPECT_THAT(waits.summary(),
              HasSubstr("cohort end " + AttemptOf(two).ToHex()));
  ASSERT_THAT(waits.blockers(), SizeIs(1));
  EXPECT_EQ(waits.blockers(0).kind(), "orphan") << "it has its room";
  ASSERT_THAT(waits.changes(), SizeIs(1)) << "it cannot be adopted";
  EXPECT_EQ(waits.changes(0).how(), "cohort end " + AttemptOf(two).ToHex());
}

TEST_F(OrphansExplainedTest, PlacesOfAnArrayThatAreOrphansAreCounted) {
  Join(kNode, {}, 4);
  const JobId array = SubmitArray("0-3%1");
  const v1::ObservedPlace zero = Run(array.Element(0), kNode);
  Backup();
  Restore();
  Join(kNode, {zero}, 4);
  Settle();

  const v1::ExplainJobResponse why =
      explainer_.Explain(*state_, Job(array.Element(1)), false);

  ASSERT_THAT(why.blockers(), SizeIs(1));
  EXPECT_EQ(why.blockers(0).text(),
            "1 element of " + array.ToText() +
                " runs or is about to, its limit; of these 1 is an orphan "
                "since the store was restored: `cohort status` lists orphans, "
                "`cohort adopt` and `cohort end` speak for them");
  ASSERT_THAT(why.changes(), SizeIs(1)) << "nobody knows when it ends";
  EXPECT_EQ(why.changes(0).kind(), "RAISE_ARRAY_LIMIT");
  EXPECT_EQ(why.changes(0).how(), "--array 0-3%2");
  EXPECT_THAT(explainer_.ExplainArray(*state_, array, false).summary(),
              HasSubstr("of these 1 is an orphan"));
}

// Begun after the backup, so that its element waits for it here.
TEST_F(OrphansExplainedTest, AnElementThatWaitsForItsOrphanIsCounted) {
  Join(kNode);
  const JobId array = SubmitArray("0-3%1");
  const v1::ObservedPlace zero = Run(array.Element(0), kNode);
  Backup();
  Say(kNode, Ended(zero, 0));
  const v1::ObservedPlace one = Run(array.Element(1), kNode);
  Restore();
  Join(kNode, {Ended(zero, 0), one});
  Settle();

  const v1::ExplainJobResponse why =
      explainer_.ExplainArray(*state_, array, false);

  EXPECT_THAT(ElementTexts(why),
              ElementsAre(ElementText("array", 2, array.Element(2)),
                          ElementText("orphan", 1, array.Element(1))));
}

}  // namespace
}  // namespace cohort::head

#include "head/state/eligibility.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "head/testing/job_specs.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class EligibilityTest : public ::testing::Test {
 protected:
  const JobRecord& Add(JobRecord job) {
    const JobId id = job.id;
    job.sequence = ++sequence_;
    jobs_.Add(std::move(job));
    eligibility_.Added(*jobs_.Find(id));
    return *jobs_.Find(id);
  }
  const JobRecord& AddJob(
      const std::vector<std::pair<JobId, DependencyKind>>& after = {}) {
    JobRecord job;
    job.id = JobId::New(random_);
    for (const auto& [other, kind] : after) {
      AddAfter(job.spec.Own(), other, kind);
    }
    return Add(std::move(job));
  }
  JobId AddArray(const std::string& spec, uint32_t size) {
    ArrayRecord array;
    array.id = JobId::New(random_);
    array.spec.Own().set_array(spec);
    jobs_.AddArray(array);
    for (uint32_t i = 0; i < size; ++i) {
      JobRecord job;
      job.id = array.id.Element(i);
      job.spec = array.spec;
      Add(std::move(job));
    }
    return array.id;
  }
  bool Admit(const JobId& id) { return eligibility_.Admit(*jobs_.Find(id)); }
  void Start(const JobId& id) {
    jobs_.Move(id, v1::JOB_STATE_STARTING);
    jobs_.Move(id, v1::JOB_STATE_RUNNING);
  }
  void End(const JobId& id, JobState state) {
    jobs_.Move(id, state);
    eligibility_.Ended(*jobs_.Find(id));
  }

  SeededRandom random_{7};
  JobTable jobs_;
  Eligibility eligibility_{jobs_};
  uint64_t sequence_ = 0;
};

TEST_F(EligibilityTest, AdmitsWhatNothingKeeps) {
  const JobRecord& job = AddJob();
  EXPECT_TRUE(eligibility_.Admit(job));
  EXPECT_EQ(eligibility_.ReasonOf(job), "");
}

TEST_F(EligibilityTest, KeepsAHeldJobAndNamesWhoHoldsIt) {
  const JobId id = AddJob().id;
  jobs_.FindMutable(id)->held = true;
  jobs_.FindMutable(id)->held_by = "ada";
  EXPECT_FALSE(Admit(id));
  EXPECT_EQ(eligibility_.ReasonOf(*jobs_.Find(id)), "held by ada");
}

// DP-1
TEST_F(EligibilityTest, NamesWhoMayStartOnceAllOthersHaveEnded) {
  const JobId a = AddJob().id;
  const JobId b = AddJob().id;
  const JobId c =
      AddJob({{a, v1::DEPENDENCY_KIND_OK}, {b, v1::DEPENDENCY_KIND_ANY}}).id;
  EXPECT_FALSE(Admit(c));
  EXPECT_THAT(eligibility_.ReasonOf(*jobs_.Find(c)),
              HasSubstr(absl::StrCat(a.ToText(), ", which is PENDING")));
  Start(a);
  End(a, v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(eligibility_.TakeReady(), IsEmpty());
  End(b, v1::JOB_STATE_FAILED);
  EXPECT_THAT(eligibility_.TakeReady(), ElementsAre(c));
  EXPECT_TRUE(Admit(c));
  EXPECT_FALSE(eligibility_.TakeBroken().has_value());
}

TEST_F(EligibilityTest, TellsWhoCanNeverStart) {
  const JobId a = AddJob().id;
  const JobId b = AddJob({{a, v1::DEPENDENCY_KIND_OK}}).id;
  End(a, v1::JOB_STATE_STOPPED);
  const auto broken = eligibility_.TakeBroken();
  ASSERT_TRUE(broken.has_value());
  EXPECT_EQ(broken->who, b);
  EXPECT_EQ(broken->dependency, a);
  EXPECT_FALSE(eligibility_.HasBroken());
}

// EL-2
TEST_F(EligibilityTest, AdmitsNoMoreElementsThanTheArrayAllows) {
  const JobId array = AddArray("0-3%2", 4);
  EXPECT_TRUE(Admit(array.Element(0)));
  EXPECT_TRUE(Admit(array.Element(1)));
  EXPECT_FALSE(Admit(array.Element(2)));
  EXPECT_FALSE(Admit(array.Element(3)));
  // Who is to start again keeps its place.
  EXPECT_TRUE(Admit(array.Element(0)));
  // Two places in one decision are two elements, not one twice.
  eligibility_.Withdraw(*jobs_.Find(array.Element(0)));
  End(array.Element(1), v1::JOB_STATE_STOPPED);
  EXPECT_THAT(eligibility_.TakeReady(),
              ElementsAre(array.Element(2), array.Element(3)));
  EXPECT_TRUE(Admit(array.Element(2)));
  EXPECT_TRUE(Admit(array.Element(3)));
  EXPECT_FALSE(Admit(array.Element(0)));
}

TEST_F(EligibilityTest, CountsElementsThatRunWhenItIsBuiltFromRows) {
  const JobId array = AddArray("0-2%1", 3);
  EXPECT_TRUE(Admit(array.Element(1)));
  Start(array.Element(1));
  Eligibility again(jobs_);
  for (uint32_t i = 0; i < 3; ++i) again.Added(*jobs_.Find(array.Element(i)));
  EXPECT_FALSE(again.Admit(*jobs_.Find(array.Element(0))));
  EXPECT_THAT(again.ReasonOf(*jobs_.Find(array.Element(0))),
              HasSubstr("its limit"));
}

}  // namespace
}  // namespace cohort::head

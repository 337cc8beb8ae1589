#include "head/state/job_gates.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/secret_box.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "head/testing/job_specs.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class JobGatesTest : public ::testing::Test {
 protected:
  const JobRecord& Add(JobRecord job) {
    const JobId id = job.id;
    job.row.set_sequence(++sequence_);
    jobs_.Add(std::move(job));
    gates_.Added(*jobs_.Find(id));
    return *jobs_.Find(id);
  }
  const JobRecord& AddJob(
      const std::vector<std::pair<JobId, DependencyKind>>& after = {}) {
    JobRecord job(JobId::New(random_));
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
      JobRecord job(array.id.Element(i));
      job.spec = array.spec;
      Add(std::move(job));
    }
    return array.id;
  }
  bool Pass(const JobId& id) { return gates_.Pass(*jobs_.Find(id)); }
  // Of what comes first.
  std::string WhyOf(const JobId& id) {
    return gates_.WaitsOf(*jobs_.Find(id)).at(0).text;
  }
  void Start(const JobId& id) {
    jobs_.Move(id, v1::JOB_STATE_STARTING);
    jobs_.Move(id, v1::JOB_STATE_RUNNING);
  }
  void End(const JobId& id, JobState state) {
    jobs_.Move(id, state);
    gates_.Ended(*jobs_.Find(id));
  }

  SeededRandom random_{7};
  JobTable jobs_;
  OrphanTable orphans_;
  ManualExecutor time_;
  Deadlines deadlines_{absl::Milliseconds(200), time_};
  JobGates gates_{jobs_, orphans_, deadlines_, time_};
  uint64_t sequence_ = 0;
};

TEST_F(JobGatesTest, AdmitsWhatNothingKeeps) {
  const JobRecord& job = AddJob();
  EXPECT_TRUE(gates_.Pass(job));
  EXPECT_THAT(gates_.WaitsOf(job), IsEmpty());
}

TEST_F(JobGatesTest, KeepsAHeldJobAndNamesWhoHoldsIt) {
  const JobId id = AddJob().id;
  jobs_.FindMutable(id)->row.set_held(true);
  jobs_.FindMutable(id)->row.set_held_by("ada");
  EXPECT_FALSE(Pass(id));
  EXPECT_EQ(WhyOf(id), "held by ada");
}

// DP-1
TEST_F(JobGatesTest, NamesWhoMayStartOnceAllOthersHaveEnded) {
  const JobId a = AddJob().id;
  const JobId b = AddJob().id;
  const JobId c =
      AddJob({{a, v1::DEPENDENCY_KIND_OK}, {b, v1::DEPENDENCY_KIND_ANY}}).id;
  EXPECT_FALSE(Pass(c));
  EXPECT_THAT(WhyOf(c),
              HasSubstr(absl::StrCat(a.ToText(), ", which is PENDING")));
  Start(a);
  End(a, v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(gates_.TakeOpened(), IsEmpty());
  End(b, v1::JOB_STATE_FAILED);
  EXPECT_THAT(gates_.TakeOpened(), ElementsAre(c));
  EXPECT_TRUE(Pass(c));
  EXPECT_FALSE(gates_.after().HasBroken());
}

TEST_F(JobGatesTest, TellsWhoCanNeverStart) {
  const JobId a = AddJob().id;
  const JobId b = AddJob({{a, v1::DEPENDENCY_KIND_OK}}).id;
  End(a, v1::JOB_STATE_STOPPED);
  const auto broken = gates_.after().TakeBroken();
  ASSERT_TRUE(broken.has_value());
  EXPECT_EQ(broken->who, b);
  EXPECT_EQ(broken->dependency, a);
  EXPECT_FALSE(gates_.after().HasBroken());
}

// EL-2
TEST_F(JobGatesTest, AdmitsNoMoreElementsThanTheArrayAllows) {
  const JobId array = AddArray("0-3%2", 4);
  EXPECT_TRUE(Pass(array.Element(0)));
  EXPECT_TRUE(Pass(array.Element(1)));
  EXPECT_FALSE(Pass(array.Element(2)));
  EXPECT_FALSE(Pass(array.Element(3)));
  // Who is to start again keeps its place.
  EXPECT_TRUE(Pass(array.Element(0)));
  // Two places in one decision are two elements, not one twice.
  gates_.array().KeptBefore(*jobs_.Find(array.Element(0)));
  End(array.Element(1), v1::JOB_STATE_STOPPED);
  EXPECT_THAT(gates_.TakeOpened(),
              ElementsAre(array.Element(2), array.Element(3)));
  EXPECT_TRUE(Pass(array.Element(2)));
  EXPECT_TRUE(Pass(array.Element(3)));
  EXPECT_FALSE(Pass(array.Element(0)));
}

// EL-2
TEST_F(JobGatesTest, WhoIsKeptAgainGivesItsPlaceToTheNextUnlessItRuns) {
  const JobId array = AddArray("0-2%1", 3);
  EXPECT_TRUE(Pass(array.Element(0)));
  EXPECT_FALSE(Pass(array.Element(1)));
  jobs_.FindMutable(array.Element(0))->row.set_held(true);
  EXPECT_FALSE(Pass(array.Element(0)));
  EXPECT_THAT(gates_.TakeOpened(), ElementsAre(array.Element(1)));
  EXPECT_TRUE(Pass(array.Element(1)));
  gates_.array().Occupy(*jobs_.Find(array.Element(1)));
  jobs_.FindMutable(array.Element(1))->row.set_held(true);
  EXPECT_FALSE(Pass(array.Element(1)));
  EXPECT_FALSE(Pass(array.Element(2)));
  EXPECT_THAT(gates_.TakeOpened(), IsEmpty());
  gates_.array().Vacate(*jobs_.Find(array.Element(1)));
  EXPECT_FALSE(Pass(array.Element(1)));
  EXPECT_THAT(gates_.TakeOpened(), ElementsAre(array.Element(2)));
}

TEST_F(JobGatesTest, WhoIsAskedAndKeptLeavesThePlaceToTheNext) {
  const JobId array = AddArray("0-2%1", 3);
  EXPECT_TRUE(Pass(array.Element(0)));
  EXPECT_FALSE(Pass(array.Element(1)));
  EXPECT_FALSE(Pass(array.Element(2)));
  End(array.Element(0), v1::JOB_STATE_STOPPED);
  jobs_.FindMutable(array.Element(1))->row.set_held(true);
  EXPECT_THAT(gates_.TakeOpened(), ElementsAre(array.Element(1)));
  EXPECT_FALSE(Pass(array.Element(1)));
  EXPECT_THAT(gates_.TakeOpened(), ElementsAre(array.Element(2)));
}

TEST_F(JobGatesTest, CountsElementsThatRunWhenItIsBuiltFromRows) {
  const JobId array = AddArray("0-2%1", 3);
  EXPECT_TRUE(Pass(array.Element(1)));
  Start(array.Element(1));
  JobGates again(jobs_, orphans_, deadlines_, time_);
  for (uint32_t i = 0; i < 3; ++i) again.Added(*jobs_.Find(array.Element(i)));
  EXPECT_FALSE(again.Pass(*jobs_.Find(array.Element(0))));
  EXPECT_THAT(again.WaitsOf(*jobs_.Find(array.Element(0))).at(0).text,
              HasSubstr("its limit"));
}

TEST_F(JobGatesTest, AJobWhoseSecretsAreSealedByAnotherWaits) {
  const auto box = SecretBox::FromText(std::string(64, '1'));
  const auto other = SecretBox::FromText(std::string(64, '2'));
  COHORT_ASSERT_OK(box);
  COHORT_ASSERT_OK(other);
  JobRecord job(JobId::New(random_));
  (*job.spec.Own().mutable_launch()->mutable_secrets())["KEY"] =
      other->Seal("sesame", random_);
  const JobId id = Add(std::move(job)).id;
  const JobId plain = AddJob().id;
  ArrayRecord array;
  array.id = JobId::New(random_);
  array.spec = jobs_.Find(id)->spec;
  jobs_.AddArray(array);
  JobGates gates(jobs_, orphans_, deadlines_, time_, &*box);
  EXPECT_TRUE(gates.Pass(*jobs_.Find(plain)));
  EXPECT_FALSE(gates.Pass(*jobs_.Find(id)));
  EXPECT_EQ(gates.PhaseOf(*jobs_.Find(id)), v1::WAIT_KIND_SECRETS);
  const std::vector<Wait> waits = gates.WaitsOf(*jobs_.Find(id));
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_THAT(waits[0].text, HasSubstr("its secrets"));
  EXPECT_THAT(waits[0].lifted_by.at(0).text, HasSubstr("secrets.key"));
  EXPECT_EQ(gates.ElementsOf(array.id, 5).at(0).second.count, 5);
  JobGates opened(jobs_, orphans_, deadlines_, time_, &*other);
  EXPECT_TRUE(opened.Pass(*jobs_.Find(id)));
}

}  // namespace
}  // namespace cohort::head

#include "head/waiting_line.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"

namespace cohort::head {
namespace {

class WaitingLineTest : public ::testing::Test {
 protected:
  JobRecord Job(uint64_t sequence, int workers) {
    JobRecord job;
    job.id = JobId::New(random_);
    job.sequence = sequence;
    job.spec.num_workers = workers;
    return job;
  }

  SeededRandom random_{1};
  WaitingLine line_;
};

TEST_F(WaitingLineTest, GoesInOrderOfSubmission) {
  const JobRecord second = Job(2, 1), first = Job(1, 2), third = Job(3, 1);
  line_.Add(second);
  line_.Add(first);
  line_.Add(third);
  EXPECT_EQ(line_.Next(), first.id);
  line_.Remove(first);
  EXPECT_EQ(line_.Next(), second.id);
  line_.Remove(second);
  EXPECT_EQ(line_.Next(), third.id);
  line_.Remove(third);
  EXPECT_EQ(line_.Next(), std::nullopt);
  EXPECT_EQ(line_.size(), 0);
}

TEST_F(WaitingLineTest, PassesOverRequestsThatFailedUntilSomethingIsFreed) {
  const JobRecord big = Job(1, 100), small = Job(2, 1), big_too = Job(3, 100);
  for (const JobRecord& job : {big, small, big_too}) line_.Add(job);
  line_.Refuse(big, {.reason = "needs 100", .never_fits_known_nodes = false});
  EXPECT_EQ(line_.Next(), small.id);
  line_.Remove(small);
  EXPECT_EQ(line_.Next(), std::nullopt);  // one failure for both
  EXPECT_EQ(line_.ReasonOf(big_too), "needs 100");
  line_.Freed();
  EXPECT_EQ(line_.Next(), big.id);
}

TEST_F(WaitingLineTest, DoesNotTryANewJobWhoseRequestHasFailed) {
  const JobRecord big = Job(1, 100), later = Job(2, 100);
  line_.Add(big);
  line_.Refuse(big, {.reason = "no", .never_fits_known_nodes = true});
  line_.Add(later);
  EXPECT_EQ(line_.Next(), std::nullopt);
  line_.Remove(big);
  EXPECT_EQ(line_.Next(), std::nullopt);
}

}  // namespace
}  // namespace cohort::head

#include "head/state/waiting_line.h"

#include <optional>
#include <utility>
#include <variant>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "head/testing/job_specs.h"

namespace cohort::head {
namespace {

using ::testing::HasSubstr;

class WaitingLineTest : public ::testing::Test {
 protected:
  JobRecord Job(uint64_t sequence, int workers) {
    JobRecord job(JobId::New(random_));
    job.row.set_sequence(sequence);
    job.spec.Own().mutable_scaling()->set_num_workers(workers);
    SetResource(job.spec.Own(), kCpu, Amount::FromUnits(1));
    return job;
  }

  void Refuse(const JobRecord& job) {
    Placement placement = PlaceGang(nodes_, RequestOf(*job.spec));
    auto* refusal = std::get_if<Refusal>(&placement);
    ASSERT_NE(refusal, nullptr);
    line_.Refuse(AskId{job.id}, std::move(*refusal));
  }

  // The first job that may be tried.
  std::optional<JobId> Next() const {
    const std::optional<AskId> next = line_.Next();
    if (!next.has_value()) return std::nullopt;
    EXPECT_TRUE(next->IsJob());
    return next->job;
  }

  // A node that has these CPUs free of 200.
  void PutNode(int cpus) {
    NodeSnapshot node;
    node.id = node_;
    node.name = "a";
    node.total.Set(kCpu, Amount::FromUnits(200));
    node.available.Set(kCpu, Amount::FromUnits(cpus));
    nodes_.Put(node);
  }
  void Freed() { line_.Freed(nodes_.TakeGains(), nodes_); }

  SeededRandom random_{1};
  const NodeId node_ = NodeId::New(random_);
  PlacementIndex nodes_;
  WaitingLine line_;
};

TEST_F(WaitingLineTest, GoesInOrderOfSubmission) {
  const JobRecord second = Job(2, 1), first = Job(1, 2), third = Job(3, 1);
  line_.Add(second);
  line_.Add(first);
  line_.Add(third);
  EXPECT_EQ(Next(), first.id);
  line_.Remove(first);
  EXPECT_EQ(Next(), second.id);
  line_.Remove(second);
  EXPECT_EQ(Next(), third.id);
  line_.Remove(third);
  EXPECT_EQ(Next(), std::nullopt);
  EXPECT_EQ(line_.size(), 0);
}

TEST_F(WaitingLineTest, HigherPrioritiesGoFirst) {
  JobRecord early = Job(1, 1), late = Job(2, 2), urgent = Job(3, 1);
  urgent.spec.Own().set_priority(7);
  late.spec.Own().set_priority(-1);
  for (const JobRecord& job : {late, early, urgent}) line_.Add(job);
  EXPECT_EQ(Next(), urgent.id);
  line_.Remove(urgent);
  EXPECT_EQ(Next(), early.id);
  line_.Remove(early);
  EXPECT_EQ(Next(), late.id);
}

TEST_F(WaitingLineTest, SlotsOfARunningJobGoBeforeNewJobsOfItsPriority) {
  const JobRecord early = Job(1, 1), runs = Job(2, 4);
  JobRecord urgent = Job(3, 2);
  urgent.spec.Own().set_priority(7);
  for (const JobRecord& job : {early, urgent}) line_.Add(job);
  GangRequest one = RequestOf(*runs.spec);
  one.num_workers = 1;
  for (const int slot : {3, 1}) line_.AddSlots(runs, slot, one);
  EXPECT_FALSE(line_.Contains(runs)) << "it runs";
  EXPECT_EQ(Next(), urgent.id);
  line_.Remove(urgent);
  for (const int slot : {1, 3}) {
    const AskId ask{runs.id, slot};
    EXPECT_EQ(line_.Next(), ask);
    EXPECT_EQ(line_.RequestFor(ask), one);
    line_.Remove(runs, slot);
  }
  EXPECT_EQ(Next(), early.id);
}

TEST_F(WaitingLineTest, PassesOverRequestsThatFailedUntilTheyMayFit) {
  PutNode(10);
  Freed();
  const JobRecord big = Job(1, 60), small = Job(2, 1), big_too = Job(3, 60);
  for (const JobRecord& job : {big, small, big_too}) line_.Add(job);
  Refuse(big);
  EXPECT_EQ(Next(), small.id);
  line_.Remove(small);
  EXPECT_EQ(Next(), std::nullopt);  // one failure for both
  EXPECT_THAT(line_.ReasonOf(big_too, nodes_),
              HasSubstr("room for 10 of 60 workers"));
  PutNode(59);
  Freed();
  EXPECT_EQ(Next(), std::nullopt);  // WL-2
  EXPECT_THAT(line_.ReasonOf(big_too, nodes_),
              HasSubstr("room for 59 of 60 workers"));
  PutNode(60);
  Freed();
  EXPECT_EQ(Next(), big.id);
}

TEST_F(WaitingLineTest, DoesNotTryANewJobWhoseRequestHasFailed) {
  const JobRecord big = Job(1, 100), later = Job(2, 100);
  line_.Add(big);
  Refuse(big);
  line_.Add(later);
  EXPECT_EQ(Next(), std::nullopt);
  line_.Remove(big);
  EXPECT_EQ(Next(), std::nullopt);
}

TEST_F(WaitingLineTest, TextsThatDoNotParseAreRefusedWithTheirFault) {
  JobRecord job = Job(1, 1);
  job.spec.Own().mutable_scaling()->add_selectors("zone=");
  line_.Add(job);
  Refuse(job);
  EXPECT_THAT(line_.ReasonOf(job, nodes_), HasSubstr("column 6"));
}

TEST_F(WaitingLineTest, KnowsWhoIsAheadAcrossShapes) {
  const JobRecord a = Job(1, 1), b = Job(2, 2), c = Job(3, 1), d = Job(4, 3);
  JobRecord urgent = Job(5, 2);
  urgent.spec.Own().set_priority(7);
  for (const JobRecord& job : {a, b, c, d, urgent}) line_.Add(job);

  const auto all = [](const GangRequest&) { return true; };
  EXPECT_EQ(line_.AheadOf(urgent, 2, all), Ahead());
  EXPECT_EQ(line_.AheadOf(a, 2, all),
            (Ahead{.jobs = 1, .more = false, .first = {urgent.id}}));
  EXPECT_EQ(line_.AheadOf(d, 2, all),
            (Ahead{.jobs = 4, .more = false, .first = {urgent.id, a.id}}));
  // One that is held would stand there.
  EXPECT_EQ(line_.AheadOf(Job(6, 9), 1, all).jobs, 5);

  const auto of_two = [](const GangRequest& request) {
    return request.num_workers == 2;
  };
  EXPECT_EQ(line_.AheadOf(d, 2, of_two),
            (Ahead{.jobs = 2, .more = false, .first = {urgent.id, b.id}}));
  const auto first = line_.FirstAheadOf(WaitingLine::PlaceOf(d), 9, of_two);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[1].job, b.id);
  EXPECT_EQ(*first[1].request, RequestOf(*b.spec));
  EXPECT_EQ(line_.FirstAheadOf(WaitingLine::PlaceOf(d), 1, all).size(), 2u);
  const auto three = line_.FirstAheadOf(WaitingLine::PlaceOf(d), 9, all, 3);
  ASSERT_EQ(three.size(), 3u);
  EXPECT_EQ(three[0].job, urgent.id);
  EXPECT_EQ(three[1].job, a.id);
  EXPECT_EQ(three[2].job, b.id);
}

TEST_F(WaitingLineTest, CountsThoseOfAStretchOfSequences) {
  const JobRecord a = Job(1, 1), b = Job(2, 1), c = Job(4, 1), d = Job(5, 1);
  for (const JobRecord& job : {a, b, c, d}) line_.Add(job);

  const auto some = line_.CountSome(RequestOf(*a.spec), 0, 2, 5);
  EXPECT_EQ(some.jobs, 2);
  EXPECT_EQ(some.first, b.id);
  EXPECT_EQ(line_.CountSome(RequestOf(*a.spec), 0, 6, 9).jobs, 0);
  EXPECT_EQ(line_.CountSome(RequestOf(*a.spec), 1, 1, 9).jobs, 0);
}

TEST_F(WaitingLineTest, KnowsWhatNeverFitsAsTheNodesAreNow) {
  const JobRecord big = Job(1, 300), small = Job(2, 2);
  PutNode(1);
  for (const JobRecord& job : {big, small}) {
    line_.Add(job);
    Refuse(job);
  }
  EXPECT_TRUE(line_.NeverFits(big, nodes_));
  EXPECT_FALSE(line_.NeverFits(small, nodes_));
  // What is held stands in no line.
  EXPECT_TRUE(line_.NeverFits(Job(3, 301), nodes_));
  EXPECT_FALSE(line_.NeverFits(Job(4, 1), nodes_));

  nodes_.Remove(node_);
  EXPECT_FALSE(line_.NeverFits(big, nodes_)) << "nodes may be on their way";
}

TEST_F(WaitingLineTest, GoesRoundThoseThatWereRefused) {
  const JobRecord a = Job(1, 2), b = Job(2, 3), untried = Job(3, 4);
  PutNode(1);
  for (const JobRecord& job : {a, b, untried}) line_.Add(job);
  Refuse(a);
  Refuse(b);

  const GangRequest* const first = line_.NextRefused(nullptr);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(*first, RequestOf(*a.spec));
  const GangRequest* const second = line_.NextRefused(first);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(*second, RequestOf(*b.spec));
  EXPECT_EQ(line_.NextRefused(second), nullptr);
  EXPECT_TRUE(line_.Waits(RequestOf(*untried.spec)));
}

}  // namespace
}  // namespace cohort::head

#include "worker/results_sweep.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "rpc/methods.h"
#include "rpc/testing/loopback.h"
#include "worker/work_directory.h"

namespace cohort::worker {
namespace {

class ResultsSweepTest : public testing::Test {
 protected:
  ResultsSweepTest() {
    followed_.set_cluster_id("c");
    followed_.set_generation("0123456789abcdef");
    followed_.set_term(3);
    router_.SetStamp({.cluster_id = "c", .term = 3});
    router_.Handle(rpc::kGetJob, executor_,
                   [this](const std::shared_ptr<rpc::CallContext>&,
                          const v1::GetJobRequest& request,
                          rpc::Reply<v1::GetJobResponse> reply) {
                     if (known_.contains(request.job_id())) {
                       return std::move(reply)(v1::GetJobResponse());
                     }
                     std::move(reply)(absl::NotFoundError("no such job"));
                   });
    network_.Listen("head", &router_);
    std::filesystem::create_directories(directories_.AllWork());
    sweep_.Start();
  }

  // A job that has left a file here.
  JobId Leave() {
    const JobId job = JobId::New(random_);
    v1::DesiredPlace place;
    place.set_attempt_id(std::string(AttemptId::New(random_).bytes()));
    place.set_job_id(std::string(job.bytes()));
    place.set_number(1);
    COHORT_EXPECT_OK(work_.Make(place, "", followed_.generation()));
    std::ofstream(directories_.RunDirectory(place) + "/model.pt") << "x";
    COHORT_EXPECT_OK(work_.Remove(*AttemptId::FromBytes(place.attempt_id())));
    return job;
  }
  bool IsThere(const JobId& job) const {
    return std::filesystem::exists(directories_.Results() + "/" + job.ToText());
  }
  void Round() { executor_.AdvanceBy(ResultsSweep::kPeriod); }

  TempDir temp_;
  NodeDirectories directories_{temp_.path(), temp_.path()};
  ManualExecutor executor_;
  SeededRandom random_{1};
  const rpc::Credential credential_ =
      *rpc::Credential::FromBytes(std::string(32, 'c'));
  rpc::LoopbackNetwork network_{{}, executor_, executor_, random_};
  rpc::Router router_{{}, rpc::Authenticator(credential_), executor_};
  const std::unique_ptr<rpc::Channel> channel_ =
      network_.Connect("worker", "head", credential_);
  WorkDirectories work_{directories_, "n1", "1"};
  std::set<std::string> known_;
  v1::Stamp followed_;
  ResultsSweep sweep_{directories_, work_,
                      *channel_,    [this] { return followed_; },
                      executor_,    executor_};
};

// WD-3.
TEST_F(ResultsSweepTest, RemovesWhatTheHeadHasForgottenAndNothingElse) {
  const JobId known = Leave();
  known_.insert(std::string(known.bytes()));
  const JobId forgotten = Leave();
  std::ofstream(directories_.Results() + "/notes.txt") << "a person's";
  Round();
  Round();
  EXPECT_TRUE(IsThere(known));
  EXPECT_FALSE(IsThere(forgotten));
  EXPECT_TRUE(std::filesystem::exists(directories_.Results() + "/notes.txt"));
  known_.clear();
  Round();
  Round();
  EXPECT_FALSE(IsThere(known));
}

// WD-3.
TEST_F(ResultsSweepTest, RemovesNothingOfAnotherGeneration) {
  const JobId job = Leave();
  followed_.set_generation("fedcba9876543210");
  Round();
  Round();
  EXPECT_TRUE(IsThere(job));
}

// A head of a later term may have a restored store, which this worker has not
// heard of yet.
TEST_F(ResultsSweepTest, BelievesTheHeadThatItFollowsOnly) {
  const JobId job = Leave();
  router_.SetStamp({.cluster_id = "c", .term = 4});
  Round();
  Round();
  EXPECT_TRUE(IsThere(job));
}

TEST_F(ResultsSweepTest, GoesThroughManyInTurns) {
  std::vector<JobId> jobs;
  for (size_t i = 0; i < ResultsSweep::kJobsPerRound + 10; ++i) {
    jobs.push_back(Leave());
    known_.insert(std::string(jobs.back().bytes()));
  }
  const JobId forgotten = Leave();
  for (int i = 0; i < 4; ++i) Round();
  EXPECT_FALSE(IsThere(forgotten));
  for (const JobId& job : jobs) EXPECT_TRUE(IsThere(job));
}

}  // namespace
}  // namespace cohort::worker

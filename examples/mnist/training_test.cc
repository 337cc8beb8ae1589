#include "examples/mnist/training.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/real_clock.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "examples/mnist_directory.h"
#include "shm/arena.h"
#include "trainer/sampler.h"
#include "trainer/testing/gang_session.h"
#include "trainer/torch/process.h"

namespace cohort::mnist {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using trainer::CheckpointRecord;
using trainer::GangSession;
using trainer::MixSampleId;
using trainer::RunPlace;

std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// One attempt of a gang whose ranks are child processes, so that the parent
// never starts LibTorch and may fork again.
struct Attempt {
  int world = 2;
  TrainOptions options;
  std::optional<CheckpointRecord> restore;
  // Rank 1 kills itself with SIGKILL when it reports this step.
  int64_t die_at_step = 0;
  // It is told when it reports this step that it is to be gone by a deadline.
  int64_t notice_at_step = 0;
};

struct Outcome {
  std::vector<int> exit_statuses;           // by rank, as from waitpid
  std::vector<std::string> outputs;         // stdout, by rank
  std::vector<CheckpointRecord> committed;  // in order
  std::string model;                        // bytes of the last one
};

class TrainingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto data = examples::FindMnist();
    COHORT_ASSERT_OK(data);
    small_.data = *data;
    small_.epochs = 2;
    small_.batch = 16;
    small_.shape = {.channels = 4, .hidden = 16};
    small_.train_samples = 640;
    small_.test_samples = 1000;
  }

  Outcome Run(const Attempt& attempt) {
    ++attempts_;
    const std::string directory = Directory();
    EXPECT_EQ(mkdir(directory.c_str(), 0755), 0);
    const auto arena = shm::Arena::Create(
        directory,
        {.attempt = "training-test", .epoch = 1, .local_world = attempt.world});
    EXPECT_THAT(arena, IsOk());
    std::vector<pid_t> children;
    for (int rank = 0; rank < attempt.world; ++rank) {
      const pid_t child = fork();
      if (child == 0) _exit(RunRank(attempt, rank));
      children.push_back(child);
    }
    Outcome outcome;
    for (int rank = 0; rank < attempt.world; ++rank) {
      int status = 0;
      EXPECT_EQ(waitpid(children[rank], &status, 0), children[rank]);
      outcome.exit_statuses.push_back(status);
      outcome.outputs.push_back(Slurp(OutputOf(rank)));
    }
    std::ifstream records(directory + "/committed");
    CheckpointRecord record;
    while (records >> record.path >> record.step >> record.epoch) {
      outcome.committed.push_back(record);
    }
    if (!outcome.committed.empty()) {
      outcome.model =
          Slurp(outcome.committed.back().path + "/model.safetensors");
    }
    return outcome;
  }

  std::string Directory() const {
    return directory_.File(absl::StrCat("run-", attempts_));
  }
  std::string OutputOf(int rank) const {
    return absl::StrCat(Directory(), "/rank-", rank, ".out");
  }

  TrainOptions small_;
  TempDir directory_;

 private:
  // In the child.
  int RunRank(const Attempt& attempt, int rank) {
    if (freopen(OutputOf(rank).c_str(), "w", stdout) == nullptr) return 9;
    torch_adapter::PrepareProcess();
    const absl::Status status = Train(attempt, rank);
    if (status.ok()) return 0;
    std::cout << status << std::endl;
    return 1;
  }

  absl::Status Train(const Attempt& attempt, int rank) {
    const RunPlace place{.job_id = "test",
                         .attempt = attempts_,
                         .rank = rank,
                         .world = attempt.world,
                         .local_rank = rank,
                         .local_world = attempt.world,
                         .checkpoint_root = Directory() + "/checkpoints",
                         .restore = attempt.restore};
    int64_t reports = attempt.restore ? attempt.restore->step : 0;
    GangSession* told = nullptr;
    const auto on_report = [&](absl::string_view) {
      ++reports;
      if (rank != 1) return;
      if (reports == attempt.die_at_step) raise(SIGKILL);
      if (reports == attempt.notice_at_step) {
        told->SetNotice({.deadline = absl::Seconds(1)});
      }
    };
    const auto on_commit = [&](const CheckpointRecord& record) {
      std::ofstream(Directory() + "/committed", std::ios::app)
          << record.path << " " << record.step << " " << record.epoch << "\n";
    };
    COHORT_ASSIGN_OR_RETURN(
        const std::unique_ptr<GangSession> session,
        GangSession::Join(Directory(), place, on_report, on_commit));
    told = session.get();
    const MachineClock clock;
    Training training(attempt.options, *session, torch::kCPU, clock);
    COHORT_RETURN_IF_ERROR(training.Run());
    return session->Finish();
  }

  int attempts_ = 0;
};

// The last line of `output` that begins with `prefix`, without it.
std::string LineOf(const std::string& output, const std::string& prefix) {
  std::istringstream lines(output);
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    absl::string_view rest = line;
    if (absl::ConsumePrefix(&rest, prefix)) found = std::string(rest);
  }
  return found;
}

// TR-1
TEST_F(TrainingTest, TwoRunsWithOneSeedGiveTheSameBytes) {
  const Outcome first = Run({.options = small_});
  const Outcome second = Run({.options = small_});
  EXPECT_THAT(first.exit_statuses, Each(0)) << first.outputs[0];
  EXPECT_FALSE(first.model.empty());
  EXPECT_EQ(first.model, second.model);
  TrainOptions other = small_;
  other.seed = 2;
  EXPECT_NE(first.model, Run({.options = other}).model);
}

// TR-1
TEST_F(TrainingTest, GoesOnExactlyAfterARankWasKilledInTheMiddleOfAnEpoch) {
  TrainOptions options = small_;
  options.checkpoint_every = 7;
  options.loss_log = directory_.File("loss.log");
  const Outcome whole = Run({.options = options});
  EXPECT_THAT(whole.exit_statuses, Each(0)) << whole.outputs[0];
  const std::string whole_log = Slurp(options.loss_log);
  for (const int64_t step : {3, 12, 25, 39}) {
    const Outcome broken = Run({.options = options, .die_at_step = step});
    EXPECT_EQ(WTERMSIG(broken.exit_statuses[1]), SIGKILL);
    EXPECT_NE(broken.exit_statuses[0], 0) << "rank 0 did not notice";
    std::optional<CheckpointRecord> restore;
    if (!broken.committed.empty()) restore = broken.committed.back();
    EXPECT_EQ(restore.has_value(), step > 7);
    const Outcome resumed = Run({.options = options, .restore = restore});
    EXPECT_THAT(resumed.exit_statuses, Each(0)) << resumed.outputs[0];
    EXPECT_EQ(resumed.model, whole.model) << "died at step " << step;
    EXPECT_EQ(Slurp(options.loss_log), whole_log);
    EXPECT_EQ(LineOf(resumed.outputs[1], "sample ids: epoch 2"),
              LineOf(whole.outputs[1], "sample ids: epoch 2"));
  }
}

// Wherever in the gang the notice comes, and once.
TEST_F(TrainingTest, LeavesACheckpointBeforeARankIsMoved) {
  const Outcome told = Run({.options = small_, .notice_at_step = 3});
  EXPECT_THAT(told.exit_statuses, Each(0)) << told.outputs[0];
  ASSERT_EQ(told.committed.size(), 3u);  // and one an epoch
  EXPECT_EQ(told.committed[0].step, 4);
}

TEST_F(TrainingTest, RanksSeeDisjointSamplesAndTogetherTheEpoch) {
  const Outcome outcome = Run({.options = small_});
  for (const int epoch : {1, 2}) {
    uint64_t sum = 0;
    int64_t samples = 0;
    for (int rank = 0; rank < 2; ++rank) {
      const std::string line =
          LineOf(outcome.outputs[rank],
                 absl::StrCat("sample ids: epoch ", epoch, " rank ", rank,
                              " of 2 samples "));
      int64_t count = 0;
      uint64_t hash = 0;
      ASSERT_EQ(sscanf(line.c_str(), "%ld hash %lx", &count, &hash), 2) << line;
      samples += count;
      sum += hash;
    }
    uint64_t all = 0;
    for (int64_t id = 0; id < small_.train_samples; ++id) {
      all += MixSampleId(id);
    }
    EXPECT_EQ(samples, small_.train_samples);
    EXPECT_EQ(sum, all) << "epoch " << epoch;
  }
}

std::vector<double> LossesOf(const std::string& path) {
  std::ifstream in(path);
  std::vector<double> losses;
  int64_t step = 0;
  for (double loss = 0; in >> step >> loss;) losses.push_back(loss);
  return losses;
}

// TR-2, with the whole network.
TEST_F(TrainingTest, TwoRanksEqualOneWithTheSameGlobalBatchInDoubles) {
  TrainOptions options;
  options.data = small_.data;
  options.precision = Precision::kFloat64;
  options.steps = 200;
  options.test_samples = 500;
  options.batch = 64;
  options.loss_log = directory_.File("one.log");
  const Outcome one = Run({.world = 1, .options = options});
  options.batch = 32;
  options.loss_log = directory_.File("two.log");
  const Outcome two = Run({.world = 2, .options = options});
  EXPECT_THAT(two.exit_statuses, Each(0)) << two.outputs[0];
  const std::vector<double> expected = LossesOf(directory_.File("one.log"));
  const std::vector<double> losses = LossesOf(directory_.File("two.log"));
  ASSERT_EQ(expected.size(), 200u);
  ASSERT_EQ(losses.size(), 200u);
  double worst = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    worst = std::max(worst, std::abs(losses[i] / expected[i] - 1));
  }
  std::cout << "largest relative difference: " << worst << "\n";
  EXPECT_LT(worst, 1e-9);
}

TEST_F(TrainingTest, NumpyReachesTheSameAccuracyFromTheFileAlone) {
  if (std::system("/usr/bin/python3 -c 'import numpy' 2>/dev/null") != 0) {
    GTEST_SKIP() << "no /usr/bin/python3 with numpy";
  }
  const Outcome outcome = Run({.options = small_});
  ASSERT_FALSE(outcome.committed.empty());
  const std::string answer = directory_.File("answer");
  ASSERT_EQ(
      std::system(absl::StrCat("/usr/bin/python3 ", MNIST_EVALUATE_PY, " ",
                               outcome.committed.back().path, " ", small_.data,
                               " ", small_.test_samples, " > ", answer)
                      .c_str()),
      0);
  EXPECT_EQ(LineOf(Slurp(answer), "test accuracy: "),
            LineOf(outcome.outputs[0], "test accuracy: "));
  EXPECT_THAT(LineOf(Slurp(answer), "test accuracy: "), HasSubstr(" %"));
}

TEST_F(TrainingTest, RefusesACheckpointOfAnotherRun) {
  TrainOptions options = small_;
  options.steps = 2;
  const Outcome outcome = Run({.options = options});
  ASSERT_EQ(outcome.committed.size(), 1u);
  const auto refused = [&](const TrainOptions& other, const char* what) {
    const Outcome resumed =
        Run({.options = other, .restore = outcome.committed.back()});
    EXPECT_THAT(resumed.exit_statuses, Each(Not(0)));
    EXPECT_THAT(resumed.outputs[0], HasSubstr(what));
  };
  TrainOptions other = options;
  other.seed = 9;
  refused(other, "--seed 1, not 9");
  other = options;
  other.shape.hidden = 17;
  refused(other, "hidden 16, not 17");
  other = options;
  other.precision = Precision::kFloat64;
  refused(other, "dtype float32, not float64");
}

}  // namespace
}  // namespace cohort::mnist

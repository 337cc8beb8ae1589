#include "trainer/torch/prepare.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/nn/functional/loss.h"
#include "torch/nn/modules/dropout.h"
#include "torch/nn/modules/linear.h"
#include "torch/optim/adam.h"
#include "torch/optim/sgd.h"
#include "torch/utils.h"

#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "shm/arena.h"
#include "trainer/testing/gang_session.h"
#include "trainer/train/run.h"

namespace cohort::train {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using trainer::CheckpointRecord;
using trainer::GangSession;

constexpr int64_t kWidth = 6;

// Vectors, and whether their sum is positive.
class Signs final : public trainer::Dataset {
 public:
  int64_t size() const override { return 96; }
  int64_t input_size() const override { return kWidth; }
  absl::Status Read(std::span<const int64_t> ids, std::span<float> inputs,
                    std::span<int64_t> labels) const override {
    for (size_t i = 0; i < ids.size(); ++i) {
      float sum = 0;
      for (int64_t k = 0; k < kWidth; ++k) {
        const float value =
            static_cast<float>((ids[i] * 37 + k * 11) % 19) / 9.0f - 1;
        inputs[i * kWidth + static_cast<size_t>(k)] = value;
        sum += value;
      }
      labels[i] = sum > 0 ? 1 : 0;
    }
    return absl::OkStatus();
  }
};

// Its dropout draws numbers at each step.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(int64_t hidden)
      : first(register_module("first", torch::nn::Linear(kWidth, hidden))),
        dropout(register_module("dropout", torch::nn::Dropout(0.3))),
        second(register_module("second", torch::nn::Linear(hidden, 2))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return second(dropout(torch::relu(first(x))));
  }
  torch::nn::Linear first;
  torch::nn::Dropout dropout;
  torch::nn::Linear second;
};
TORCH_MODULE(Net);

// One attempt of a gang whose ranks are child processes, so that the parent
// never starts LibTorch and may fork again.
struct Attempt {
  int world = 2;
  bool sgd = false;
  bool accumulates = false;  // over two steps
  int64_t hidden = 8;
  int64_t batch = 8;
  std::optional<CheckpointRecord> restore{};
  // Rank 1 kills itself with SIGKILL when it reports this step.
  int64_t die_at_step = 0;
  bool prepare_twice = false;
};

struct Ended {
  std::vector<int> exit_statuses;           // by rank, as from waitpid
  std::vector<std::string> outputs;         // stdout, by rank
  std::vector<CheckpointRecord> committed;  // in order
  std::string model;                        // bytes of the last one
};

std::string Slurp(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

absl::Status TrainNet(Run& run, const Attempt& attempt) {
  torch::manual_seed(1 + run.rank());
  Net net(attempt.hidden);
  auto model = run.Prepare(net);
  if (attempt.prepare_twice) run.Prepare(net);
  auto optimizer =
      attempt.sgd
          ? run.Prepare(torch::optim::SGD(
                net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)))
          : run.Prepare(torch::optim::Adam(net->parameters(), 0.01));
  auto* const loader = run.Loader(std::make_shared<Signs>(),
                                  {.batch_size = attempt.batch, .seed = 1});
  // What is due while gradients are added up is saved a step later.
  run.CheckpointEvery({.steps = attempt.accumulates ? 3 : 4});
  for (auto epoch : run.Epochs(2)) {
    torch::rand({3});  // what is drawn here is drawn once an epoch
    for (const auto& batch : epoch.Batches(loader)) {
      // A schedule, which both kinds of optimizer follow.
      optimizer->param_groups()[0].options().set_lr(
          (attempt.sgd ? 0.1 : 0.01) / (1.0 + 0.1 * epoch.number()));
      const bool is_later = attempt.accumulates && run.step() % 2 == 0;
      if (!attempt.accumulates || is_later) optimizer.zero_grad();
      const auto loss = torch::nn::functional::cross_entropy(
          model(Inputs(batch, {kWidth})), Labels(batch));
      COHORT_RETURN_IF_ERROR(
          run.Backward(loss, is_later ? torch_adapter::Sync::kLater
                                      : torch_adapter::Sync::kNow));
      if (!is_later) optimizer.step();
      run.Report({{"loss", loss}});
      // So that it is known what a death leaves.
      if (attempt.die_at_step > 0) {
        COHORT_RETURN_IF_ERROR(run.FinishCheckpoint());
      }
    }
    std::cout << "loss " << run.EpochMean("loss") << std::endl;
  }
  return run.status();
}

class PrepareTest : public ::testing::Test {
 protected:
  Ended Train(const Attempt& attempt) {
    ++attempts_;
    const std::string directory = Directory();
    EXPECT_EQ(mkdir(directory.c_str(), 0755), 0);
    const auto arena = shm::Arena::Create(
        directory,
        {.attempt = "prepare-test", .epoch = 1, .local_world = attempt.world});
    EXPECT_THAT(arena, IsOk());
    std::vector<pid_t> children;
    for (int rank = 0; rank < attempt.world; ++rank) {
      const pid_t child = fork();
      if (child == 0) _exit(RunRank(attempt, rank));
      children.push_back(child);
    }
    Ended ended;
    for (int rank = 0; rank < attempt.world; ++rank) {
      int status = 0;
      EXPECT_EQ(waitpid(children[rank], &status, 0), children[rank]);
      ended.exit_statuses.push_back(status);
      ended.outputs.push_back(Slurp(OutputOf(rank)));
    }
    std::ifstream records(directory + "/committed");
    CheckpointRecord record;
    while (records >> record.path >> record.step >> record.epoch) {
      ended.committed.push_back(record);
    }
    if (!ended.committed.empty()) {
      ended.model = Slurp(ended.committed.back().path + "/model.safetensors");
    }
    return ended;
  }

 private:
  std::string Directory() const {
    return directory_.File(absl::StrCat("run-", attempts_));
  }
  std::string OutputOf(int rank) const {
    return absl::StrCat(Directory(), "/rank-", rank, ".out");
  }

  // In the child.
  int RunRank(const Attempt& attempt, int rank) {
    if (freopen(OutputOf(rank).c_str(), "w", stdout) == nullptr) return 9;
    const absl::Status status = TrainAs(attempt, rank);
    if (status.ok()) return 0;
    std::cout << status << std::endl;
    return 1;
  }

  absl::Status TrainAs(const Attempt& attempt, int rank) {
    const trainer::RunPlace place{
        .job_id = "test",
        .attempt = attempts_,
        .rank = rank,
        .world = attempt.world,
        .local_rank = rank,
        .local_world = attempt.world,
        .checkpoint_root = Directory() + "/checkpoints",
        .restore = attempt.restore};
    int64_t reports = attempt.restore ? attempt.restore->step : 0;
    COHORT_RETURN_IF_ERROR(ProgramBackend()->Open(false).status());
    COHORT_ASSIGN_OR_RETURN(
        const std::unique_ptr<GangSession> session,
        GangSession::Join(
            Directory(), place,
            [&](absl::string_view) {
              ++reports;
              if (rank == 1 && reports == attempt.die_at_step) raise(SIGKILL);
            },
            [&](const CheckpointRecord& record) {
              std::ofstream(Directory() + "/committed", std::ios::app)
                  << record.path << " " << record.step << " " << record.epoch
                  << "\n";
            }));
    const MachineClock clock;
    train::Run run(*session, ProgramBackend(), clock, {});
    COHORT_RETURN_IF_ERROR(run.Open());
    COHORT_RETURN_IF_ERROR(run.Close(TrainNet(run, attempt)));
    return session->Finish();
  }

  TempDir directory_;
  int attempts_ = 0;
};

// TR-3, with dropout, whose numbers differ from rank to rank.
TEST_F(PrepareTest, GoesOnExactlyAfterARankWasKilled) {
  struct Kind {
    bool sgd = false;
    bool accumulates = false;
  };
  for (const auto [sgd, accumulates] :
       {Kind{}, Kind{.sgd = true}, Kind{.accumulates = true}}) {
    const Attempt kind{.sgd = sgd, .accumulates = accumulates};
    const Ended whole = Train(kind);
    EXPECT_THAT(whole.exit_statuses, Each(0)) << whole.outputs[0];
    EXPECT_FALSE(whole.model.empty());
    EXPECT_EQ(whole.model, Train(kind).model);
    // 96 samples over 2 ranks of 8: 6 steps an epoch.
    for (const int64_t step : {3, 6, 11}) {
      Attempt dying = kind;
      dying.die_at_step = step;
      const Ended broken = Train(dying);
      EXPECT_EQ(WTERMSIG(broken.exit_statuses[1]), SIGKILL);
      EXPECT_NE(broken.exit_statuses[0], 0) << "rank 0 did not notice";
      std::optional<CheckpointRecord> restore;
      if (!broken.committed.empty()) restore = broken.committed.back();
      EXPECT_EQ(restore.has_value(), step > 4);
      Attempt again = kind;
      again.restore = restore;
      const Ended resumed = Train(again);
      EXPECT_THAT(resumed.exit_statuses, Each(0)) << resumed.outputs[0];
      EXPECT_EQ(resumed.model, whole.model) << "died at step " << step;
    }
  }
}

TEST_F(PrepareTest, SaysWhichTensorsOfACheckpointDiffer) {
  const Ended whole = Train({});
  ASSERT_FALSE(whole.committed.empty());
  const Ended other = Train({.hidden = 9, .restore = whole.committed.back()});
  EXPECT_THAT(other.exit_statuses, Each(Not(0)));
  EXPECT_THAT(other.outputs[0], HasSubstr("first.weight"));
  const Ended sgd = Train({.sgd = true, .restore = whole.committed.back()});
  EXPECT_THAT(sgd.exit_statuses, Each(Not(0)));
  EXPECT_THAT(sgd.outputs[0], HasSubstr("is of Adam, not torch::optim::SGD"));
}

TEST_F(PrepareTest, RefusesAModuleThatIsPreparedTwice) {
  const Ended ended = Train({.prepare_twice = true});
  EXPECT_THAT(ended.exit_statuses, Each(Not(0)));
  EXPECT_THAT(ended.outputs[0], HasSubstr("prepared before"));
}

}  // namespace
}  // namespace cohort::train

#include "examples/mlp/training.h"

#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/real_clock.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "examples/mlp/testing/fake_gpu.h"
#include "examples/mnist_directory.h"
#include "shm/arena.h"
#include "trainer/comm/testing/ranks.h"
#include "trainer/local_session.h"
#include "trainer/testing/gang_session.h"

namespace cohort::mlp {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using trainer::CheckpointRecord;
using trainer::DType;

std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// What a gang of threads left behind.
struct Outcome {
  std::vector<absl::Status> ended;  // by rank
  std::vector<CheckpointRecord> committed;
  std::string model;      // bytes of the last one
  std::string optimizer;  // and its moments
  std::string last_report;
};

class TrainingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto data = examples::FindMnist();
    COHORT_ASSERT_OK(data);
    small_.data = *data;
    small_.epochs = 2;
    small_.batch = 16;
    small_.hidden = 16;
    small_.hidden_layers = 1;
    small_.train_samples = 320;
    small_.test_samples = 100;
  }

  Outcome Run(int world, const TrainOptions& options,
              std::optional<CheckpointRecord> restore = std::nullopt) {
    const std::string directory =
        directory_.File(absl::StrCat("run-", ++attempts_));
    EXPECT_EQ(mkdir(directory.c_str(), 0755), 0);
    const auto arena = shm::Arena::Create(
        directory, {.attempt = "mlp-test", .epoch = 1, .local_world = world});
    EXPECT_THAT(arena, IsOk());
    Outcome outcome;
    outcome.ended.resize(world);
    trainer::RunRanks(world, [&](int rank) {
      outcome.ended[rank] =
          RunRank(directory, world, rank, options, restore, outcome);
    });
    if (!outcome.committed.empty()) {
      const std::string& path = outcome.committed.back().path;
      outcome.model = Slurp(path + "/model.safetensors");
      outcome.optimizer = Slurp(path + "/optimizer.safetensors");
    }
    return outcome;
  }

  TrainOptions small_;
  // The last rank is told in its third step that it is to be gone by a
  // deadline.
  bool last_rank_leaves_ = false;
  TempDir directory_;

 private:
  absl::Status RunRank(const std::string& directory, int world, int rank,
                       const TrainOptions& options,
                       const std::optional<CheckpointRecord>& restore,
                       Outcome& outcome) {
    const trainer::RunPlace place{.job_id = "test",
                                  .attempt = attempts_,
                                  .rank = rank,
                                  .world = world,
                                  .local_rank = rank,
                                  .local_world = world,
                                  .checkpoint_root = directory + "/checkpoints",
                                  .restore = restore};
    trainer::GangSession* told = nullptr;
    int reports = 0;
    // Rank 0 alone commits.
    auto session = trainer::GangSession::Join(
        directory, place,
        [&](absl::string_view report) {
          if (rank == 0) outcome.last_report = std::string(report);
          if (last_rank_leaves_ && rank == world - 1 && ++reports == 3) {
            told->SetNotice({.kind = trainer::RunNotice::Kind::kDrain,
                             .deadline = absl::Seconds(1)});
          }
        },
        [&](const CheckpointRecord& record) {
          outcome.committed.push_back(record);
        });
    if (!session.ok()) return session.status();
    told = session->get();
    CpuDevice cpu;
    const MachineClock clock;
    auto training = Training::Create(options, **session, cpu, clock);
    const absl::Status trained =
        training.ok() ? (*training)->Run() : training.status();
    if (!trained.ok()) return trained;
    return (*session)->Finish();
  }

  int attempts_ = 0;
};

class TrainingPrecisionTest : public TrainingTest,
                              public ::testing::WithParamInterface<DType> {};

INSTANTIATE_TEST_SUITE_P(Types, TrainingPrecisionTest,
                         ::testing::Values(DType::kF32, DType::kF16,
                                           DType::kBF16),
                         [](const auto& test) {
                           return std::string(ToString(test.param));
                         });

// ML-1
TEST_P(TrainingPrecisionTest, GoesOnExactlyFromACheckpoint) {
  TrainOptions options = small_;
  options.precision = GetParam();
  options.loss_log = directory_.File("whole.log");
  const Outcome whole = Run(2, options);
  EXPECT_THAT(whole.ended, Each(IsOk()));
  ASSERT_EQ(whole.committed.size(), 2u);  // one an epoch
  options.loss_log = directory_.File("parts.log");
  options.steps = 7;
  const Outcome first = Run(2, options);
  ASSERT_EQ(first.committed.size(), 1u);
  EXPECT_EQ(first.committed[0].step, 7);
  options.steps = 0;
  const Outcome second = Run(2, options, first.committed[0]);
  EXPECT_THAT(second.ended, Each(IsOk()));
  EXPECT_EQ(second.model, whole.model);
  EXPECT_EQ(second.optimizer, whole.optimizer);
  EXPECT_EQ(Slurp(directory_.File("parts.log")),
            Slurp(directory_.File("whole.log")));
}

// Wherever in the gang the notice comes, and once.
TEST_F(TrainingTest, LeavesACheckpointBeforeARankIsMoved) {
  last_rank_leaves_ = true;
  const Outcome outcome = Run(2, small_);
  EXPECT_THAT(outcome.ended, Each(IsOk()));
  ASSERT_EQ(outcome.committed.size(), 3u);  // and one an epoch
  EXPECT_EQ(outcome.committed[0].step, 4);
  const Outcome rest = Run(2, small_, outcome.committed[0]);
  EXPECT_EQ(rest.model, outcome.model);
}

TEST_F(TrainingTest, RefusesACheckpointOfAnotherRun) {
  TrainOptions options = small_;
  options.steps = 1;
  const Outcome outcome = Run(1, options);
  ASSERT_EQ(outcome.committed.size(), 1u);
  const auto refusal = [&](const TrainOptions& other) {
    return Run(1, other, outcome.committed[0]).ended[0];
  };
  TrainOptions other = options;
  other.precision = DType::kF16;
  EXPECT_THAT(refusal(other), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("precision f32, not f16")));
  other = options;
  other.seed = 9;
  EXPECT_THAT(refusal(other), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("--seed 1, not 9")));
  other = options;
  other.hidden = 17;
  EXPECT_THAT(refusal(other), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("hidden 16, not 17")));
}

// ML-2: in fp16 steps that overflow are left out, the scale falls until they
// do not, and a checkpoint keeps it.
TEST_F(TrainingTest, LeavesOutStepsThatOverflow) {
  TrainOptions options = small_;
  options.precision = DType::kF16;
  // Gradients that are not divided by a batch, of a network that is sure of
  // what is wrong: 65536 is beyond binary16.
  options.train_samples = 100;
  options.batch = 1;
  options.lr = 0.1;
  options.epochs = 1;
  const Outcome outcome = Run(2, options);
  EXPECT_THAT(outcome.ended, Each(IsOk()));
  EXPECT_THAT(outcome.last_report, Not(HasSubstr("\"skipped_steps\": 0")));
  EXPECT_THAT(outcome.last_report, Not(HasSubstr("\"loss_scale\": 65536")));
  const auto checkpoint =
      trainer::ReadCheckpoint(outcome.committed.back().path);
  COHORT_ASSERT_OK(checkpoint);
  ASSERT_TRUE(checkpoint->manifest.scaler.has_value());
  EXPECT_LT(checkpoint->manifest.scaler->scale, 65536);
}

TEST_F(TrainingTest, SaysWhenTheLossIsNoNumber) {
  TrainOptions options = small_;
  options.lr = 100;
  options.precision = DType::kBF16;
  options.hidden_layers = 40;
  options.epochs = 100;
  const Outcome outcome = Run(1, options);
  EXPECT_THAT(outcome.ended, ElementsAre(StatusIs(absl::StatusCode::kInternal,
                                                  HasSubstr("lower --lr"))));
}

TEST_F(TrainingTest, NamesALossLogThatCannotBeWritten) {
  TrainOptions options = small_;
  options.loss_log = "/nowhere/loss.log";
  EXPECT_THAT(Run(1, options).ended,
              ElementsAre(StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr("--loss-log /nowhere"))));
}

// One rank by hand, on any device.
class TrainingOnAGpuTest : public TrainingTest,
                           public ::testing::WithParamInterface<DType> {
 protected:
  void SetUp() override {
    TrainingTest::SetUp();
    small_.precision = GetParam();
    small_.steps = 25;  // into the second epoch
  }

  // The losses of its steps.
  std::string Train(
      Device& device, const std::function<void()>& before_it_runs = [] {}) {
    auto session = trainer::LocalSession::Create(
        {.storage_path = directory_.File("results")});
    EXPECT_THAT(session, IsOk());
    TrainOptions mine = small_;
    mine.loss_log = directory_.File("loss.log");
    const MachineClock clock;
    auto training = Training::Create(mine, **session, device, clock);
    EXPECT_THAT(training, IsOk());
    if (!training.ok()) return "";
    before_it_runs();
    EXPECT_THAT((*training)->Run(), IsOk());
    training->reset();  // closes its log
    return Slurp(mine.loss_log);
  }
  std::string TrainOnCpu() {
    CpuDevice cpu;
    return Train(cpu);
  }
};

INSTANTIATE_TEST_SUITE_P(Types, TrainingOnAGpuTest,
                         ::testing::Values(DType::kF32, DType::kF16,
                                           DType::kBF16),
                         [](const auto& test) {
                           return std::string(ToString(test.param));
                         });

// The calls of a driver whose uploads are as late as they may be: each begins
// when somebody waits for it.  Of the device's streams and events the second
// ones are the uploads'.
class LateUploads {
 public:
  explicit LateUploads(trainer::cuda::FakeDriver& driver)
      : table_(std::make_shared<trainer::cuda::DriverTable>(*driver.table())) {
    using trainer::cuda::Event;
    using trainer::cuda::Stream;
    const auto real = driver.table();
    table_->cuStreamCreate = [this, real](Stream* stream, unsigned flags) {
      const auto made = real->cuStreamCreate(stream, flags);
      streams_.push_back(*stream);
      return made;
    };
    table_->cuEventCreate = [this, real](Event* event, unsigned flags) {
      const auto made = real->cuEventCreate(event, flags);
      events_.push_back(*event);
      return made;
    };
    table_->cuMemcpyAsync = [this, real](auto to, auto from, size_t bytes,
                                         Stream stream) {
      if (stream == streams_.at(1)) {
        const int mine = ++begun_;
        trainer::cuda::FakeDriver::Enqueue(stream, [this, mine] {
          for (int now = 0; (now = awaited_.load()) < mine;) {
            awaited_.wait(now);
          }
        });
      }
      return real->cuMemcpyAsync(to, from, bytes, stream);
    };
    table_->cuStreamWaitEvent = [this, real](Stream stream, Event event,
                                             unsigned flags) {
      LetGo(event);
      return real->cuStreamWaitEvent(stream, event, flags);
    };
    table_->cuEventQuery = [this, real](Event event) {
      LetGo(event);
      return real->cuEventQuery(event);
    };
  }

  std::shared_ptr<const trainer::cuda::DriverTable> table() const {
    return table_;
  }
  int begun() const { return begun_; }

 private:
  void LetGo(trainer::cuda::Event event) {
    if (event != events_.at(1)) return;
    awaited_.store(begun_);
    awaited_.notify_all();
  }

  const std::shared_ptr<trainer::cuda::DriverTable> table_;
  std::vector<trainer::cuda::Stream> streams_;
  std::vector<trainer::cuda::Event> events_;
  std::atomic<int> begun_ = 0;
  std::atomic<int> awaited_ = 0;
};

// A fake one, whose kernels are the CPU's: a batch that was computed with
// before its copy, or copied over another that is still read, would show.
TEST_P(TrainingOnAGpuTest, GivesTheLossesOfCpusHoweverLateUploadsAre) {
  trainer::cuda::FakeDriver driver;
  AddKernels(driver);
  LateUploads late(driver);
  {
    auto gpu = GpuDevice::Open(late.table(), 0, FakeImage());
    COHORT_ASSERT_OK(gpu);
    size_t before = 0;
    const std::string losses =
        Train(**gpu, [&] { before = driver.faults().Count("cuMemHostAlloc"); });
    EXPECT_THAT(losses, HasSubstr("25 "));
    EXPECT_EQ(losses, TrainOnCpu());
    // Inputs and labels of each step and of the one that --steps left out.
    EXPECT_EQ(late.begun(), 2 * 26);
    // Batches were pinned, once for both epochs.
    const size_t pinned = driver.faults().Count("cuMemHostAlloc") - before;
    EXPECT_GT(pinned, 1u);
    EXPECT_LE(pinned, 4u);
  }
  EXPECT_EQ(driver.pinned_bytes(), 0u);
  EXPECT_EQ(driver.device_bytes(), 0u);
  EXPECT_EQ(driver.streams() + driver.events() + driver.contexts(), 0);
}

TEST_P(TrainingOnAGpuTest, GivesThemWhereNothingCanBePinned) {
  trainer::cuda::FakeDriver driver;
  auto gpu = OpenFakeGpu(driver);
  COHORT_ASSERT_OK(gpu);
  const std::string losses = Train(**gpu, [&driver] {
    driver.faults().FailAlways("cuMemHostAlloc", trainer::cuda::kOutOfMemory);
  });
  EXPECT_THAT(losses, HasSubstr("25 "));
  EXPECT_EQ(losses, TrainOnCpu());
}

// What a rank says when its GPU fails in a step.
TEST_F(TrainingTest, NamesDeviceAndCallWhenAnUploadFails) {
  for (const char* const call : {"cuMemHostAlloc", "cuStreamWaitEvent"}) {
    trainer::cuda::FakeDriver driver;
    auto gpu = OpenFakeGpu(driver);
    COHORT_ASSERT_OK(gpu);
    auto session = trainer::LocalSession::Create(
        {.storage_path = directory_.File("results")});
    COHORT_ASSERT_OK(session);
    const MachineClock clock;
    auto training = Training::Create(small_, **session, **gpu, clock);
    COHORT_ASSERT_OK(training);
    driver.faults().FailAlways(call, trainer::cuda::kEccUncorrectable);
    EXPECT_THAT((*training)->Run(),
                StatusIs(absl::StatusCode::kUnavailable,
                         AllOf(HasSubstr("GPU-01010101"), HasSubstr(call),
                               HasSubstr("CUDA_ERROR_ECC_UNCORRECTABLE"))));
    driver.faults().Release();
  }
}

}  // namespace
}  // namespace cohort::mlp

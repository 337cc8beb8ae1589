#include "examples/mlp/network.h"

#include <atomic>
#include <cmath>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/check.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "common/testing/status_matchers.h"
#include "examples/mlp/testing/fake_gpu.h"
#include "trainer/comm/testing/gpu_world.h"
#include "trainer/local_comm.h"
#include "trainer/testing/thread_gang.h"

namespace cohort::mlp {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using trainer::Comm;
using trainer::DType;
using trainer::LocalComm;

constexpr NetworkShape kSmall = {
    .inputs = 6, .hidden = 9, .hidden_layers = 2, .classes = 4};

// Samples whose label is their largest of four inputs.
struct Samples {
  std::vector<float> inputs;
  std::vector<int64_t> labels;

  Samples Part(size_t begin, size_t count) const {
    return {{inputs.begin() + begin * 6, inputs.begin() + (begin + count) * 6},
            {labels.begin() + begin, labels.begin() + begin + count}};
  }
};

Samples Draw(size_t count) {
  SeededRandom random(11);
  Samples samples;
  for (size_t i = 0; i < count; ++i) {
    int64_t label = 0;
    for (int64_t k = 0; k < 6; ++k) {
      samples.inputs.push_back(static_cast<float>(2 * random.Double() - 1));
      if (k < 4 && samples.inputs[6 * i + k] > samples.inputs[6 * i + label]) {
        label = k;
      }
    }
    samples.labels.push_back(label);
  }
  return samples;
}

NetworkOptions Options(DType precision) {
  NetworkOptions options{
      .shape = kSmall, .precision = precision, .batch_max = 32};
  // A bucket or two a layer.
  options.reducer.first_bucket_bytes = 64;
  options.reducer.bucket_bytes_max = 64;
  return options;
}

std::unique_ptr<Network> NewNetwork(Device& device, Comm& comm,
                                    const NetworkOptions& options) {
  auto network = Network::Create(device, comm, options);
  COHORT_CHECK(network.ok()) << network.status();
  return *std::move(network);
}

absl::Status Backward(Network& network, const Samples& samples,
                      float loss_scale) {
  COHORT_RETURN_IF_ERROR(network.Prefetch(samples.inputs, samples.labels));
  COHORT_RETURN_IF_ERROR(network.Backward(loss_scale));
  return network.AwaitPrefetch();
}

double LossOf(Network& network, const Samples& samples) {
  COHORT_CHECK(Backward(network, samples, 1).ok());
  const auto loss = network.Loss();
  COHORT_CHECK(loss.ok()) << loss.status();
  return *loss;
}

// What Adam's first moment tells after one step: (1 - beta1) times it.
std::vector<SavedTensor> GradientsOf(Network& network, const Samples& samples) {
  COHORT_CHECK(Backward(network, samples, 1).ok());
  COHORT_CHECK(network.Reduce().ok());
  COHORT_CHECK(network.Update({.lr = 0}, 1, 1).ok());
  auto saved = network.Save();
  COHORT_CHECK(saved.ok()) << saved.status();
  for (SavedTensor& tensor : *saved) {
    for (float& value : tensor.exp_avg) value *= 10;
  }
  return *std::move(saved);
}

TEST(NetworkTest, GradientsAreTheSlopesOfTheLoss) {
  CpuDevice cpu;
  LocalComm comm;
  const auto network = NewNetwork(cpu, comm, Options(DType::kF32));
  EXPECT_EQ(network->parameter_count(), 6 * 9 + 9 + 9 * 9 + 9 + 9 * 4 + 4);
  const Samples samples = Draw(16);
  const std::vector<SavedTensor> gradients = GradientsOf(*network, samples);
  for (size_t t = 0; t < gradients.size(); ++t) {
    for (const size_t i : {size_t{0}, gradients[t].parameter.size() - 1}) {
      constexpr float kStep = 0.001f;
      std::vector<SavedTensor> moved = gradients;
      moved[t].parameter[i] += kStep;
      COHORT_ASSERT_OK(network->Load(moved));
      const double above = LossOf(*network, samples);
      moved[t].parameter[i] -= 2 * kStep;
      COHORT_ASSERT_OK(network->Load(moved));
      const double slope = (above - LossOf(*network, samples)) / (2 * kStep);
      EXPECT_NEAR(gradients[t].exp_avg[i], slope, 5e-4)
          << gradients[t].name << " " << i;
    }
  }
}

// Trains a rank's part of each batch of 32; the losses of the steps.
struct Trained {
  std::vector<double> losses;
  std::vector<std::vector<float>> parameters;
  int64_t correct = 0;
};

Trained Train(Device& device, Comm& comm, DType precision, int steps = 60) {
  const auto network = NewNetwork(device, comm, Options(precision));
  const Samples all = Draw(320);
  const size_t part = 32 / comm.world();
  // Exact in every type.
  const float loss_scale = precision == DType::kF16 ? 1024.0f : 1.0f;
  const auto part_of = [&](int step) {
    return all.Part(step % 10 * 32 + comm.rank() * part, part);
  };
  Trained trained;
  const Samples first = part_of(1);
  COHORT_CHECK(network->Prefetch(first.inputs, first.labels).ok());
  for (int step = 1; step <= steps; ++step) {
    COHORT_CHECK(network->Backward(loss_scale).ok());
    // Beside the step.
    const Samples next = part_of(step + 1);
    COHORT_CHECK(network->Prefetch(next.inputs, next.labels).ok());
    const absl::Status reduced = network->Reduce();
    COHORT_CHECK(reduced.ok()) << reduced;
    const auto finite = network->AllFinite();
    COHORT_CHECK(finite.ok() && *finite);
    COHORT_CHECK(network->Update({.lr = 0.01}, step, 1 / loss_scale).ok());
    trained.losses.push_back(*network->Loss());
    COHORT_CHECK(network->AwaitPrefetch().ok());
  }
  const auto saved = network->Save();
  COHORT_CHECK(saved.ok()) << saved.status();
  for (const SavedTensor& tensor : *saved) {
    trained.parameters.push_back(tensor.parameter);
  }
  // More samples than fit into a batch.
  trained.correct = *network->CountCorrect(all.inputs, all.labels);
  return trained;
}

class NetworkPrecisionTest : public ::testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(Types, NetworkPrecisionTest,
                         ::testing::Values(DType::kF32, DType::kF16,
                                           DType::kBF16),
                         [](const auto& test) {
                           return std::string(ToString(test.param));
                         });

TEST_P(NetworkPrecisionTest, Learns) {
  CpuDevice cpu;
  LocalComm comm;
  const Trained trained = Train(cpu, comm, GetParam());
  EXPECT_GT(trained.losses.front(), 1.2);
  EXPECT_LT(trained.losses.back(), 0.8);
  EXPECT_GT(trained.correct, 320 * 2 / 3);
}

// NW-1
TEST_P(NetworkPrecisionTest, RanksAgreeBitForBitAndWithOneOfTheWholeBatch) {
  CpuDevice cpu;
  LocalComm comm;
  const Trained one = Train(cpu, comm, GetParam());
  std::vector<Trained> ranks(2);
  trainer::RunThreadGang(2, [&](Comm& gang) {
    CpuDevice mine;
    ranks[gang.rank()] = Train(mine, gang, GetParam());
  });
  EXPECT_EQ(ranks[0].parameters, ranks[1].parameters);
  const double tolerance = GetParam() == DType::kF32 ? 1e-3 : 0.1;
  for (size_t step = 0; step < one.losses.size(); ++step) {
    EXPECT_NEAR((ranks[0].losses[step] + ranks[1].losses[step]) / 2,
                one.losses[step], tolerance)
        << step;
  }
}

// NW-1: a fake GPU, whose kernels are the CPU's, alone and over shared memory,
// through which gradients are staged.
TEST_P(NetworkPrecisionTest, GivesTheSameBitsOnAGpuThatReducesOnTheHost) {
  for (const int world : {1, 2}) {
    std::vector<Trained> on_cpu(world), on_gpu(world);
    trainer::RunThreadGang(world, [&](Comm& comm) {
      CpuDevice cpu;
      on_cpu[comm.rank()] = Train(cpu, comm, GetParam(), 10);
      trainer::cuda::FakeDriver driver;
      auto gpu = OpenFakeGpu(driver);
      COHORT_ASSERT_OK(gpu);
      on_gpu[comm.rank()] = Train(**gpu, comm, GetParam(), 10);
    });
    for (int rank = 0; rank < world; ++rank) {
      EXPECT_EQ(on_gpu[rank].losses, on_cpu[rank].losses);
      EXPECT_EQ(on_gpu[rank].parameters, on_cpu[rank].parameters);
    }
  }
}

// In place in the communicator's memory, bucket by bucket beside the backward
// pass.  The fake NCCL adds in rank order, as shared memory does.
TEST_P(NetworkPrecisionTest, GivesTheSameBitsOverNccl) {
  constexpr int kWorld = 2;
  std::vector<Trained> on_cpu(kWorld), on_gpu(kWorld);
  trainer::RunThreadGang(kWorld, [&](Comm& comm) {
    CpuDevice cpu;
    on_cpu[comm.rank()] = Train(cpu, comm, GetParam(), 10);
  });
  trainer::GpuWorld gang(kWorld);
  gang.Run([&](int rank, trainer::GpuComm& comm) {
    auto gpu = OpenFakeGpu(gang.driver(rank));
    COHORT_ASSERT_OK(gpu);
    on_gpu[rank] = Train(**gpu, comm, GetParam(), 10);
    // The buckets of three layers, in ten steps: none waited for the others.
    EXPECT_GE(gang.nccl(rank).faults().Count("ncclAllReduce"), 30);
  });
  for (int rank = 0; rank < kWorld; ++rank) {
    EXPECT_EQ(on_gpu[rank].parameters, on_cpu[rank].parameters);
    EXPECT_EQ(on_gpu[rank].losses, on_cpu[rank].losses);
  }
}

// The next samples come up beside a backward pass; those behind them not before
// it has read the ones whose place they take.
TEST(NetworkTest, PrefetchesBesideABackwardPassAndBehindTheOneBefore) {
  trainer::cuda::FakeDriver driver;
  AddKernels(driver);
  auto table = std::make_shared<trainer::cuda::DriverTable>(*driver.table());
  std::vector<trainer::cuda::Stream> streams;  // the kernels' is the first
  table->cuStreamCreate = [&, real = driver.table()](auto* stream,
                                                     unsigned flags) {
    const auto made = real->cuStreamCreate(stream, flags);
    streams.push_back(*stream);
    return made;
  };
  const Samples samples = Draw(32);
  auto gpu = GpuDevice::Open(table, 0, FakeImage(),
                             /*patience=*/absl::Seconds(1));
  COHORT_ASSERT_OK(gpu);
  LocalComm comm;
  const auto network = NewNetwork(**gpu, comm, Options(DType::kF32));
  COHORT_ASSERT_OK(network->Prefetch(samples.inputs, samples.labels));
  std::atomic<bool> go{false};
  trainer::cuda::FakeDriver::Enqueue(streams.at(0), [&go] { go.wait(false); });
  COHORT_EXPECT_OK(network->Backward(1));
  COHORT_EXPECT_OK(network->Prefetch(samples.inputs, samples.labels));
  COHORT_EXPECT_OK(network->AwaitPrefetch());
  COHORT_EXPECT_OK(network->Backward(1));
  COHORT_EXPECT_OK(network->Prefetch(samples.inputs, samples.labels));
  EXPECT_THAT(network->AwaitPrefetch(),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  go.store(true);
  go.notify_all();
  while (!network->AwaitPrefetch().ok()) {
  }
}

// LS-1: the scale is too large for one rank's samples.
TEST(NetworkTest, AllRanksHearOfOnesOverflow) {
  std::vector<std::vector<bool>> verdicts(2);
  trainer::RunThreadGang(2, [&](Comm& comm) {
    CpuDevice cpu;
    const auto network = NewNetwork(cpu, comm, Options(DType::kF16));
    Samples samples = Draw(8);
    for (const float factor :
         {1.0f, comm.rank() == 1 ? 60000.0f : 1.0f, 1.0f}) {
      Samples scaled = samples;
      for (float& input : scaled.inputs) input *= factor;
      COHORT_ASSERT_OK(Backward(*network, scaled, 65536));
      COHORT_ASSERT_OK(network->Reduce());
      const auto finite = network->AllFinite();
      COHORT_ASSERT_OK(finite);
      verdicts[comm.rank()].push_back(*finite);
    }
  });
  EXPECT_THAT(verdicts, Each(std::vector<bool>{true, false, true}));
}

TEST(NetworkTest, RefusesWhatDoesNotFit) {
  CpuDevice cpu;
  LocalComm comm;
  EXPECT_THAT(Network::Create(cpu, comm, {.shape = {.hidden = 0}}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  const auto network = NewNetwork(cpu, comm, Options(DType::kF32));
  auto saved = network->Save();
  COHORT_ASSERT_OK(saved);
  auto renamed = *saved;
  renamed[0].name = "conv.weight";
  EXPECT_THAT(
      network->Load(renamed),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("conv.weight")));
  saved->pop_back();
  EXPECT_THAT(network->Load(*saved),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(NetworkTest, RefusesAGpusCommunicatorOnACpu) {
  trainer::GpuWorld gang(1);
  gang.Run([](int, trainer::GpuComm& comm) {
    CpuDevice cpu;
    EXPECT_THAT(
        Network::Create(cpu, comm, {.shape = kSmall}),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the GPU's")));
  });
}

// A device that fails in the middle of a backward pass is told by Reduce.
TEST(NetworkTest, TellsWhatItsGpuSays) {
  trainer::GpuWorld gang(1);
  gang.Run([&gang](int, trainer::GpuComm& comm) {
    auto gpu = OpenFakeGpu(gang.driver(0));
    COHORT_ASSERT_OK(gpu);
    const auto network = NewNetwork(**gpu, comm, Options(DType::kBF16));
    const Samples samples = Draw(8);
    COHORT_ASSERT_OK(Backward(*network, samples, 1));
    gang.driver(0).faults().FailAlways("cuEventQuery",
                                       trainer::cuda::kIllegalAddress);
    EXPECT_THAT(network->Reduce(),
                StatusIs(absl::StatusCode::kUnavailable,
                         HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS")));
    gang.driver(0).faults().Release();
  });
}

// A revoked epoch is told while the device is at work; the memory into which it
// writes is kept until it is not.
TEST(NetworkTest, HearsOfItsGangAndWaitsBeforeMemoryGoes) {
  trainer::GpuWorld gang(1);
  gang.Run([&gang](int, trainer::GpuComm& comm) {
    trainer::cuda::FakeDriver& driver = gang.driver(0);
    AddKernels(driver);
    auto table = std::make_shared<trainer::cuda::DriverTable>(*driver.table());
    std::vector<trainer::cuda::Stream> streams;  // the kernels' is the first
    table->cuStreamCreate = [&, real = driver.table()](auto* stream,
                                                       unsigned flags) {
      const auto made = real->cuStreamCreate(stream, flags);
      streams.push_back(*stream);
      return made;
    };
    auto gpu = GpuDevice::Open(table, 0, FakeImage());
    COHORT_ASSERT_OK(gpu);
    auto network = NewNetwork(**gpu, comm, Options(DType::kF32));
    std::atomic<bool> go{false};
    trainer::cuda::FakeDriver::Enqueue(streams.at(0),
                                       [&go] { go.wait(false); });
    COHORT_EXPECT_OK(Backward(*network, Draw(8), 1));
    comm.Revoke();
    EXPECT_THAT(network->Reduce(), StatusIs(absl::StatusCode::kAborted));
    const int looks = driver.faults().Count("cuEventQuery");
    std::thread device([&] {
      while (driver.faults().Count("cuEventQuery") < looks + 3) {
        std::this_thread::yield();
      }
      go.store(true);
      go.notify_all();
    });
    network.reset();
    EXPECT_TRUE(go.load()) << "it did not wait";
    device.join();
  });
}

}  // namespace
}  // namespace cohort::mlp

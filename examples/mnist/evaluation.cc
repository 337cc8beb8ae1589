#include "examples/mnist/evaluation.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torch/types.h"
#include "torch/utils.h"

#include "common/status_macros.h"
#include "common/status_util.h"
#include "examples/program.h"
#include "examples/torch/device.h"
#include "trainer/checkpoint.h"
#include "trainer/local_comm.h"
#include "trainer/torch/device_memory.h"
#include "trainer/torch/state_dict.h"
#include "trainer/torch/torch_status.h"

namespace cohort::mnist {
namespace {

constexpr int64_t kTestBatch = 500;

absl::StatusOr<int64_t> CountBatch(NetImpl& net, const IdxDataset& dataset,
                                   Precision precision, torch::Device device,
                                   int64_t begin) {
  const auto size =
      static_cast<size_t>(std::min(kTestBatch, dataset.size() - begin));
  std::vector<int64_t> ids(size);
  std::iota(ids.begin(), ids.end(), begin);
  std::vector<int64_t> labels(size);
  std::vector<float> pixels(size * static_cast<size_t>(dataset.input_size()));
  COHORT_RETURN_IF_ERROR(dataset.Read(ids, pixels, labels));
  int64_t correct = 0;
  COHORT_RETURN_IF_ERROR(examples::OnDevice(device, "a batch of the test", [&] {
    const torch::NoGradGuard no_gradients;
    const torch::Tensor guesses =
        net.forward(ImagesOf(pixels, dataset, precision, device))
            .argmax(1)
            .cpu();
    const auto* guess = guesses.data_ptr<int64_t>();
    for (size_t i = 0; i < size; ++i) {
      correct += guess[i] == labels[i] ? 1 : 0;
    }
    return absl::OkStatus();
  }));
  return correct;
}

// What the checkpoint's weights say about the network they belong to.
struct SavedNet {
  NetShape shape;
  Precision precision = Precision::kFloat32;
};

absl::StatusOr<SavedNet> ShapeOf(const trainer::SafetensorsFile& model) {
  COHORT_ASSIGN_OR_RETURN(const trainer::TensorView conv,
                          model.Find("conv.weight"));
  COHORT_ASSIGN_OR_RETURN(const trainer::TensorView fc1,
                          model.Find("fc1.weight"));
  if (conv.shape.size() != 4 || fc1.shape.size() != 2 || conv.shape[0] < 1 ||
      fc1.shape[0] < 1) {
    return absl::InvalidArgumentError("it is no checkpoint of mnist");
  }
  SavedNet saved;
  saved.shape = {.channels = conv.shape[0], .hidden = fc1.shape[0]};
  saved.precision = conv.type == trainer::TensorType::kF64
                        ? Precision::kFloat64
                        : Precision::kFloat32;
  return saved;
}

}  // namespace

torch::Tensor ImagesOf(std::span<float> pixels, const IdxDataset& dataset,
                       Precision precision, torch::Device device) {
  const auto count = static_cast<int64_t>(pixels.size()) / dataset.input_size();
  const torch::Tensor images = torch_adapter::Upload(
      torch::from_blob(pixels.data(),
                       {count, 1, dataset.rows(), dataset.columns()},
                       torch::kFloat32),
      device);
  return precision == Precision::kFloat64 ? images.to(torch::kFloat64) : images;
}

absl::StatusOr<int64_t> CountCorrect(NetImpl& net, const IdxDataset& dataset,
                                     Precision precision, torch::Device device,
                                     trainer::Comm& comm) {
  std::vector<int64_t> correct(1);
  int64_t batch = 0;
  for (int64_t begin = 0; begin < dataset.size(); begin += kTestBatch) {
    if (batch++ % comm.world() != comm.rank()) continue;
    COHORT_ASSIGN_OR_RETURN(const int64_t in_batch,
                            CountBatch(net, dataset, precision, device, begin));
    correct[0] += in_batch;
  }
  COHORT_RETURN_IF_ERROR(comm.AllReduce(trainer::Buffer::Of(std::span(correct)),
                                        trainer::ReduceOp::kSum,
                                        absl::Minutes(10)));
  return correct[0];
}

double Percent(int64_t correct, int64_t all) {
  return 100.0 * static_cast<double>(correct) / static_cast<double>(all);
}

absl::Status Evaluate(const TrainOptions& options, torch::Device device) {
  COHORT_ASSIGN_OR_RETURN(const trainer::Checkpoint checkpoint,
                          trainer::ReadCheckpoint(options.evaluate));
  const auto model = checkpoint.Find("model");
  if (!model.ok()) return Annotate(model.status(), options.evaluate);
  const absl::StatusOr<SavedNet> saved = ShapeOf(**model);
  if (!saved.ok()) return Annotate(saved.status(), options.evaluate);
  std::optional<NetImpl> net;
  COHORT_RETURN_IF_ERROR(torch_adapter::CatchTorch([&] {
    net.emplace(saved->shape);
    if (saved->precision == Precision::kFloat64) net->to(torch::kFloat64);
    return absl::OkStatus();
  }));
  COHORT_RETURN_IF_ERROR(
      Annotate(torch_adapter::LoadStateDict(**model, *net), options.evaluate));
  COHORT_RETURN_IF_ERROR(
      examples::OnDevice(device, "copying the network there", [&] {
        net->to(device);
        return absl::OkStatus();
      }));
  COHORT_ASSIGN_OR_RETURN(
      const std::unique_ptr<IdxDataset> dataset,
      IdxDataset::Open(options.data, "t10k", options.test_samples));
  trainer::LocalComm comm;
  COHORT_ASSIGN_OR_RETURN(
      const int64_t correct,
      CountCorrect(*net, *dataset, saved->precision, device, comm));
  examples::Say(absl::StrFormat("test accuracy: %.2f %%",
                                Percent(correct, dataset->size())));
  return absl::OkStatus();
}

}  // namespace cohort::mnist

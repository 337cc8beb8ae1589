#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "examples/mnist/idx_dataset.h"
#include "examples/mnist/net.h"
#include "examples/mnist/options.h"
#include "trainer/comm/comm.h"

namespace cohort::mnist {

// A batch as the network takes it, on its device.  On the CPU the tensor
// borrows `pixels` in float32.
torch::Tensor ImagesOf(std::span<float> pixels, const IdxDataset& dataset,
                       Precision precision, torch::Device device);

// Images of `dataset` that `net` names right, counted exactly over the gang.
//
// Batches are the same whatever the world, dealt out in turn; so the count is
// that of any other gang, and of --evaluate.
absl::StatusOr<int64_t> CountCorrect(NetImpl& net, const IdxDataset& dataset,
                                     Precision precision, torch::Device device,
                                     trainer::Comm& comm);

// correct of all, in percent.
double Percent(int64_t correct, int64_t all);

// Prints the test accuracy of the checkpoint that the options name.
absl::Status Evaluate(const TrainOptions& options, torch::Device device);

}  // namespace cohort::mnist

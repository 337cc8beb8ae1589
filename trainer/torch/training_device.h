#pragma once

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "torch/types.h"

#include "trainer/hang_guard.h"
#include "trainer/torch/gradient_sync.h"
#include "trainer/torch/torch_status.h"

// What a training on LibTorch has to do with its device.
namespace cohort::torch_adapter {

// The GPU that was granted if `use_gpu`, else the CPU; on the thread that
// trains, before the gang meets, so that a rank without a GPU says so at once.
// Errors are OpenGpu's; a driver that does not come back ends the process.
absl::StatusOr<torch::Device> OpenDevice(bool use_gpu);

// Runs `body`, as CatchTorch does, where it waits for `device` inside of
// LibTorch, which knows no deadline: copies of weights, of results.  On a GPU
// the process ends when that is not over after `timeout` (HangGuard).
template <typename Body>
absl::Status OnDevice(torch::Device device, absl::string_view what, Body&& body,
                      absl::Duration timeout = kPassTimeout) {
  std::optional<trainer::HangGuard> guard;
  if (!device.is_cpu()) {
    guard.emplace(absl::StrCat(device.str(), ": ", what), timeout);
  }
  return CatchTorch(std::forward<Body>(body));
}

// The loss of a step on the host.  It waits for all that the step began, so
// what a GPU did wrong on the way is told here: INTERNAL.
absl::StatusOr<double> ReadLoss(const torch::Tensor& loss);

}  // namespace cohort::torch_adapter

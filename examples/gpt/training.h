#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/clock.h"
#include "examples/gpt/model.h"
#include "examples/gpt/options.h"
#include "examples/gpt/text.h"
#include "examples/loss_log.h"
#include "trainer/checkpoint.h"
#include "trainer/sampler.h"
#include "trainer/session.h"
#include "trainer/torch/adam.h"
#include "trainer/torch/distributed_data_parallel.h"

namespace cohort::gpt {

// One rank's training of the model, from the start or from the session's
// checkpoint, to the end.
//
//   GT-1: on CPUs, with one seed, world and set of options the weights at a
//   step
//         are the same bits, however often the gang was started again on the
//         way.
//   GT-2: with one seed, `world * batch` windows a step give the losses of any
//         other split of that number, up to rounding.
//
// Prints what people want to see to stdout, flushed line by line.
// Thread-compatible; session and clock must outlive it.
class Training {
 public:
  Training(const TrainOptions& options, trainer::Session& session,
           torch::Device device, const Clock& clock)
      : options_(options), session_(session), device_(device), clock_(clock) {}

  // Reads text and checkpoint, trains to the end, leaves the last checkpoint
  // behind, and shows what the model writes.  Every rank calls it once, alike.
  // InvalidArgument when the checkpoint is of another model, seed or text, or
  // when --loss-log cannot be written; else the errors of text, device, disk
  // and gang.
  absl::Status Run();

 private:
  using Model = torch_adapter::DistributedDataParallel<GptImpl>;

  absl::Status Prepare();
  absl::Status LoadText();
  absl::Status BuildModel();
  absl::Status Restore(const trainer::Checkpoint& checkpoint);

  // Trains the rest of the epoch; false when --steps said stop in it.
  absl::StatusOr<bool> RunEpoch();
  absl::Status Step(std::span<const int64_t> windows);
  // The mean cross entropy of a byte in those windows.
  torch::Tensor LossOf(Part part, std::span<const int64_t> windows);
  void MeasureSpeed();
  absl::Status EndEpoch();
  // Over all of the text that is not trained on, a share a rank.
  absl::Status Validate();
  absl::Status Report(double loss);
  absl::Status SaveCheckpoint();
  absl::Status ShowSample();

  bool ReachedSteps() const {
    return options_.steps > 0 && step_ >= options_.steps;
  }
  // The one that the last step was of, from 1.
  int64_t EpochOfLastStep() const { return cursor_ > 0 ? epoch_ + 1 : epoch_; }

  const TrainOptions options_;
  trainer::Session& session_;
  const torch::Device device_;
  const Clock& clock_;

  std::unique_ptr<Text> text_;
  std::optional<trainer::DistributedSampler> sampler_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<torch_adapter::Adam> optimizer_;
  examples::LossLog loss_log_;

  // Where the run stands; what a checkpoint keeps.
  int64_t step_ = 0;
  int64_t epoch_ = 0;
  int64_t cursor_ = 0;
  std::vector<double> losses_;  // a step

  int64_t saved_step_ = -1;
  std::optional<double> validation_loss_;
  int64_t validated_step_ = -1;
  // Of the epoch in this process.
  absl::Duration epoch_start_;
  int64_t epoch_start_cursor_ = 0;
  double bytes_per_s_ = 0;  // until its last step
};

}  // namespace cohort::gpt

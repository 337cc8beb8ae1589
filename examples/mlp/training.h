#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/clock.h"
#include "examples/mlp/device.h"
#include "examples/mlp/network.h"
#include "examples/mlp/options.h"
#include "trainer/checkpoint.h"
#include "trainer/idx_dataset.h"
#include "trainer/loader.h"
#include "trainer/loss_scaler.h"
#include "trainer/session.h"

namespace cohort::mlp {

// One rank's training of the network, from the start or from the session's
// checkpoint, to the end.
//
//   ML-1: on CPUs, with one seed, world and set of options the weights at a
//   step
//         are the same bits, however often the gang was started again on the
//         way.
//   ML-2: a step is taken by all ranks or by none (LS-1).
//
// Prints what people want to see to stdout, flushed line by line.
// Thread-compatible, on the device's thread; session, device and clock must
// outlive it.
class Training {
 public:
  // Every rank calls it alike.  InvalidArgument when the checkpoint is of
  // another network, seed or data, or when --loss-log cannot be written; else
  // the errors of data, device, disk and gang.
  static absl::StatusOr<std::unique_ptr<Training>> Create(
      const TrainOptions& options, trainer::Session& session, Device& device,
      const Clock& clock);

  // Trains to the end, evaluates, and leaves the last checkpoint behind.
  absl::Status Run();

 private:
  Training(const TrainOptions& options, trainer::Session& session,
           Device& device, const Clock& clock)
      : options_(options), session_(session), device_(device), clock_(clock) {}

  absl::Status LoadData();
  absl::Status BuildNetwork();
  absl::Status Restore(const trainer::Checkpoint& checkpoint);
  absl::Status OpenLossLog();

  // Trains the rest of the epoch; false when --steps said stop in it.
  absl::StatusOr<bool> RunEpoch();
  // The batch of the next step, on its way to the device; none at the epoch's
  // end.
  absl::StatusOr<std::optional<trainer::Batch>> Prefetch();
  // What is left of a step whose backward pass was begun.
  absl::Status FinishStep(const trainer::Batch& batch);
  // Takes the step, or leaves it out when its gradients overflowed.
  absl::Status Update();
  absl::StatusOr<double> GlobalLoss();
  absl::Status EndEpoch();
  // In percent, over all ranks' parts of the test data.
  absl::Status MeasureAccuracy();
  absl::Status Report(double loss);
  absl::Status SaveCheckpoint();

  bool ReachedSteps() const {
    return options_.steps > 0 && step_ >= options_.steps;
  }
  double SamplesPerSecond() const;

  const TrainOptions options_;
  trainer::Session& session_;
  Device& device_;
  const Clock& clock_;

  std::unique_ptr<trainer::IdxDataset> train_;
  std::unique_ptr<trainer::IdxDataset> test_;
  std::unique_ptr<trainer::Loader> loader_;
  std::unique_ptr<Network> network_;
  // For fp16.
  std::optional<trainer::LossScaler> scaler_;
  std::ofstream loss_log_;

  // Where the run stands; what a checkpoint keeps.
  int64_t step_ = 0;
  int64_t updates_ = 0;  // steps that were taken: Adam's count
  int64_t epoch_ = 0;
  int64_t cursor_ = 0;

  int64_t saved_step_ = -1;
  // A rank of the gang is to be gone by a deadline (GangStep); once it was, a
  // checkpoint is written for it.
  bool is_leaving_ = false;
  bool saved_to_leave_ = false;
  std::optional<double> accuracy_;
  // Of the epoch in this process.
  absl::Duration epoch_start_;
  int64_t epoch_start_cursor_ = 0;
  double epoch_loss_ = 0;  // sum over its steps whose loss is a number
  int64_t epoch_steps_ = 0;
};

}  // namespace cohort::mlp

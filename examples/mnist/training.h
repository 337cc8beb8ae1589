#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/clock.h"
#include "examples/loss_log.h"
#include "examples/mnist/idx_dataset.h"
#include "examples/mnist/loss_curve.h"
#include "examples/mnist/net.h"
#include "examples/mnist/options.h"
#include "trainer/checkpoint.h"
#include "trainer/loader.h"
#include "trainer/session.h"
#include "trainer/torch/adam.h"
#include "trainer/torch/distributed_data_parallel.h"

namespace cohort::mnist {

// One rank's training of the network, from the start or from the session's
// checkpoint, to the end.
//
//   TR-1: on CPUs, with one seed, world and set of options the weights at a
//   step
//         are the same bits, however often the gang was started again on the
//         way.
//   TR-2: with one seed, `world * batch` samples a step give the losses of any
//         other split of that number, up to rounding.
//
// Prints what people want to see to stdout, flushed line by line.
// Thread-compatible; session and clock must outlive it.
class Training {
 public:
  Training(const TrainOptions& options, trainer::Session& session,
           torch::Device device, const Clock& clock)
      : options_(options), session_(session), device_(device), clock_(clock) {}

  // Reads data and checkpoint, trains to the end, evaluates, and leaves the
  // last checkpoint behind.  Every rank calls it once, alike.  InvalidArgument
  // when the checkpoint is of another network, seed or data, or when --loss-log
  // or --svg cannot be written; else the errors of data, device, disk and gang.
  absl::Status Run();

 private:
  using Model = torch_adapter::DistributedDataParallel<NetImpl>;

  absl::Status Prepare();
  absl::Status LoadData();
  absl::Status BuildModel();
  absl::Status Restore(const trainer::Checkpoint& checkpoint);
  absl::Status RestoreHistory(const trainer::SafetensorsFile& file);
  // That the picture can be written, before hours of training.
  absl::Status CheckCurve() const;

  // Trains the rest of the epoch; false when --steps said stop in it.
  absl::StatusOr<bool> RunEpoch();
  absl::Status Step(trainer::Batch& batch);
  absl::Status EndEpoch(int64_t samples, uint64_t hash);
  absl::Status MeasureAccuracy();
  // The mean over the steps of the epoch that runs.
  double EpochLoss() const;
  absl::Status Report(double loss);
  absl::Status SaveCheckpoint();
  absl::Status WriteCurve();

  bool ReachedSteps() const {
    return options_.steps > 0 && step_ >= options_.steps;
  }
  double SamplesPerSecond() const;

  const TrainOptions options_;
  trainer::Session& session_;
  const torch::Device device_;
  const Clock& clock_;

  std::unique_ptr<IdxDataset> train_;
  std::unique_ptr<IdxDataset> test_;
  std::unique_ptr<trainer::Loader> loader_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<torch_adapter::Adam> optimizer_;
  examples::LossLog loss_log_;

  // Where the run stands; what a checkpoint keeps.
  int64_t step_ = 0;
  int64_t epoch_ = 0;
  int64_t cursor_ = 0;
  LossHistory history_;

  int64_t saved_step_ = -1;
  // A rank of the gang is to be gone by a deadline (GangStep); once it was, a
  // checkpoint is written for it.
  bool is_leaving_ = false;
  bool saved_to_leave_ = false;
  std::optional<double> accuracy_;  // in percent, the last one measured
  // Of the epoch in this process: for samples a second.
  absl::Duration epoch_start_;
  int64_t epoch_start_cursor_ = 0;
};

}  // namespace cohort::mnist

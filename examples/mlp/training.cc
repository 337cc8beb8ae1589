#include "examples/mlp/training.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/status_macros.h"
#include "common/status_util.h"
#include "examples/gang_loss.h"
#include "examples/program.h"
#include "examples/restore.h"

namespace cohort::mlp {
namespace {

using examples::Say;
using trainer::Batch;
using trainer::Buffer;
using trainer::CheckpointManifest;
using trainer::DType;
using trainer::IdxDataset;
using trainer::SafetensorsFile;
using trainer::TensorType;
using trainer::TensorView;

constexpr absl::Duration kPatience =
    absl::Seconds(trainer::kGangPatienceSeconds);
constexpr char kStep[] = "step";

// What must be the same for a run to go on exactly.
std::map<std::string, std::string> RunFacts(const TrainOptions& options,
                                            int64_t train_samples) {
  return {
      {"batch", absl::StrCat(options.batch)},
      {"hidden", absl::StrCat(options.hidden)},
      {"layers", absl::StrCat(options.hidden_layers)},
      {"lr", absl::StrFormat("%.17g", options.lr)},
      {"precision", std::string(trainer::ToString(options.precision))},
      {"train_samples", absl::StrCat(train_samples)},
  };
}

TensorView ViewOf(const std::string& prefix, const SavedTensor& tensor,
                  const std::vector<float>& values) {
  return {prefix + tensor.name, TensorType::kF32, tensor.shape,
          std::as_bytes(std::span(values))};
}

// Fills `values`, whose size is `tensor`'s, from a file.
absl::Status ReadTensor(const SafetensorsFile& file, const std::string& name,
                        const SavedTensor& tensor, std::vector<float>& values) {
  COHORT_ASSIGN_OR_RETURN(const TensorView view, file.Find(name));
  if (view.type != TensorType::kF32 || view.shape != tensor.shape) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " in the checkpoint is of another type or shape"));
  }
  std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Training>> Training::Create(
    const TrainOptions& options, trainer::Session& session, Device& device,
    const Clock& clock) {
  std::unique_ptr<Training> training(
      new Training(options, session, device, clock));
  COHORT_RETURN_IF_ERROR(training->LoadData());
  COHORT_RETURN_IF_ERROR(training->BuildNetwork());
  COHORT_RETURN_IF_ERROR(examples::RestoreRun(
      session, [&training](const trainer::Checkpoint& checkpoint) {
        return training->Restore(checkpoint);
      }));
  COHORT_RETURN_IF_ERROR(training->OpenLossLog());
  return training;
}

absl::Status Training::LoadData() {
  COHORT_ASSIGN_OR_RETURN(
      train_, IdxDataset::Open(options_.data, "train", options_.train_samples));
  COHORT_ASSIGN_OR_RETURN(
      test_, IdxDataset::Open(options_.data, "t10k", options_.test_samples));
  if (train_->input_size() != test_->input_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        options_.data, " has images of ", train_->input_size(),
        " pixels to train and of ", test_->input_size(), " to test"));
  }
  COHORT_ASSIGN_OR_RETURN(
      loader_, trainer::Loader::Create(*train_,
                                       {.dataset_size = train_->size(),
                                        .world = session_.world(),
                                        .rank = session_.rank(),
                                        .seed = options_.seed},
                                       {.batch_size = options_.batch,
                                        .memory = &device_.batch_memory()}));
  return absl::OkStatus();
}

absl::Status Training::BuildNetwork() {
  COHORT_ASSIGN_OR_RETURN(
      network_,
      Network::Create(device_, session_.comm(),
                      {.shape = {.inputs = train_->input_size(),
                                 .hidden = options_.hidden,
                                 .hidden_layers = options_.hidden_layers,
                                 .classes = trainer::kIdxClasses},
                       .precision = options_.precision,
                       .batch_max = options_.batch,
                       .seed = options_.seed}));
  if (options_.precision == DType::kF16) {
    COHORT_ASSIGN_OR_RETURN(scaler_, trainer::LossScaler::Create());
  }
  return absl::OkStatus();
}

absl::Status Training::Restore(const trainer::Checkpoint& checkpoint) {
  const CheckpointManifest& manifest = checkpoint.manifest;
  COHORT_RETURN_IF_ERROR(trainer::CheckSameRun(
      manifest, options_.seed, RunFacts(options_, train_->size())));
  COHORT_ASSIGN_OR_RETURN(const auto* model, checkpoint.Find("model"));
  COHORT_ASSIGN_OR_RETURN(const auto* optimizer, checkpoint.Find("optimizer"));
  // For names and shapes; its values are replaced.
  COHORT_ASSIGN_OR_RETURN(std::vector<SavedTensor> tensors, network_->Save());
  for (SavedTensor& tensor : tensors) {
    COHORT_RETURN_IF_ERROR(
        ReadTensor(*model, tensor.name, tensor, tensor.parameter));
    COHORT_RETURN_IF_ERROR(ReadTensor(*optimizer, "exp_avg." + tensor.name,
                                      tensor, tensor.exp_avg));
    COHORT_RETURN_IF_ERROR(ReadTensor(*optimizer, "exp_avg_sq." + tensor.name,
                                      tensor, tensor.exp_avg_sq));
  }
  COHORT_ASSIGN_OR_RETURN(const TensorView updates, optimizer->Find(kStep));
  if (updates.type != TensorType::kI64 ||
      updates.bytes.size() != sizeof(updates_)) {
    return absl::InvalidArgumentError("the optimizer's step is no int64");
  }
  if (manifest.scaler.has_value() != scaler_.has_value()) {
    return absl::InvalidArgumentError("the checkpoint holds no loss scale");
  }
  if (scaler_) COHORT_RETURN_IF_ERROR(scaler_->Restore(*manifest.scaler));
  COHORT_RETURN_IF_ERROR(network_->Load(tensors));
  std::memcpy(&updates_, updates.bytes.data(), sizeof(updates_));
  step_ = saved_step_ = manifest.step;
  epoch_ = manifest.data_epoch;
  cursor_ = manifest.cursor;
  return absl::OkStatus();
}

absl::Status Training::OpenLossLog() {
  if (options_.loss_log.empty() || !session_.is_lead()) {
    return absl::OkStatus();
  }
  errno = 0;
  // What was written up to the checkpoint stays.
  loss_log_.open(options_.loss_log,
                 step_ > 0 ? std::ios::app : std::ios::trunc);
  if (loss_log_) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--loss-log ", options_.loss_log, ": ",
                   std::strerror(errno == 0 ? EIO : errno)));
}

absl::Status Training::Run() {
  bool more = !ReachedSteps();
  while (more && epoch_ < options_.epochs) {
    COHORT_ASSIGN_OR_RETURN(more, RunEpoch());
  }
  if (cursor_ > 0 || !accuracy_) {  // stopped within an epoch
    COHORT_RETURN_IF_ERROR(MeasureAccuracy());
  }
  COHORT_RETURN_IF_ERROR(SaveCheckpoint());
  if (session_.is_lead()) {
    Say(absl::StrFormat("test accuracy: %.2f %%", *accuracy_));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Training::RunEpoch() {
  COHORT_RETURN_IF_ERROR(loader_->StartEpoch(epoch_, cursor_));
  epoch_start_ = clock_.Monotonic();
  epoch_start_cursor_ = cursor_;
  epoch_loss_ = 0;
  epoch_steps_ = 0;
  COHORT_ASSIGN_OR_RETURN(std::optional<Batch> batch, Prefetch());
  while (batch) {
    COHORT_RETURN_IF_ERROR(
        network_->Backward(scaler_ ? scaler_->scale() : 1.0f));
    // Beside the backward pass; an error is told after the step.
    absl::StatusOr<std::optional<Batch>> next = Prefetch();
    COHORT_RETURN_IF_ERROR(FinishStep(*batch));
    COHORT_RETURN_IF_ERROR(next.status());
    COHORT_RETURN_IF_ERROR(network_->AwaitPrefetch());
    loader_->Recycle(*std::move(batch));
    batch = *std::move(next);
    if (!batch) break;
    if (ReachedSteps()) return false;
    if (is_leaving_ && !std::exchange(saved_to_leave_, true)) {
      COHORT_RETURN_IF_ERROR(SaveCheckpoint());
    }
  }
  COHORT_RETURN_IF_ERROR(EndEpoch());
  return !ReachedSteps();
}

absl::StatusOr<std::optional<Batch>> Training::Prefetch() {
  COHORT_ASSIGN_OR_RETURN(std::optional<Batch> batch, loader_->Next());
  if (batch) {
    COHORT_RETURN_IF_ERROR(network_->Prefetch(batch->inputs, batch->labels));
  }
  return batch;
}

absl::Status Training::FinishStep(const Batch& batch) {
  COHORT_RETURN_IF_ERROR(network_->Reduce());
  COHORT_RETURN_IF_ERROR(Update());
  COHORT_ASSIGN_OR_RETURN(const double loss, GlobalLoss());
  ++step_;
  cursor_ = batch.cursor;
  if (std::isfinite(loss)) {
    epoch_loss_ += loss;
    ++epoch_steps_;
  }
  if (loss_log_.is_open()) {
    // At once: a GPU that hangs ends the process as it is.
    loss_log_ << absl::StrFormat("%d %.17g\n", step_, loss) << std::flush;
  }
  return Report(loss);
}

absl::Status Training::Update() {
  const trainer::AdamOptions adam = {.lr = options_.lr};
  if (!scaler_) return network_->Update(adam, ++updates_, 1.0f);
  COHORT_ASSIGN_OR_RETURN(const bool finite, network_->AllFinite());
  if (finite) {
    COHORT_RETURN_IF_ERROR(
        network_->Update(adam, ++updates_, scaler_->inverse_scale()));
  }
  return scaler_->Update(finite);
}

absl::StatusOr<double> Training::GlobalLoss() {
  COHORT_ASSIGN_OR_RETURN(const double loss, network_->Loss());
  // Every rank has the same number of samples in a step: the mean of means is
  // the mean.
  COHORT_ASSIGN_OR_RETURN(const examples::GangStep done,
                          examples::AgreeOnStep(session_, loss));
  is_leaving_ = done.is_leaving;
  // In fp16 the step was left out, and the scaler says when that goes too far.
  if (!scaler_) {
    COHORT_RETURN_IF_ERROR(examples::CheckLoss(done.loss, step_ + 1));
  }
  return done.loss;
}

double Training::SamplesPerSecond() const {
  const double seconds =
      absl::ToDoubleSeconds(clock_.Monotonic() - epoch_start_);
  const auto samples = static_cast<double>(cursor_ - epoch_start_cursor_);
  return seconds > 0 ? samples / seconds : 0;
}

absl::Status Training::Report(double loss) {
  std::string metrics =
      absl::StrFormat(R"({"epoch": %d, "step": %d, "samples_per_s": %.1f)",
                      epoch_ + 1, step_, SamplesPerSecond());
  // JSON has no infinity.
  if (std::isfinite(loss))
    absl::StrAppendFormat(&metrics, R"(, "loss": %.6g)", loss);
  if (scaler_) {
    absl::StrAppendFormat(&metrics,
                          R"(, "loss_scale": %g, "skipped_steps": %d)",
                          scaler_->scale(), step_ - updates_);
  }
  if (accuracy_) {
    absl::StrAppendFormat(&metrics, R"(, "accuracy": %.2f)", *accuracy_);
  }
  absl::StrAppend(&metrics, "}");
  return session_.Report(metrics);
}

absl::Status Training::EndEpoch() {
  const double speed = SamplesPerSecond();
  const absl::Duration took = clock_.Monotonic() - epoch_start_;
  COHORT_RETURN_IF_ERROR(MeasureAccuracy());
  ++epoch_;
  cursor_ = 0;
  if (session_.is_lead()) {
    Say(absl::StrFormat(
        "epoch %d/%d  loss %.4f  accuracy %.2f %%  %.0f samples/s  %.1f s",
        epoch_, options_.epochs,
        epoch_loss_ / static_cast<double>(std::max<int64_t>(1, epoch_steps_)),
        *accuracy_, speed, absl::ToDoubleSeconds(took)));
  }
  return SaveCheckpoint();
}

absl::Status Training::MeasureAccuracy() {
  // Each rank its part of the test data.
  const int64_t begin = test_->size() * session_.rank() / session_.world();
  const int64_t end = test_->size() * (session_.rank() + 1) / session_.world();
  std::vector<int64_t> ids(static_cast<size_t>(end - begin));
  std::iota(ids.begin(), ids.end(), begin);
  std::vector<float> inputs(ids.size() *
                            static_cast<size_t>(test_->input_size()));
  std::vector<int64_t> labels(ids.size());
  COHORT_RETURN_IF_ERROR(test_->Read(ids, inputs, labels));
  std::vector<int64_t> correct(1);
  COHORT_ASSIGN_OR_RETURN(correct[0], network_->CountCorrect(inputs, labels));
  COHORT_RETURN_IF_ERROR(session_.comm().AllReduce(
      Buffer::Of(std::span(correct)), trainer::ReduceOp::kSum, kPatience));
  accuracy_ = 100.0 * static_cast<double>(correct[0]) /
              static_cast<double>(test_->size());
  return absl::OkStatus();
}

absl::Status Training::SaveCheckpoint() {
  if (!session_.is_lead() || saved_step_ == step_) return absl::OkStatus();
  const trainer::RunPlace& place = session_.place();
  CheckpointManifest manifest{.job_id = place.job_id,
                              .attempt = place.attempt,
                              .epoch = place.epoch,
                              .world = place.world,
                              .step = step_,
                              .data_epoch = epoch_,
                              .cursor = cursor_,
                              .seed = options_.seed,
                              .program = RunFacts(options_, train_->size())};
  if (scaler_) manifest.scaler = scaler_->state();
  COHORT_ASSIGN_OR_RETURN(const std::vector<SavedTensor> tensors,
                          network_->Save());
  std::vector<TensorView> model;
  std::vector<TensorView> optimizer = {
      {kStep, TensorType::kI64, {}, std::as_bytes(std::span(&updates_, 1))}};
  for (const SavedTensor& tensor : tensors) {
    model.push_back(ViewOf("", tensor, tensor.parameter));
    optimizer.push_back(ViewOf("exp_avg.", tensor, tensor.exp_avg));
    optimizer.push_back(ViewOf("exp_avg_sq.", tensor, tensor.exp_avg_sq));
  }
  COHORT_ASSIGN_OR_RETURN(
      const std::string path,
      trainer::WriteCheckpoint(place.checkpoint_root, manifest,
                               {{"model", std::move(model), {{"format", "pt"}}},
                                {"optimizer", std::move(optimizer), {}}}));
  COHORT_RETURN_IF_ERROR(session_.CommitCheckpoint(path, step_));
  saved_step_ = step_;
  Say(absl::StrCat("checkpoint: ", path));
  return absl::OkStatus();
}

}  // namespace cohort::mlp

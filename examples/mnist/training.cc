#include "examples/mnist/training.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torch/nn/functional/loss.h"
#include "torch/utils.h"

#include "common/status_macros.h"
#include "examples/gang_loss.h"
#include "examples/mnist/evaluation.h"
#include "examples/program.h"
#include "examples/restore.h"
#include "examples/torch/device.h"
#include "trainer/torch/device_memory.h"
#include "trainer/torch/state_dict.h"
#include "trainer/torch/torch_status.h"

namespace cohort::mnist {
namespace {

using examples::Say;
using trainer::Batch;
using trainer::Checkpoint;
using trainer::CheckpointManifest;
using trainer::SafetensorsFile;
using trainer::TensorType;
using trainer::TensorView;

template <typename T>
TensorView ColumnOf(const std::string& name, TensorType type,
                    const std::vector<T>& values) {
  return {name,
          type,
          {static_cast<int64_t>(values.size())},
          std::as_bytes(std::span(values))};
}

template <typename T>
absl::StatusOr<std::vector<T>> ReadColumn(const SafetensorsFile& file,
                                          const std::string& name,
                                          TensorType type) {
  COHORT_ASSIGN_OR_RETURN(const TensorView view, file.Find(name));
  if (view.type != type) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " in the checkpoint is of another type"));
  }
  std::vector<T> values(view.bytes.size() / sizeof(T));
  std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
  return values;
}

// What must be the same for a run to go on exactly.
std::map<std::string, std::string> RunFacts(const TrainOptions& options,
                                            int64_t train_samples) {
  return {
      {"batch", absl::StrCat(options.batch)},
      {"channels", absl::StrCat(options.shape.channels)},
      {"dtype",
       options.precision == Precision::kFloat64 ? "float64" : "float32"},
      {"hidden", absl::StrCat(options.shape.hidden)},
      {"lr", absl::StrFormat("%.17g", options.lr)},
      {"train_samples", absl::StrCat(train_samples)},
  };
}

}  // namespace

absl::Status Training::Prepare() {
  COHORT_RETURN_IF_ERROR(LoadData());
  COHORT_RETURN_IF_ERROR(
      torch_adapter::CatchTorch([this] { return BuildModel(); }));
  COHORT_RETURN_IF_ERROR(examples::RestoreRun(
      session_,
      [this](const Checkpoint& checkpoint) { return Restore(checkpoint); }));
  if (!session_.is_lead()) return absl::OkStatus();
  COHORT_RETURN_IF_ERROR(CheckCurve());
  return loss_log_.Open(options_.loss_log, history_.losses);
}

absl::Status Training::LoadData() {
  COHORT_ASSIGN_OR_RETURN(
      train_, IdxDataset::Open(options_.data, "train", options_.train_samples));
  COHORT_ASSIGN_OR_RETURN(
      test_, IdxDataset::Open(options_.data, "t10k", options_.test_samples));
  for (const IdxDataset* dataset : {train_.get(), test_.get()}) {
    if (dataset->rows() != 28 || dataset->columns() != 28) {
      return absl::InvalidArgumentError(
          absl::StrCat(options_.data, " has images of ", dataset->rows(), " x ",
                       dataset->columns(), ", not 28 x 28"));
    }
  }
  COHORT_ASSIGN_OR_RETURN(
      loader_, trainer::Loader::Create(*train_,
                                       {.dataset_size = train_->size(),
                                        .world = session_.world(),
                                        .rank = session_.rank(),
                                        .seed = options_.seed},
                                       {.batch_size = options_.batch}));
  return absl::OkStatus();
}

absl::Status Training::BuildModel() {
  torch::manual_seed(options_.seed);
  auto net = std::make_shared<NetImpl>(options_.shape);
  if (options_.precision == Precision::kFloat64) net->to(torch::kFloat64);
  COHORT_RETURN_IF_ERROR(
      examples::OnDevice(device_, "copying the network there", [&] {
        net->to(device_);
        return absl::OkStatus();
      }));
  COHORT_ASSIGN_OR_RETURN(model_, Model::Create(net, session_.comm()));
  COHORT_ASSIGN_OR_RETURN(
      optimizer_, torch_adapter::Adam::Create(*net, {.lr = options_.lr}));
  return absl::OkStatus();
}

absl::Status Training::Restore(const Checkpoint& checkpoint) {
  const CheckpointManifest& manifest = checkpoint.manifest;
  COHORT_RETURN_IF_ERROR(trainer::CheckSameRun(
      manifest, options_.seed, RunFacts(options_, train_->size())));
  COHORT_ASSIGN_OR_RETURN(const auto* model, checkpoint.Find("model"));
  COHORT_ASSIGN_OR_RETURN(const auto* optimizer, checkpoint.Find("optimizer"));
  COHORT_ASSIGN_OR_RETURN(const auto* history, checkpoint.Find("history"));
  const absl::Status loaded = examples::OnDevice(
      device_, "copying the checkpoint there", [&]() -> absl::Status {
        COHORT_RETURN_IF_ERROR(
            torch_adapter::LoadStateDict(*model, model_->module()));
        return optimizer_->Load(*optimizer);
      });
  COHORT_RETURN_IF_ERROR(loaded);
  COHORT_RETURN_IF_ERROR(RestoreHistory(*history));
  if (static_cast<int64_t>(history_.losses.size()) != manifest.step ||
      (!history_.epoch_ends.empty() &&
       history_.epoch_ends.back() > manifest.step)) {
    return absl::InvalidArgumentError("its history is of another run");
  }
  step_ = saved_step_ = manifest.step;
  epoch_ = manifest.data_epoch;
  cursor_ = manifest.cursor;
  return absl::OkStatus();
}

absl::Status Training::RestoreHistory(const SafetensorsFile& file) {
  COHORT_ASSIGN_OR_RETURN(history_.losses,
                          ReadColumn<double>(file, "losses", TensorType::kF64));
  COHORT_ASSIGN_OR_RETURN(
      history_.epoch_ends,
      ReadColumn<int64_t>(file, "epoch_ends", TensorType::kI64));
  COHORT_ASSIGN_OR_RETURN(
      history_.accuracies,
      ReadColumn<double>(file, "accuracies", TensorType::kF64));
  if (!history_.accuracies.empty()) accuracy_ = history_.accuracies.back();
  return absl::OkStatus();
}

absl::Status Training::CheckCurve() const {
  if (options_.svg.empty()) return absl::OkStatus();
  std::error_code error;
  const bool existed = std::filesystem::exists(options_.svg, error);
  errno = 0;
  std::ofstream file(options_.svg, std::ios::app);
  if (!file) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--svg ", options_.svg, ": ", std::strerror(errno == 0 ? EIO : errno)));
  }
  if (!existed) std::filesystem::remove(options_.svg, error);
  return absl::OkStatus();
}

absl::Status Training::Run() {
  COHORT_RETURN_IF_ERROR(Prepare());
  bool more = !ReachedSteps();
  while (more && epoch_ < options_.epochs) {
    COHORT_ASSIGN_OR_RETURN(more, RunEpoch());
  }
  if (cursor_ > 0 || !accuracy_) {  // stopped within an epoch
    COHORT_RETURN_IF_ERROR(MeasureAccuracy());
  }
  COHORT_RETURN_IF_ERROR(SaveCheckpoint());
  COHORT_RETURN_IF_ERROR(WriteCurve());
  if (session_.is_lead()) {
    Say(absl::StrFormat("test accuracy: %.2f %%", *accuracy_));
  }
  return absl::OkStatus();
}

absl::Status Training::MeasureAccuracy() {
  COHORT_ASSIGN_OR_RETURN(
      const int64_t correct,
      CountCorrect(model_->module(), *test_, options_.precision, device_,
                   session_.comm()));
  accuracy_ = Percent(correct, test_->size());
  return absl::OkStatus();
}

double Training::EpochLoss() const {
  const auto begin =
      history_.losses.begin() +
      (history_.epoch_ends.empty() ? 0 : history_.epoch_ends.back());
  const auto count = static_cast<double>(history_.losses.end() - begin);
  return std::accumulate(begin, history_.losses.end(), 0.0) / count;
}

absl::StatusOr<bool> Training::RunEpoch() {
  COHORT_RETURN_IF_ERROR(loader_->StartEpoch(epoch_, cursor_));
  epoch_start_ = clock_.Monotonic();
  epoch_start_cursor_ = cursor_;
  uint64_t hash = 0;
  for (;;) {
    COHORT_ASSIGN_OR_RETURN(std::optional<Batch> batch, loader_->Next());
    if (!batch) break;
    COHORT_RETURN_IF_ERROR(Step(*batch));
    const bool last = batch->last;
    hash = batch->hash;
    loader_->Recycle(*std::move(batch));
    if (last) break;
    if (ReachedSteps()) return false;
    const bool is_due =
        options_.checkpoint_every > 0 && step_ % options_.checkpoint_every == 0;
    if (is_due || (is_leaving_ && !std::exchange(saved_to_leave_, true))) {
      COHORT_RETURN_IF_ERROR(SaveCheckpoint());
    }
  }
  COHORT_RETURN_IF_ERROR(
      EndEpoch(loader_->epoch_size() / session_.world(), hash));
  return !ReachedSteps();
}

absl::Status Training::Step(Batch& batch) {
  model_->ZeroGradients();
  torch::Tensor loss;
  COHORT_RETURN_IF_ERROR(torch_adapter::CatchTorch([&] {
    const torch::Tensor images =
        ImagesOf(batch.inputs, *train_, options_.precision, device_);
    const torch::Tensor labels = torch_adapter::Upload(
        torch::from_blob(batch.labels.data(), {batch.size()}, torch::kInt64),
        device_);
    loss =
        torch::nn::functional::cross_entropy(model_->forward(images), labels);
    return absl::OkStatus();
  }));
  COHORT_RETURN_IF_ERROR(model_->Backward(loss));
  COHORT_RETURN_IF_ERROR(optimizer_->Step());
  // The host waits for the device here, and not for ever.
  COHORT_RETURN_IF_ERROR(model_->Settle());
  COHORT_ASSIGN_OR_RETURN(const double mine, examples::ReadLoss(loss));
  // Every rank has the same number of samples in a step: the mean of means is
  // the mean.
  COHORT_ASSIGN_OR_RETURN(const examples::GangStep done,
                          examples::AgreeOnStep(session_, mine));
  COHORT_RETURN_IF_ERROR(examples::CheckLoss(done.loss, step_ + 1));
  is_leaving_ = done.is_leaving;
  ++step_;
  cursor_ = batch.cursor;
  history_.losses.push_back(done.loss);
  loss_log_.Add(step_, done.loss);
  return Report(done.loss);
}

double Training::SamplesPerSecond() const {
  const double seconds =
      absl::ToDoubleSeconds(clock_.Monotonic() - epoch_start_);
  const auto samples = static_cast<double>(cursor_ - epoch_start_cursor_);
  return seconds > 0 ? samples / seconds : 0;
}

absl::Status Training::Report(double loss) {
  std::string metrics = absl::StrFormat(
      R"({"epoch": %d, "step": %d, "loss": %.6g, "samples_per_s": %.1f)",
      epoch_ + 1, step_, loss, SamplesPerSecond());
  if (accuracy_) {
    absl::StrAppendFormat(&metrics, ", \"accuracy\": %.2f", *accuracy_);
  }
  absl::StrAppend(&metrics, "}");
  return session_.Report(metrics);
}

absl::Status Training::EndEpoch(int64_t samples, uint64_t hash) {
  const double speed = SamplesPerSecond();
  const absl::Duration took = clock_.Monotonic() - epoch_start_;
  Say(absl::StrFormat(
      "sample ids: epoch %d rank %d of %d samples %d hash %016x", epoch_ + 1,
      session_.rank(), session_.world(), samples, hash));
  COHORT_RETURN_IF_ERROR(MeasureAccuracy());
  const double loss = EpochLoss();
  history_.epoch_ends.push_back(step_);
  history_.accuracies.push_back(*accuracy_);
  ++epoch_;
  cursor_ = 0;
  if (session_.is_lead()) {
    Say(absl::StrFormat(
        "epoch %d/%d  loss %.4f  accuracy %.2f %%  %.0f samples/s  %.1f s",
        epoch_, options_.epochs, loss, *accuracy_, speed,
        absl::ToDoubleSeconds(took)));
  }
  return SaveCheckpoint();
}

absl::Status Training::SaveCheckpoint() {
  if (!session_.is_lead() || saved_step_ == step_) return absl::OkStatus();
  const trainer::RunPlace& place = session_.place();
  const CheckpointManifest manifest{
      .job_id = place.job_id,
      .attempt = place.attempt,
      .epoch = place.epoch,
      .world = place.world,
      .step = step_,
      .data_epoch = epoch_,
      .cursor = cursor_,
      .seed = options_.seed,
      .program = RunFacts(options_, train_->size())};
  // The host waits for the device here, too.
  COHORT_ASSIGN_OR_RETURN(const torch_adapter::HostTensors model,
                          torch_adapter::StateDict(model_->module()));
  COHORT_ASSIGN_OR_RETURN(const torch_adapter::HostTensors optimizer,
                          optimizer_->State());
  std::vector<TensorView> history = {
      ColumnOf("losses", TensorType::kF64, history_.losses),
      ColumnOf("epoch_ends", TensorType::kI64, history_.epoch_ends),
      ColumnOf("accuracies", TensorType::kF64, history_.accuracies)};
  COHORT_ASSIGN_OR_RETURN(
      const std::string path,
      trainer::WriteCheckpoint(place.checkpoint_root, manifest,
                               {{"model", model.views(), {{"format", "pt"}}},
                                {"optimizer", optimizer.views(), {}},
                                {"history", std::move(history), {}}}));
  COHORT_RETURN_IF_ERROR(session_.CommitCheckpoint(path, step_));
  saved_step_ = step_;
  Say(absl::StrCat("checkpoint: ", path));
  return absl::OkStatus();
}

absl::Status Training::WriteCurve() {
  if (options_.svg.empty() || !session_.is_lead()) return absl::OkStatus();
  COHORT_RETURN_IF_ERROR(WriteLossCurve(history_, options_.svg));
  Say(absl::StrCat("loss curve: ", options_.svg));
  return absl::OkStatus();
}

}  // namespace cohort::mnist

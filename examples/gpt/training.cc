#include "examples/gpt/training.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torch/nn/functional/loss.h"
#include "torch/utils.h"

#include "common/printable_text.h"
#include "common/status_macros.h"
#include "examples/gang_loss.h"
#include "examples/gpt/sample.h"
#include "examples/program.h"
#include "examples/restore.h"
#include "trainer/torch/device_memory.h"
#include "trainer/torch/state_dict.h"
#include "trainer/torch/torch_status.h"
#include "trainer/torch/training_device.h"

namespace cohort::gpt {
namespace {

using examples::Say;
using trainer::Checkpoint;
using trainer::CheckpointManifest;
using trainer::TensorType;
using trainer::TensorView;

constexpr char kLosses[] = "losses";

// What a model wrote, which need not be UTF-8, on one line.
std::string Line(const std::string& text) {
  std::string line = OneLine(text);
  if (IsUtf8(line)) return line;
  for (char& c : line) {
    if (!absl::ascii_isascii(static_cast<unsigned char>(c))) c = '?';
  }
  return line;
}

// What must be the same for a run to go on exactly.
std::map<std::string, std::string> RunFacts(const TrainOptions& options,
                                            const Text& text) {
  return {
      {"batch", absl::StrCat(options.batch)},
      {"context", absl::StrCat(options.shape.context)},
      {"dtype", options.precision == Precision::kBF16 ? "bf16" : "f32"},
      {"heads", absl::StrCat(options.shape.heads)},
      {"layers", absl::StrCat(options.shape.layers)},
      {"lr", absl::StrFormat("%.17g", options.lr)},
      {"text_bytes", absl::StrCat(text.size())},
      {"width", absl::StrCat(options.shape.width)},
  };
}

}  // namespace

absl::Status Training::Prepare() {
  COHORT_RETURN_IF_ERROR(LoadText());
  COHORT_RETURN_IF_ERROR(
      torch_adapter::CatchTorch([this] { return BuildModel(); }));
  COHORT_RETURN_IF_ERROR(examples::RestoreRun(
      session_,
      [this](const Checkpoint& checkpoint) { return Restore(checkpoint); }));
  return session_.is_lead() ? loss_log_.Open(options_.loss_log, losses_)
                            : absl::OkStatus();
}

absl::Status Training::LoadText() {
  COHORT_ASSIGN_OR_RETURN(text_,
                          Text::Open(options_.data, options_.shape.context));
  COHORT_ASSIGN_OR_RETURN(sampler_,
                          trainer::DistributedSampler::Create(
                              {.dataset_size = text_->windows(Part::kTrain),
                               .world = session_.world(),
                               .rank = session_.rank(),
                               .seed = options_.seed}));
  return absl::OkStatus();
}

absl::Status Training::BuildModel() {
  auto gpt = std::make_shared<GptImpl>(options_.shape,
                                       options_.precision == Precision::kBF16
                                           ? torch::kBFloat16
                                           : torch::kFloat32,
                                       options_.seed);
  COHORT_RETURN_IF_ERROR(
      torch_adapter::OnDevice(device_, "copying the model there", [&] {
        gpt->to(device_);
        return absl::OkStatus();
      }));
  COHORT_ASSIGN_OR_RETURN(model_, Model::Create(gpt, session_.comm()));
  COHORT_ASSIGN_OR_RETURN(
      optimizer_, torch_adapter::Adam::Create(*gpt, {.lr = options_.lr}));
  return absl::OkStatus();
}

absl::Status Training::Restore(const Checkpoint& checkpoint) {
  const CheckpointManifest& manifest = checkpoint.manifest;
  COHORT_RETURN_IF_ERROR(trainer::CheckSameRun(manifest, options_.seed,
                                               RunFacts(options_, *text_)));
  COHORT_ASSIGN_OR_RETURN(const auto* model, checkpoint.Find("model"));
  COHORT_ASSIGN_OR_RETURN(const auto* optimizer, checkpoint.Find("optimizer"));
  COHORT_ASSIGN_OR_RETURN(const auto* history, checkpoint.Find("history"));
  const absl::Status loaded = torch_adapter::OnDevice(
      device_, "copying the checkpoint there", [&]() -> absl::Status {
        COHORT_RETURN_IF_ERROR(
            torch_adapter::LoadStateDict(*model, model_->module()));
        return optimizer_->Load(*optimizer);
      });
  COHORT_RETURN_IF_ERROR(loaded);
  COHORT_ASSIGN_OR_RETURN(const TensorView losses, history->Find(kLosses));
  if (losses.type != TensorType::kF64 ||
      losses.bytes.size() != sizeof(double) * manifest.step) {
    return absl::InvalidArgumentError("its history is of another run");
  }
  losses_.resize(manifest.step);
  std::memcpy(losses_.data(), losses.bytes.data(), losses.bytes.size());
  step_ = saved_step_ = manifest.step;
  epoch_ = manifest.data_epoch;
  cursor_ = manifest.cursor;
  return absl::OkStatus();
}

absl::Status Training::Run() {
  COHORT_RETURN_IF_ERROR(Prepare());
  bool more = !ReachedSteps();
  while (more && epoch_ < options_.epochs) {
    COHORT_ASSIGN_OR_RETURN(more, RunEpoch());
  }
  if (validated_step_ != step_) COHORT_RETURN_IF_ERROR(Validate());
  COHORT_RETURN_IF_ERROR(SaveCheckpoint());
  COHORT_RETURN_IF_ERROR(ShowSample());
  if (session_.is_lead()) {
    Say(absl::StrFormat("validation loss: %.4f (%.3f bits a byte)",
                        *validation_loss_, *validation_loss_ / std::log(2.0)));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Training::RunEpoch() {
  COHORT_RETURN_IF_ERROR(sampler_->StartEpoch(epoch_, cursor_));
  epoch_start_ = clock_.Monotonic();
  epoch_start_cursor_ = cursor_;
  for (;;) {
    const std::span<const int64_t> windows = sampler_->Take(options_.batch);
    if (windows.empty()) break;
    COHORT_RETURN_IF_ERROR(Step(windows));
    if (sampler_->remaining() == 0) break;
    if (ReachedSteps()) return false;
    if (options_.checkpoint_every > 0 &&
        step_ % options_.checkpoint_every == 0) {
      COHORT_RETURN_IF_ERROR(SaveCheckpoint());
    }
  }
  COHORT_RETURN_IF_ERROR(EndEpoch());
  return !ReachedSteps();
}

torch::Tensor Training::LossOf(Part part, std::span<const int64_t> windows) {
  std::vector<uint8_t> bytes = text_->Read(part, windows);
  const auto count = static_cast<int64_t>(windows.size());
  // Bytes go up, and are widened there.
  const torch::Tensor rows =
      torch_adapter::Upload(
          torch::from_blob(bytes.data(), {count, text_->context() + 1},
                           torch::kUInt8),
          device_)
          .to(torch::kInt64);
  const torch::Tensor logits =
      model_->forward(rows.slice(/*dim=*/1, 0, text_->context()));
  return torch::nn::functional::cross_entropy(
      logits.reshape({-1, kVocabulary}),
      rows.slice(/*dim=*/1, 1, text_->context() + 1).reshape({-1}));
}

absl::Status Training::Step(std::span<const int64_t> windows) {
  model_->ZeroGradients();
  torch::Tensor loss;
  COHORT_RETURN_IF_ERROR(torch_adapter::CatchTorch([&] {
    loss = LossOf(Part::kTrain, windows);
    return absl::OkStatus();
  }));
  COHORT_RETURN_IF_ERROR(model_->Backward(loss));
  COHORT_RETURN_IF_ERROR(optimizer_->Step());
  // The host waits for the device here, and not for ever.
  COHORT_RETURN_IF_ERROR(model_->Settle());
  COHORT_ASSIGN_OR_RETURN(const double mine, torch_adapter::ReadLoss(loss));
  // Every rank has the same number of windows in a step.
  COHORT_ASSIGN_OR_RETURN(const double global,
                          examples::MeanOverGang(session_.comm(), mine, 1));
  COHORT_RETURN_IF_ERROR(examples::CheckLoss(global, step_ + 1));
  ++step_;
  cursor_ = sampler_->cursor();
  losses_.push_back(global);
  loss_log_.Add(step_, global);
  MeasureSpeed();
  return Report(global);
}

absl::Status Training::Validate() {
  const int64_t windows = text_->windows(Part::kValidation);
  const int64_t batches = (windows + options_.batch - 1) / options_.batch;
  double sum = 0, count = 0;
  // Batches are the same whatever the world, dealt out in turn.
  for (int64_t batch = session_.rank(); batch < batches;
       batch += session_.world()) {
    const int64_t begin = batch * options_.batch;
    std::vector<int64_t> ids(
        static_cast<size_t>(std::min(options_.batch, windows - begin)));
    std::iota(ids.begin(), ids.end(), begin);
    COHORT_RETURN_IF_ERROR(torch_adapter::OnDevice(device_, "validation", [&] {
      const torch::NoGradGuard no_gradients;
      sum += LossOf(Part::kValidation, ids).item<double>() *
             static_cast<double>(ids.size());
      return absl::OkStatus();
    }));
    count += static_cast<double>(ids.size());
  }
  COHORT_ASSIGN_OR_RETURN(validation_loss_,
                          examples::MeanOverGang(session_.comm(), sum, count));
  validated_step_ = step_;
  return losses_.empty() ? absl::OkStatus() : Report(losses_.back());
}

void Training::MeasureSpeed() {
  const double seconds =
      absl::ToDoubleSeconds(clock_.Monotonic() - epoch_start_);
  const auto bytes = static_cast<double>((cursor_ - epoch_start_cursor_) *
                                         options_.shape.context);
  bytes_per_s_ = seconds > 0 ? bytes / seconds : 0;
}

absl::Status Training::Report(double loss) {
  std::string metrics = absl::StrFormat(
      R"({"epoch": %d, "step": %d, "loss": %.6g, "bytes_per_s": %.0f)",
      EpochOfLastStep(), step_, loss, bytes_per_s_);
  if (validation_loss_) {
    absl::StrAppendFormat(&metrics, R"(, "validation_loss": %.6g)",
                          *validation_loss_);
  }
  absl::StrAppend(&metrics, "}");
  return session_.Report(metrics);
}

absl::Status Training::EndEpoch() {
  const absl::Duration took = clock_.Monotonic() - epoch_start_;
  COHORT_RETURN_IF_ERROR(Validate());
  ++epoch_;
  cursor_ = 0;
  if (session_.is_lead()) {
    Say(absl::StrFormat(
        "epoch %d/%d  loss %.4f  validation %.4f  %.0f bytes/s  %.1f s", epoch_,
        options_.epochs, losses_.back(), *validation_loss_, bytes_per_s_,
        absl::ToDoubleSeconds(took)));
  }
  return SaveCheckpoint();
}

absl::Status Training::SaveCheckpoint() {
  if (!session_.is_lead() || saved_step_ == step_) return absl::OkStatus();
  const trainer::RunPlace& place = session_.place();
  const CheckpointManifest manifest{.job_id = place.job_id,
                                    .attempt = place.attempt,
                                    .epoch = place.epoch,
                                    .world = place.world,
                                    .step = step_,
                                    .data_epoch = epoch_,
                                    .cursor = cursor_,
                                    .seed = options_.seed,
                                    .program = RunFacts(options_, *text_)};
  // The host waits for the device here, too.
  COHORT_ASSIGN_OR_RETURN(const torch_adapter::HostTensors model,
                          torch_adapter::StateDict(model_->module()));
  COHORT_ASSIGN_OR_RETURN(const torch_adapter::HostTensors optimizer,
                          optimizer_->State());
  const TensorView losses = {kLosses,
                             TensorType::kF64,
                             {static_cast<int64_t>(losses_.size())},
                             std::as_bytes(std::span(losses_))};
  COHORT_ASSIGN_OR_RETURN(
      const std::string path,
      trainer::WriteCheckpoint(place.checkpoint_root, manifest,
                               {{"model", model.views(), {{"format", "pt"}}},
                                {"optimizer", optimizer.views(), {}},
                                {"history", {losses}, {}}}));
  COHORT_RETURN_IF_ERROR(session_.CommitCheckpoint(path, step_));
  saved_step_ = step_;
  Say(absl::StrCat("checkpoint: ", path));
  return absl::OkStatus();
}

absl::Status Training::ShowSample() {
  if (!session_.is_lead() || options_.sample == 0) return absl::OkStatus();
  COHORT_ASSIGN_OR_RETURN(const std::string text,
                          Sample(model_->module(), device_, options_.prompt,
                                 options_.sample, options_.seed));
  Say(absl::StrCat("sample: ", Line(options_.prompt + text)));
  return absl::OkStatus();
}

}  // namespace cohort::gpt

#include "trainer/torch/prepare.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <sstream>
#include <typeinfo>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torch/optim/adam.h"
#include "torch/serialize.h"
#include "torch/utils.h"

#include "c10/util/Type.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "trainer/checkpoint.h"
#include "trainer/torch/adam.h"
#include "trainer/torch/device_memory.h"
#include "trainer/torch/process.h"
#include "trainer/torch/state_dict.h"
#include "trainer/torch/torch_status.h"
#include "trainer/torch/training_device.h"

namespace cohort::train {
namespace {

using torch_adapter::CatchTorch;
using trainer::CheckpointFile;
using trainer::SafetensorsFile;
using trainer::TensorType;
using trainer::TensorView;

constexpr char kModel[] = "model";
constexpr char kOptimizer[] = "optimizer";
constexpr char kLearningRate[] = "lr";
constexpr char kArchive[] = "archive";

// The generators of LibTorch, and the device of this process.
class TorchBackendImpl final : public Backend {
 public:
  absl::StatusOr<std::string> Open(bool use_gpu) override {
    const torch_adapter::ComputeFacts facts = torch_adapter::PrepareProcess();
    COHORT_ASSIGN_OR_RETURN(device_, torch_adapter::OpenDevice(use_gpu));
    return absl::StrFormat("on %s, %d thread%s a rank, %s", device_.str(),
                           facts.threads, facts.threads == 1 ? "" : "s",
                           facts.blas);
  }

  absl::StatusOr<std::string> RandomState() override {
    std::string bytes;
    COHORT_RETURN_IF_ERROR(CatchTorch([&] {
      for (const torch::Device device : Devices()) {
        const torch::Tensor state =
            at::globalContext().defaultGenerator(device).get_state();
        bytes.append(static_cast<const char*>(state.data_ptr()),
                     state.nbytes());
      }
      return absl::OkStatus();
    }));
    return bytes;
  }

  absl::Status RestoreRandomState(absl::string_view bytes) override {
    return CatchTorch([&]() -> absl::Status {
      for (const torch::Device device : Devices()) {
        const at::Generator generator =
            at::globalContext().defaultGenerator(device);
        torch::Tensor state = generator.get_state();
        // Of a run on another kind of device.
        if (bytes.size() < state.nbytes()) return absl::OkStatus();
        std::memcpy(state.data_ptr(), bytes.data(), state.nbytes());
        bytes.remove_prefix(state.nbytes());
        at::Generator(generator).set_state(state);
      }
      return absl::OkStatus();
    });
  }

  torch::Device device() const { return device_; }

 private:
  std::vector<torch::Device> Devices() const {
    std::vector<torch::Device> devices = {torch::Device(torch::kCPU)};
    if (!device_.is_cpu()) devices.push_back(device_);
    return devices;
  }

  torch::Device device_ = torch::kCPU;
};

TorchBackendImpl& TheBackend() {
  static auto& backend = *new TorchBackendImpl();
  return backend;
}

// Those that a run averages.
std::vector<torch::Tensor> TrainedParameters(const torch::nn::Module& module) {
  std::vector<torch::Tensor> trained;
  for (const torch::Tensor& parameter : module.parameters()) {
    if (parameter.requires_grad()) trained.push_back(parameter);
  }
  return trained;
}

// Ours, in the place of torch::optim::Adam.
class FusedAdamPart final : public OptimizerPart {
 public:
  FusedAdamPart(std::string name,
                std::unique_ptr<torch::optim::Optimizer> given,
                std::unique_ptr<torch_adapter::Adam> adam)
      : OptimizerPart(std::move(name)),
        given_(std::move(given)),
        adam_(std::move(adam)) {}

  absl::Status Step() override {
    adam_->SetLearningRate(LearningRate());
    return adam_->Step();
  }

  absl::StatusOr<CheckpointFile> Save() override {
    lr_ = LearningRate();
    COHORT_ASSIGN_OR_RETURN(saved_, adam_->State());
    CheckpointFile file{.name = name(),
                        .tensors = saved_.views(),
                        .metadata = {{kOptimizerKind, kind()}}};
    file.tensors.push_back({kLearningRate,
                            TensorType::kF64,
                            {},
                            std::as_bytes(std::span(&lr_, 1))});
    return file;
  }

  absl::Status Load(const SafetensorsFile& file) override {
    COHORT_RETURN_IF_ERROR(
        torch_adapter::OnDevice(Device(), "copying the optimizer's state there",
                                [&] { return adam_->Load(file); }));
    COHORT_ASSIGN_OR_RETURN(const TensorView lr, file.Find(kLearningRate));
    if (lr.bytes.size() != sizeof(lr_)) {
      return absl::InvalidArgumentError("the learning rate is not a float64");
    }
    std::memcpy(&lr_, lr.bytes.data(), sizeof(lr_));
    given_->param_groups()[0].options().set_lr(lr_);
    return absl::OkStatus();
  }

  std::string kind() const override { return "Adam"; }
  torch::optim::Optimizer& optimizer() override { return *given_; }

 private:
  double LearningRate() const {
    return given_->param_groups()[0].options().get_lr();
  }

  // Its options count, its state is not used.
  const std::unique_ptr<torch::optim::Optimizer> given_;
  const std::unique_ptr<torch_adapter::Adam> adam_;
  torch_adapter::HostTensors saved_;
  double lr_ = 0;
};

class TorchOptimizerPart final : public OptimizerPart {
 public:
  TorchOptimizerPart(std::string name,
                     std::unique_ptr<torch::optim::Optimizer> optimizer)
      : OptimizerPart(std::move(name)), optimizer_(std::move(optimizer)) {}

  absl::Status Step() override {
    return CatchTorch([this] {
      optimizer_->step();
      return absl::OkStatus();
    });
  }

  // LibTorch's archive: only it knows what its optimizers keep.
  absl::StatusOr<CheckpointFile> Save() override {
    COHORT_RETURN_IF_ERROR(torch_adapter::OnDevice(
        Device(), "copying the optimizer's state from there", [this] {
          torch::serialize::OutputArchive archive;
          optimizer_->save(archive);
          std::ostringstream out;
          archive.save_to(out);
          saved_ = std::move(out).str();
          return absl::OkStatus();
        }));
    return CheckpointFile{
        .name = name(),
        .tensors = {{kArchive,
                     TensorType::kU8,
                     {static_cast<int64_t>(saved_.size())},
                     std::as_bytes(std::span(saved_))}},
        .metadata = {{kOptimizerKind, kind()}},
        // It names parameters by their addresses, so each rank's is another.
        .by = CheckpointFile::By::kLead};
  }

  absl::Status Load(const SafetensorsFile& file) override {
    COHORT_ASSIGN_OR_RETURN(const TensorView saved, file.Find(kArchive));
    return torch_adapter::OnDevice(
        Device(), "copying the optimizer's state there", [&] {
          torch::serialize::InputArchive archive;
          archive.load_from(reinterpret_cast<const char*>(saved.bytes.data()),
                            saved.bytes.size(), Device());
          optimizer_->load(archive);
          return absl::OkStatus();
        });
  }

  std::string kind() const override {
    const torch::optim::Optimizer& optimizer = *optimizer_;
    return c10::demangle(typeid(optimizer).name());
  }
  torch::optim::Optimizer& optimizer() override { return *optimizer_; }

 private:
  const std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::string saved_;
};

std::vector<ModelPart*> ModelsOf(const Run& run) {
  std::vector<ModelPart*> models;
  for (const auto& part : run.parts()) {
    if (auto* const model = dynamic_cast<ModelPart*>(part.get())) {
      models.push_back(model);
    }
  }
  return models;
}

// The module whose parameters, all and in their order, are the optimizer's.
const torch::nn::Module* ModuleOf(const Run& run,
                                  const std::vector<torch::Tensor>& given) {
  for (const ModelPart* model : ModelsOf(run)) {
    const std::vector<torch::Tensor> all = model->module().parameters();
    if (all.size() != given.size()) continue;
    bool is_same = true;
    for (size_t i = 0; i < all.size(); ++i) is_same &= all[i].is_same(given[i]);
    if (is_same) return &model->module();
  }
  return nullptr;
}

// Null: it stays LibTorch's.
absl::StatusOr<std::unique_ptr<torch_adapter::Adam>> TryFuse(
    const Run& run, const torch::optim::Optimizer& given) {
  const auto* const adam = dynamic_cast<const torch::optim::Adam*>(&given);
  if (adam == nullptr || adam->param_groups().size() != 1) return nullptr;
  const auto& group = adam->param_groups()[0];
  const auto& options =
      static_cast<const torch::optim::AdamOptions&>(group.options());
  if (options.weight_decay() != 0 || options.amsgrad()) return nullptr;
  const torch::nn::Module* const module = ModuleOf(run, group.params());
  if (module == nullptr) return nullptr;
  return torch_adapter::Adam::Create(*module,
                                     {.lr = options.lr(),
                                      .beta1 = std::get<0>(options.betas()),
                                      .beta2 = std::get<1>(options.betas()),
                                      .eps = options.eps()});
}

absl::Status CheckGiven(const Run& run, const torch::optim::Optimizer& given) {
  std::vector<torch::Tensor> prepared;
  for (const ModelPart* model : ModelsOf(run)) {
    const auto parameters = model->module().parameters();
    prepared.insert(prepared.end(), parameters.begin(), parameters.end());
  }
  size_t count = 0;
  for (const auto& group : given.param_groups()) {
    for (const torch::Tensor& parameter : group.params()) {
      ++count;
      const bool is_prepared =
          std::any_of(prepared.begin(), prepared.end(),
                      [&](const auto& one) { return one.is_same(parameter); });
      if (is_prepared) continue;
      return absl::FailedPreconditionError(
          "an optimizer has a parameter of no prepared module (prepare the "
          "module first)");
    }
  }
  if (count > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the optimizer has no parameters (give it the module's)");
}

absl::Status LoadPart(const Run& run, OptimizerPart& part) {
  COHORT_ASSIGN_OR_RETURN(const SafetensorsFile* saved, run.Saved(part.name()));
  if (saved == nullptr) return absl::OkStatus();
  const auto kind = saved->metadata().find(kOptimizerKind);
  if (kind != saved->metadata().end() && kind->second != part.kind()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the checkpoint's ", part.name(), " is of ", kind->second,
                     ", not ", part.kind()));
  }
  return Annotate(part.Load(*saved),
                  absl::StrCat("the checkpoint's ", part.name()));
}

}  // namespace

Backend* TorchBackend() { return &TheBackend(); }

torch::Device Device() { return TheBackend().device(); }

torch::Tensor Inputs(const trainer::Batch& batch,
                     const std::vector<int64_t>& shape) {
  std::vector<int64_t> sizes = {batch.size()};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return torch_adapter::Upload(
      torch::from_blob(batch.inputs.data(), sizes, torch::kFloat32), Device());
}

torch::Tensor Labels(const trainer::Batch& batch) {
  return torch_adapter::Upload(
      torch::from_blob(batch.labels.data(), {batch.size()}, torch::kInt64),
      Device());
}

absl::Status LoadModel(const std::string& checkpoint,
                       const torch::nn::Module& module) {
  COHORT_ASSIGN_OR_RETURN(const trainer::Checkpoint read,
                          trainer::ReadCheckpoint(checkpoint));
  const auto model = read.Find(kModel);
  if (!model.ok()) return Annotate(model.status(), checkpoint);
  return Annotate(torch_adapter::LoadStateDict(**model, module), checkpoint);
}

absl::Status ModelPart::Open(Run& run) {
  COHORT_RETURN_IF_ERROR(run.status());
  for (const ModelPart* other : ModelsOf(run)) {
    if (other->module_ == module_) {
      return absl::InvalidArgumentError(
          "this module was prepared before (prepare each once)");
    }
  }
  if (TrainedParameters(*module_).empty()) {
    return absl::InvalidArgumentError(
        "the module has no parameter that wants a gradient");
  }
  COHORT_ASSIGN_OR_RETURN(const SafetensorsFile* saved, run.Saved(name()));
  const absl::Status placed = torch_adapter::OnDevice(
      Device(), "copying the module there", [&]() -> absl::Status {
        if (saved != nullptr) {
          COHORT_RETURN_IF_ERROR(
              Annotate(torch_adapter::LoadStateDict(*saved, *module_),
                       absl::StrCat("the checkpoint's ", name())));
        }
        module_->to(Device());
        return absl::OkStatus();
      });
  COHORT_RETURN_IF_ERROR(placed);
  COHORT_ASSIGN_OR_RETURN(
      sync_, torch_adapter::GradientSync::Create(*module_, run.comm(), {}));
  return absl::OkStatus();
}

absl::StatusOr<CheckpointFile> ModelPart::Save() {
  COHORT_ASSIGN_OR_RETURN(saved_, torch_adapter::StateDict(*module_));
  return CheckpointFile{.name = name(),
                        .tensors = saved_.views(),
                        .metadata = {{"format", "pt"}}};
}

void PrepareModule(Run& run, std::shared_ptr<torch::nn::Module> module) {
  auto part =
      std::make_shared<ModelPart>(run.FreeName(kModel), std::move(module));
  if (run.Fail(part->Open(run)).ok()) run.Add(std::move(part));
}

Optimizer PrepareOptimizer(Run& run,
                           std::unique_ptr<torch::optim::Optimizer> optimizer) {
  std::string name = run.FreeName(kOptimizer);
  if (run.status().ok()) run.Note(CheckGiven(run, *optimizer));
  absl::StatusOr<std::unique_ptr<torch_adapter::Adam>> fused = nullptr;
  if (run.status().ok()) fused = TryFuse(run, *optimizer);
  run.Note(fused.status());
  std::shared_ptr<OptimizerPart> part;
  if (fused.ok() && *fused != nullptr) {
    part = std::make_shared<FusedAdamPart>(
        std::move(name), std::move(optimizer), *std::move(fused));
  } else {
    part = std::make_shared<TorchOptimizerPart>(std::move(name),
                                                std::move(optimizer));
  }
  if (run.status().ok() && run.Fail(LoadPart(run, *part)).ok()) run.Add(part);
  return {run, std::move(part)};
}

absl::Status BackwardIn(Run& run, const torch::Tensor& loss,
                        torch_adapter::Sync sync) {
  COHORT_RETURN_IF_ERROR(run.status());
  const std::vector<ModelPart*> models = ModelsOf(run);
  if (models.size() != 1) {
    return run.Fail(absl::FailedPreconditionError(
        absl::StrCat("Backward needs one prepared module, and there are ",
                     models.size(), " (make one module of several)")));
  }
  return run.Fail(models[0]->sync().Backward(loss, sync));
}

void Optimizer::zero_grad() {
  if (!run_.status().ok()) return;
  for (ModelPart* model : ModelsOf(run_)) model->sync().Clear();
}

void Optimizer::SetLearningRate(double rate) {
  for (auto& group : part_->optimizer().param_groups()) {
    group.options().set_lr(rate);
  }
}

void Optimizer::step() {
  if (run_.status().ok()) run_.Note(part_->Step());
}

}  // namespace cohort::train

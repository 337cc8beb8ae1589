#include "trainer/torch/gradient_sync.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "torch/csrc/autograd/function.h"
#include "torch/csrc/autograd/function_hook.h"
#include "torch/csrc/autograd/variable.h"
#include "torch/types.h"

#include "common/log.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "trainer/finite.h"
#include "trainer/torch/device_memory.h"
#include "trainer/torch/staged_comm.h"
#include "trainer/torch/state_dict.h"
#include "trainer/torch/torch_status.h"

namespace cohort::torch_adapter {
namespace {

using trainer::Buffer;
using trainer::Comm;
using trainer::GradientReducer;
using trainer::GradientShape;
using VariableList = torch::autograd::variable_list;

absl::StatusOr<torch::Device> DeviceOf(const torch::nn::Module& module) {
  torch::Device device(torch::kCPU);
  std::string first;
  for (const NamedTensor& named : NamedTensors(module)) {
    if (first.empty()) {
      device = named.tensor.device();
      first = named.name;
    } else if (named.tensor.device() != device) {
      return absl::InvalidArgumentError(
          absl::StrCat(first, " is on ", device.str(), " and ", named.name,
                       " on ", named.tensor.device().str(),
                       ": move the whole module to one device"));
    }
  }
  return device;
}

absl::Status CheckPlace(torch::Device device, const Comm& comm) {
  if (!device.is_cpu() || !comm.allocates_on_device()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the communicator's memory is the GPU's and the module is on the CPU: "
      "move it to the device of OpenGpu() first, or join without can_use_gpu");
}

// Kernels of one GPU that work in another's memory crawl or fault.
absl::Status CheckOwner(const DeviceMarks& marks, std::byte* memory) {
  std::string owner;
  COHORT_RETURN_IF_ERROR(Annotate(CatchTorch([&] {
                                    owner = marks.OwnerOf(memory);
                                    return absl::OkStatus();
                                  }),
                                  "whose memory the communicator gave"));
  if (owner == marks.device()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the module is on ", marks.device(), " and the communicator's memory on ",
      owner, ": move the module to the device of OpenGpu()"));
}

// A type that no communicator knows, and int32 holds, such as bool.
bool TravelsAsInt32(const torch::Tensor& tensor) {
  return torch::isIntegralType(tensor.scalar_type(), /*includeBool=*/true) &&
         static_cast<size_t>(tensor.element_size()) < sizeof(int32_t);
}

class GradientHook final : public torch::autograd::FunctionPostHook {
 public:
  explicit GradientHook(std::function<void()> on_gradient)
      : on_gradient_(std::move(on_gradient)) {}

  VariableList operator()(const VariableList& outputs,
                          const VariableList& /*inputs*/) override {
    on_gradient_();
    return outputs;
  }

 private:
  const std::function<void()> on_gradient_;
};

}  // namespace

struct GradientSync::Hooks {
  // A shared pointer of LibTorch's, which differs between versions.
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(
      std::declval<const torch::Tensor&>()));
  std::vector<Accumulator> accumulators;
  // Where hooks tell of a gradient, on the CPU; empty once that memory goes.
  std::span<float> used;
};

absl::StatusOr<std::unique_ptr<GradientSync>> GradientSync::Create(
    torch::nn::Module& module, Comm& comm, trainer::ReducerOptions options,
    std::unique_ptr<DeviceMarks> marks) {
  COHORT_ASSIGN_OR_RETURN(const torch::Device device, DeviceOf(module));
  std::unique_ptr<GradientSync> sync(new GradientSync(comm, device));
  if (marks == nullptr) {
    COHORT_RETURN_IF_ERROR(CheckPlace(device, comm));
    if (!device.is_cpu()) marks = MakeDeviceMarks(device);
  }
  if (marks != nullptr && !comm.allocates_on_device()) {
    sync->staged_ = std::make_unique<StagedComm>(device, comm);
  }
  std::vector<GradientShape> shapes;
  for (const auto& entry : module.named_parameters()) {
    if (!entry.value().requires_grad()) continue;
    COHORT_ASSIGN_OR_RETURN(const Buffer buffer,
                            BufferOf({entry.key(), entry.value()}));
    shapes.push_back({entry.key(), buffer.count, buffer.dtype});
    sync->slots_.push_back({entry.value(), torch::Tensor()});
  }
  COHORT_ASSIGN_OR_RETURN(sync->reducer_,
                          GradientReducer::Create(sync->comm_of_module(),
                                                  std::move(shapes), options));
  if (marks == nullptr) {
    COHORT_ASSIGN_OR_RETURN(const std::span<std::byte> used,
                            comm.Allocate(sync->slots_.size() * sizeof(float)));
    sync->used_ = {reinterpret_cast<float*>(used.data()), sync->slots_.size()};
  } else {
    if (sync->staged_ == nullptr && sync->reducer_->size() > 0) {
      COHORT_RETURN_IF_ERROR(
          CheckOwner(*marks, sync->reducer_->gradient(0).data()));
    }
    sync->pass_ = std::make_shared<BackwardPass>(
        sync->reducer_->buckets(), sync->reducer_->size(), std::move(marks));
  }
  sync->timeout_ = options.timeout;
  COHORT_RETURN_IF_ERROR(sync->BroadcastTensors(NamedTensors(module)));
  COHORT_RETURN_IF_ERROR(Annotate(CatchTorch([&sync] {
                                    sync->Attach();
                                    return absl::OkStatus();
                                  }),
                                  "tying gradients to the gang's memory"));
  return sync;
}

GradientSync::~GradientSync() {
  if (pass_ != nullptr) {
    const absl::Status drained =
        pass_->Drain({.clock = clock_, .timeout = kDrainTimeout});
    if (!drained.ok()) {
      COHORT_LOG(kWarning, "gpu_not_drained", {"rank", comm_.rank()},
                 {"why", drained.message()});
    }
  }
  if (hooks_ != nullptr) hooks_->used = {};
  for (const Slot& slot : slots_) {
    torch::Tensor& grad = slot.parameter.mutable_grad();
    if (grad.defined() && grad.has_storage() && slot.view.defined() &&
        grad.is_alias_of(slot.view)) {
      grad = torch::Tensor();
    }
  }
}

void GradientSync::Attach() {
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    slot.view = TensorAt(reducer_->gradient(i).data(), slot.parameter.sizes(),
                         slot.parameter.scalar_type(), slot.parameter.device());
    if (!slot.parameter.is_contiguous()) {
      slot.view = slot.view.as_strided(slot.parameter.sizes(),
                                       slot.parameter.strides());
    }
  }
  if (pass_ != nullptr) {
    size_t bytes = 0;
    for (const Buffer& buffer : reducer_->buffers()) bytes += buffer.bytes();
    std::byte* begin =
        bytes == 0 ? nullptr
                   : static_cast<std::byte*>(reducer_->buffers()[0].data);
    arena_ =
        TensorAt(begin, {static_cast<int64_t>(bytes)}, torch::kUInt8, device_);
  }
  AddHooks();
  Clear();
}

void GradientSync::AddHooks() {
  hooks_ = std::make_shared<Hooks>();
  hooks_->used = used_;
  const auto on_gradient = [this](size_t i) -> std::function<void()> {
    if (pass_ != nullptr) {
      return [pass = std::weak_ptr<BackwardPass>(pass_), i] {
        if (const auto open = pass.lock()) open->OnGradient(i);
      };
    }
    return [hooks = std::weak_ptr<Hooks>(hooks_), i] {
      const auto still = hooks.lock();
      if (still != nullptr && !still->used.empty()) still->used[i] = 1;
    };
  };
  for (size_t i = 0; i < slots_.size(); ++i) {
    hooks_->accumulators.push_back(
        torch::autograd::impl::grad_accumulator(slots_[i].parameter));
    hooks_->accumulators.back()->add_post_hook(
        std::make_unique<GradientHook>(on_gradient(i)));
  }
}

void GradientSync::Clear() {
  is_accumulating_ = false;
  if (pass_ == nullptr) {
    reducer_->Clear();
    std::fill(used_.begin(), used_.end(), 0.0f);
  } else {
    // On the stream of the pass, behind the optimizer that may still read them.
    cleared_ = OfRank(Annotate(CatchTorch([this] {
                                 arena_.zero_();
                                 return absl::OkStatus();
                               }),
                               absl::StrCat(device_.str(), ": zeroing")));
  }
  for (Slot& slot : slots_) slot.parameter.mutable_grad() = slot.view;
}

absl::Status GradientSync::Backward(const torch::Tensor& loss, Sync sync) {
  COHORT_RETURN_IF_ERROR(cleared_);
  is_accumulating_ = sync == Sync::kLater;
  const bool is_followed =
      pass_ != nullptr && sync == Sync::kNow && comm_.world() > 1;
  if (is_followed) pass_->Begin();
  const absl::Status begun = CatchTorch([&] {
    loss.backward();
    if (sync == Sync::kNow) Reattach();
    if (is_followed) pass_->End();
    return absl::OkStatus();
  });
  if (!begun.ok()) {
    if (is_followed) pass_->Abandon();
    return OfRank(
        Annotate(begun, absl::StrCat(device_.str(), ": the backward pass")));
  }
  if (sync == Sync::kLater) return absl::OkStatus();
  if (pass_ == nullptr) return Reduce();
  // Alone there is nothing to wait for.
  if (!is_followed) return absl::OkStatus();
  const DeviceWait wait = Wait();
  return reducer_->ReduceAsReady(
      [&](size_t bucket) { return OfRank(pass_->Await(bucket, wait)); });
}

absl::Status GradientSync::Reduce() {
  COHORT_RETURN_IF_ERROR(reducer_->Reduce(used_));
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (used_[i] == 0) slots_[i].parameter.mutable_grad() = torch::Tensor();
  }
  return absl::OkStatus();
}

absl::Status GradientSync::Settle() {
  if (pass_ == nullptr) return absl::OkStatus();
  return OfRank(pass_->Settle(Wait()));
}

absl::Status GradientSync::ShareBuffers(const torch::nn::Module& module) {
  std::vector<NamedTensor> buffers;
  for (const auto& entry : module.named_buffers()) {
    buffers.push_back({entry.key(), entry.value()});
  }
  return OfRank(BroadcastTensors(buffers));
}

absl::Status GradientSync::BroadcastTensors(
    const std::vector<NamedTensor>& tensors) {
  if (comm_.world() == 1) return Settle();
  std::vector<Buffer> buffers;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> widened;
  for (const NamedTensor& named : tensors) {
    if (named.tensor.numel() == 0) continue;
    NamedTensor sent = named;
    if (TravelsAsInt32(named.tensor)) {
      COHORT_RETURN_IF_ERROR(
          Annotate(CatchTorch([&] {
                     sent.tensor = named.tensor.to(torch::kInt32).contiguous();
                     return absl::OkStatus();
                   }),
                   named.name));
      widened.emplace_back(named.tensor, sent.tensor);
    }
    COHORT_ASSIGN_OR_RETURN(const Buffer buffer, BufferOf(sent));
    buffers.push_back(buffer);
  }
  // They may still be on their way to the device.
  COHORT_RETURN_IF_ERROR(Settle());
  if (buffers.empty()) return absl::OkStatus();
  COHORT_RETURN_IF_ERROR(
      Annotate(comm_of_module().Broadcast(buffers, /*root=*/0, timeout_),
               "copying rank 0's parameters and buffers"));
  return CatchTorch([&] {
    const torch::NoGradGuard no_gradients;
    for (const auto& [tensor, sent] : widened) tensor.copy_(sent);
    return absl::OkStatus();
  });
}

absl::StatusOr<bool> GradientSync::AllFinite() {
  if (pass_ == nullptr) return trainer::AllFinite(reducer_->buffers());
  torch::Tensor verdict;
  bool is_finite = true;
  absl::Status judged = CatchTorch([&] {
    for (const trainer::Bucket& bucket : reducer_->buckets()) {
      const auto begin = static_cast<int64_t>(bucket.offset);
      const auto bytes = static_cast<int64_t>(bucket.bytes);
      const torch::Tensor& one = slots_[bucket.slices[0].gradient].view;
      const torch::Tensor part = arena_.slice(/*dim=*/0, begin, begin + bytes)
                                     .view(one.scalar_type())
                                     .isfinite()
                                     .all();
      verdict = verdict.defined() ? verdict.logical_and_(part) : part;
    }
    return absl::OkStatus();
  });
  if (judged.ok() && verdict.defined()) {
    COHORT_RETURN_IF_ERROR(Settle());
    judged = CatchTorch([&] {
      is_finite = verdict.item<bool>();
      return absl::OkStatus();
    });
  }
  COHORT_RETURN_IF_ERROR(OfRank(Annotate(
      judged, absl::StrCat(device_.str(), ": whether gradients are finite"))));
  return is_finite;
}

DeviceWait GradientSync::Wait() const {
  return {.clock = clock_, .timeout = kPassTimeout, .look = [this] {
            return comm_.CheckPeers();
          }};
}

absl::Status GradientSync::OfRank(const absl::Status& status) const {
  return Annotate(status, absl::StrCat("rank ", comm_.rank()));
}

void GradientSync::Reattach() {
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    const torch::Tensor grad = slot.parameter.grad();
    if (grad.defined() && grad.data_ptr() == slot.view.data_ptr()) continue;
    // Such as optimizer.zero_grad(), which drops gradients by default.
    if (grad.defined()) {
      slot.view.copy_(grad);
      if (!used_.empty()) used_[i] = 1;
    } else {
      slot.view.zero_();
      if (!used_.empty()) used_[i] = 0;
    }
    slot.parameter.mutable_grad() = slot.view;
    if (pass_ != nullptr) pass_->OnLateWrite(i, grad);
  }
}

}  // namespace cohort::torch_adapter

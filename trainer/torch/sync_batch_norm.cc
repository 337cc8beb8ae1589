#include "trainer/torch/sync_batch_norm.h"

#include <span>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "torch/csrc/autograd/custom_function.h"
#include "torch/utils.h"

#include "trainer/session.h"

namespace cohort::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using trainer::Comm;

// PyTorch's defaults.
constexpr double kMomentum = 0.1;
constexpr double kEpsilon = 1e-5;
constexpr absl::Duration kTimeout = absl::Seconds(trainer::kGangTimeoutSeconds);

// All dimensions but the channels'.
std::vector<int64_t> Others(const torch::Tensor& x) {
  std::vector<int64_t> others = {0};
  for (int64_t i = 2; i < x.dim(); ++i) others.push_back(i);
  return others;
}

// One number a channel, in the shape of x.
torch::Tensor Spread(const torch::Tensor& channels, const torch::Tensor& x) {
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[1] = channels.numel();
  return channels.to(x.scalar_type()).view(shape);
}

// The sums over all ranks of rows of numbers a channel, in double precision.
torch::Tensor SumOverRanks(Comm& comm, const torch::Tensor& mine) {
  // A copy: what is this rank's stays.
  torch::Tensor sums =
      mine.to(torch::kCPU, torch::kFloat64, false, true).contiguous();
  const auto count = static_cast<size_t>(sums.numel());
  const absl::Status summed = comm.AllReduce(
      trainer::Buffer::Of(std::span(sums.data_ptr<double>(), count)),
      trainer::ReduceOp::kSum, kTimeout);
  TORCH_CHECK(summed.ok(),
              "batch norm over all ranks: ", std::string(summed.message()));
  return sums.to(mine.device());
}

// Gives the normalised batch, and its mean and variance.
struct Normalise : torch::autograd::Function<Normalise> {
  static variable_list forward(AutogradContext* ctx, const torch::Tensor& x,
                               const torch::Tensor& weight,
                               const torch::Tensor& bias, Comm* comm) {
    const torch::Tensor wide = x.to(torch::kFloat64);
    const std::vector<int64_t> others = Others(x);
    const double values =
        static_cast<double>(x.numel()) / static_cast<double>(x.size(1));
    const torch::Tensor sums = SumOverRanks(
        *comm,
        torch::stack({wide.sum(others), wide.square().sum(others),
                      torch::full({x.size(1)}, values, wide.options())}));
    const torch::Tensor count = sums[2];
    const torch::Tensor mean = sums[0] / count;
    const torch::Tensor variance =
        (sums[1] / count - mean.square()).clamp_min(0);
    const torch::Tensor scale = (variance + kEpsilon).rsqrt();
    const torch::Tensor unit =
        ((wide - Spread(mean, wide)) * Spread(scale, wide)).to(x.scalar_type());
    ctx->save_for_backward({unit, weight, scale, count});
    ctx->saved_data["comm"] = reinterpret_cast<int64_t>(comm);
    const torch::Tensor unbiased = variance * count / (count - 1).clamp_min(1);
    ctx->mark_non_differentiable({mean, unbiased});
    return {unit * Spread(weight, x) + Spread(bias, x), mean, unbiased};
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const torch::Tensor &unit = saved[0], &weight = saved[1], &scale = saved[2],
                        &count = saved[3];
    auto* const comm = reinterpret_cast<Comm*>(ctx->saved_data["comm"].toInt());
    const torch::Tensor& dy = gradients[0];
    const std::vector<int64_t> others = Others(dy);
    const torch::Tensor mine =
        torch::stack({dy.to(torch::kFloat64).sum(others),
                      (dy * unit).to(torch::kFloat64).sum(others)});
    const torch::Tensor means = SumOverRanks(*comm, mine) / count;
    const torch::Tensor dx =
        (dy - Spread(means[0], dy) - unit * Spread(means[1], dy)) *
        Spread(scale * weight, dy);
    // This rank's: the mean over ranks is taken with all other gradients.
    return {dx, mine[1].to(weight.scalar_type()),
            mine[0].to(weight.scalar_type()), torch::Tensor()};
  }
};

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(Comm& comm, int64_t channels)
    : weight(register_parameter("weight", torch::ones(channels))),
      bias(register_parameter("bias", torch::zeros(channels))),
      running_mean(register_buffer("running_mean", torch::zeros(channels))),
      running_var(register_buffer("running_var", torch::ones(channels))),
      comm_(comm) {}

torch::Tensor SyncBatchNormImpl::forward(const torch::Tensor& x) {
  if (!is_training() || comm_.world() == 1) {
    return torch::batch_norm(x, weight, bias, running_mean, running_var,
                             is_training(), kMomentum, kEpsilon,
                             /*cudnn_enabled=*/true);
  }
  const variable_list normal = Normalise::apply(x, weight, bias, &comm_);
  const torch::NoGradGuard no_gradients;
  running_mean.lerp_(normal[1].to(running_mean.scalar_type()), kMomentum);
  running_var.lerp_(normal[2].to(running_var.scalar_type()), kMomentum);
  return normal[0];
}

}  // namespace cohort::train

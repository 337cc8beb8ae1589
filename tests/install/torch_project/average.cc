// A LibTorch module trained for a step by itself: a gang of one.

#include <cstdio>
#include <memory>

#include "torch/nn/modules/linear.h"

#include "cohort/trainer/local_comm.h"
#include "cohort/trainer/torch/distributed_data_parallel.h"

int main() {
  cohort::trainer::LocalComm comm;
  auto model = cohort::torch_adapter::DistributedDataParallel<
      torch::nn::LinearImpl>::Create(std::make_shared<torch::nn::LinearImpl>(3,
                                                                             2),
                                     comm);
  if (!model.ok()) {
    std::printf("%s\n", model.status().ToString().c_str());
    return 1;
  }
  (*model)->ZeroGradients();
  const absl::Status done =
      (*model)->Backward((*model)->forward(torch::ones({4, 3})).sum());
  const float slope = (*model)->module().weight.grad().sum().item<float>();
  std::printf("%s, the gradients add up to %g\n", done.ToString().c_str(),
              slope);
  return done.ok() && slope == 24 ? 0 : 1;
}

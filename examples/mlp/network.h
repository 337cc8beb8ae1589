#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "examples/mlp/device.h"
#include "trainer/adam.h"
#include "trainer/comm/comm.h"
#include "trainer/reducer.h"

namespace cohort::mlp {

struct NetworkShape {
  int64_t inputs = 784;
  int64_t hidden = 512;
  int64_t hidden_layers = 2;
  int64_t classes = 10;
};

struct NetworkOptions {
  NetworkShape shape;
  trainer::DType precision = trainer::DType::kF32;  // or kF16, kBF16
  int64_t batch_max = 64;  // samples of a Backward, or a part of CountCorrect
  uint64_t seed = 1;       // of the weights; alike on all ranks
  trainer::ReducerOptions reducer;
};

// A parameter and its moments as a checkpoint keeps them, in f32.
struct SavedTensor {
  std::string
      name;  // "fc1.weight" [outputs, inputs], "fc1.bias" [outputs], ...
  std::vector<int64_t> shape;
  std::vector<float> parameter;
  std::vector<float> exp_avg;
  std::vector<float> exp_avg_sq;
};

// Dense layers with ReLU between them and cross entropy behind them, trained on
// a gang: one rank's copy, in plain buffers of a device.
//
// Gradients lie in the communicator's memory where the device reaches it; f32
// masters, moments and, in 16 bits, the weights that forward and backward read
// lie in the same order, so that one kernel steps over all of them.
//
//   NW-1: without NCCL the same bits on all devices and on all ranks; over NCCL
//         the same bits on all ranks (CM-2).
//
// A step is Backward, Reduce, AllFinite where needed, Update; each begins what
// the device does and returns.  Prefetch brings the samples of the next step up
// beside them: two places on the device take turns, so that one is read while
// the other is filled.  Thread-compatible, on the device's thread; errors are
// the device's and the communicator's.  Both must outlive it.
class Network {
 public:
  // Every rank calls it alike.  InvalidArgument for a size that is not positive
  // and for memory that the device does not reach (a communicator of GPUs and
  // the CPU).  Weights are drawn as PyTorch's Linear draws them, uniform within
  // 1 / sqrt(inputs), from a generator of our own.
  static absl::StatusOr<std::unique_ptr<Network>> Create(
      Device& device, trainer::Comm& comm, const NetworkOptions& options);
  // Waits for the device, as long as that waits for anything: gradients in the
  // communicator's memory go with it, and after an error, such as a peer's
  // death, kernels may still be on their way there.
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // Begins to bring up the samples of the next Backward.  They are read until
  // AwaitPrefetch has returned.
  // REQUIRES: 1 to batch_max labels within the classes, as many inputs; the
  //           samples before them were taken by a Backward.
  absl::Status Prefetch(std::span<const float> inputs,
                        std::span<const int64_t> labels);
  // Returns when samples may be changed, those for the next step included.
  absl::Status AwaitPrefetch() { return device_.AwaitUploads(); }

  // Begins the gradients of loss_scale times the mean loss of the samples that
  // were prefetched.
  // REQUIRES: there are some.
  absl::Status Backward(float loss_scale);
  // Averages the gradients over the gang, the last layers' while those before
  // them are computed.
  absl::Status Reduce();
  // The gang's verdict (LS-1).
  absl::StatusOr<bool> AllFinite();
  // One step of Adam.
  absl::Status Update(const trainer::AdamOptions& options, int64_t step,
                      float gradient_scale);
  // The mean of the last Backward on this rank, unscaled.
  absl::StatusOr<double> Loss();

  // How many of any number of samples the network names right.
  absl::StatusOr<int64_t> CountCorrect(std::span<const float> inputs,
                                       std::span<const int64_t> labels);

  absl::StatusOr<std::vector<SavedTensor>> Save();
  // InvalidArgument for tensors of another network; nothing is changed then.
  absl::Status Load(std::span<const SavedTensor> tensors);

  int64_t parameter_count() const;

 private:
  // Offsets are elements from the first gradient's.
  struct Layer {
    int64_t inputs = 0;
    int64_t outputs = 0;
    size_t weight = 0;
    size_t bias = 0;
  };
  struct Parameter {
    std::string name;
    std::vector<int64_t> shape;
    size_t offset = 0;
    size_t size = 0;
  };
  // On the device, as a loader has them.
  struct Samples {
    std::byte* inputs = nullptr;  // f32
    std::byte* labels = nullptr;  // int64_t
    uint32_t rows = 0;            // 0: none
    size_t mark = 0;              // of the device: the last Backward of them
  };

  Network(Device& device, trainer::Comm& comm, const NetworkOptions& options)
      : device_(device), comm_(comm), options_(options) {}

  absl::Status PlaceGradients();
  absl::Status AllocateMemory();
  absl::Status DrawWeights();
  absl::Status StoreMasters(const std::vector<float>& masters);

  void CheckSamples(std::span<const float> inputs,
                    std::span<const int64_t> labels) const;
  // Of samples that are there.
  absl::Status Forward(const Samples& samples);
  absl::Status BackwardThrough(size_t layer, uint32_t rows);
  absl::Status MarkBuckets(size_t layer);
  absl::Status ReduceThroughHost();

  std::byte* ElementAt(std::byte* base, size_t offset) const;

  Device& device_;
  trainer::Comm& comm_;
  const NetworkOptions options_;
  std::unique_ptr<trainer::GradientReducer> reducer_;
  std::vector<Layer> layers_;
  std::vector<Parameter> parameters_;
  // Of each bucket, the layer that completes it.
  std::vector<size_t> bucket_layers_;
  size_t elements_ = 0;  // of all parameters, padding included

  std::byte* gradients_ = nullptr;
  // Whether they are copied to the communicator's memory and back.
  bool is_staged_ = false;
  std::byte* masters_ = nullptr;
  std::byte* exp_avg_ = nullptr;
  std::byte* exp_avg_sq_ = nullptr;
  std::byte* weights_ = nullptr;  // the masters themselves in f32

  std::array<Samples, 2> samples_;
  size_t next_ = 0;  // the next Backward's among them
  // By layer, the inputs first, which are the samples themselves in f32.
  std::vector<std::byte*> activations_;
  std::vector<std::byte*> deltas_;  // their gradients; none for the inputs
  std::byte* losses_ = nullptr;
  std::byte* non_finite_ = nullptr;
  uint32_t rows_ = 0;  // of the last Backward
};

}  // namespace cohort::mlp

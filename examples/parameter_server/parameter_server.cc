// Logistic regression on MNIST with a parameter server: workers, each with a
// shard of the images, pull the weights from an actor and push gradients to it,
// without waiting for each other.
//
//   cohort up --detach && ./parameter_server && cohort down
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "actor/actor.h"
#include "common/status_macros.h"
#include "trainer/idx_dataset.h"

constexpr int kPixels = 28 * 28;
constexpr int kClasses = 10;
constexpr int kWorkers = 2;
constexpr int kBatch = 100;

using Floats = std::vector<float>;

// Holds the weights: for each class those of the pixels.
class ParameterServer {
 public:
  const Floats& Pull() const { return weights_; }
  void Push(std::span<const float> gradient) {
    for (size_t i = 0; i < weights_.size(); ++i) weights_[i] -= gradient[i];
  }
  // Its next incarnation begins with the weights that were saved last.
  const Floats& Save() const { return weights_; }
  void Restore(const Floats& weights) { weights_ = weights; }

 private:
  Floats weights_ = Floats(kClasses * kPixels);
};

struct Shard {
  Floats images;
  std::vector<int64_t> labels;
};

// Each step-th image from the first on.
absl::StatusOr<Shard> Load(const std::string& directory, const char* prefix,
                           int64_t first, int64_t step) {
  COHORT_ASSIGN_OR_RETURN(const auto data, cohort::trainer::IdxDataset::Open(
                                               directory, prefix, 20'000));
  std::vector<int64_t> ids;
  for (int64_t id = first; id < data->size(); id += step) ids.push_back(id);
  Shard shard = {Floats(ids.size() * kPixels),
                 std::vector<int64_t>(ids.size())};
  COHORT_RETURN_IF_ERROR(data->Read(ids, shard.images, shard.labels));
  return shard;
}

// How likely each class is.
std::array<float, kClasses> Classify(const Floats& weights,
                                     const float* image) {
  std::array<float, kClasses> shares;
  float sum = 0;
  for (int c = 0; c < kClasses; ++c) {
    const float* const row = weights.data() + c * kPixels;
    float logit = 0;
    for (int i = 0; i < kPixels; ++i) logit += row[i] * image[i];
    sum += shares[c] = std::exp(std::min(logit, 60.0f));
  }
  for (float& share : shares) share /= sum;
  return shares;
}

class Worker {
 public:
  Worker(cohort::Handle<ParameterServer> server, std::string directory)
      : server_(std::move(server)), directory_(std::move(directory)) {}

  absl::Status Train(int epochs) const {
    COHORT_ASSIGN_OR_RETURN(
        const Shard shard,
        Load(directory_, "train", cohort::ThisRank().rank(), kWorkers));
    const size_t batches = shard.labels.size() / kBatch;
    for (size_t n = 0; n < epochs * batches; ++n) {
      COHORT_ASSIGN_OR_RETURN(const Floats weights,
                              server_.Call<&ParameterServer::Pull>().Get());
      const Floats gradient = Gradient(weights, shard, n % batches * kBatch);
      server_.Call<&ParameterServer::Push>(gradient);
    }
    return absl::OkStatus();
  }

 private:
  static Floats Gradient(const Floats& weights, const Shard& shard, size_t at) {
    Floats gradient(weights.size());
    for (size_t n = at; n < at + kBatch; ++n) {
      const float* const image = shard.images.data() + n * kPixels;
      auto shares = Classify(weights, image);
      shares[shard.labels[n]] -= 1;
      for (int c = 0; c < kClasses; ++c) {
        float* const row = gradient.data() + c * kPixels;
        const float scale = 0.1f / kBatch * shares[c];
        for (int i = 0; i < kPixels; ++i) row[i] += scale * image[i];
      }
    }
    return gradient;
  }

  cohort::Handle<ParameterServer> server_;
  std::string directory_;
};

double Accuracy(const Floats& weights, const Shard& test) {
  double right = 0;
  for (size_t n = 0; n < test.labels.size(); ++n) {
    const auto shares = Classify(weights, test.images.data() + n * kPixels);
    const auto best = std::max_element(shares.begin(), shares.end());
    if (best - shares.begin() == test.labels[n]) ++right;
  }
  return right / static_cast<double>(test.labels.size());
}

// MNIST lies at the same path on all nodes.
absl::StatusOr<double> Run(cohort::Runtime& runtime,
                           const std::string& directory) {
  const auto server = runtime.Create<ParameterServer>({.max_restarts = 3});
  const auto workers = runtime.CreateGroup<Worker>(
      {.num_cpus = 1}, {{"ranks", kWorkers}}, server, directory);
  COHORT_RETURN_IF_ERROR(workers.Call<&Worker::Train>(3).Get());
  COHORT_RETURN_IF_ERROR(server.Save().Get());
  COHORT_ASSIGN_OR_RETURN(const Floats weights,
                          server.Call<&ParameterServer::Pull>().Get());
  COHORT_ASSIGN_OR_RETURN(const Shard test, Load(directory, "t10k", 0, 1));
  return Accuracy(weights, test);
}

int main(int argc, char** argv) {
  cohort::Runtime runtime = cohort::Init(argc, argv);
  const absl::StatusOr<double> accuracy = Run(
      runtime, std::filesystem::absolute(argc > 1 ? argv[1] : "data/mnist"));
  if (!accuracy.ok()) {
    std::cerr << accuracy.status().message() << "\n";
    return 1;
  }
  std::cout << "test accuracy " << *accuracy << "\n";
}

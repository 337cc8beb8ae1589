// Logistic regression on MNIST, on plain numbers without LibTorch.
//   logistic [RANKS [DIRECTORY OF MNIST]]
#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <span>
#include <vector>

#include "common/status_macros.h"
#include "trainer/idx_dataset.h"
#include "trainer/train/trainer.h"

namespace logistic {
using cohort::trainer::Batch;
using cohort::trainer::IdxDataset;
constexpr size_t kPixels = 28 * 28, kClasses = 10;
struct Config {
  std::string data;
  int64_t epochs = 2;
  float rate = 0.2f;
  COHORT_FIELDS(data, epochs, rate)
};

std::span<const float> Image(const Batch& batch, size_t n) {
  return batch.inputs.subspan(n * kPixels, kPixels);
}

// How likely the image is each digit.
std::array<float, kClasses> Shares(const std::vector<float>& weights,
                                   std::span<const float> image) {
  std::array<float, kClasses> shares{};
  for (size_t c = 0; c < kClasses; ++c) {
    for (size_t i = 0; i < kPixels; ++i) {
      shares[c] += weights[c * kPixels + i] * image[i];
    }
  }
  const float top = *std::ranges::max_element(shares);
  float sum = 0;
  for (float& share : shares) sum += share = std::exp(share - top);
  for (float& share : shares) share /= sum;
  return shares;
}

absl::Status Train(cohort::train::Run& run, const Config& config) {
  COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<const IdxDataset> images,
                          IdxDataset::Open(config.data, "train", 0));
  COHORT_ASSIGN_OR_RETURN(const auto test,
                          IdxDataset::Open(config.data, "t10k", 0));
  std::vector<float> weights(kClasses * kPixels);
  std::vector<float> gradient(weights.size());
  COHORT_RETURN_IF_ERROR(run.Prepare("weights", std::span(weights)));
  auto* const loader = run.Loader(images, {.batch_size = 100});
  for (auto epoch : run.Epochs(config.epochs)) {
    for (const Batch& batch : epoch.Batches(loader)) {
      double loss = 0;
      std::fill(gradient.begin(), gradient.end(), 0.0f);
      for (size_t n = 0; n < batch.labels.size(); ++n) {
        const auto image = Image(batch, n);
        auto off = Shares(weights, image);
        loss -= std::log(off[batch.labels[n]] + 1e-9f) / batch.size();
        off[batch.labels[n]] -= 1;
        for (size_t k = 0; k < gradient.size(); ++k) {
          gradient[k] += off[k / kPixels] * image[k % kPixels] / batch.size();
        }
      }
      COHORT_RETURN_IF_ERROR(run.Average(std::span(gradient)));
      for (size_t k = 0; k < weights.size(); ++k) {
        weights[k] -= config.rate * gradient[k];
      }
      run.Report({{"loss", loss}});
    }
    const auto right = [&](const Batch& batch) {
      int count = 0;
      for (size_t n = 0; n < batch.labels.size(); ++n) {
        const auto of = Shares(weights, Image(batch, n));
        count += std::ranges::max_element(of) == of.begin() + batch.labels[n];
      }
      return 100.0 * count;
    };
    COHORT_ASSIGN_OR_RETURN(const double accuracy,
                            run.Evaluate("accuracy", *test, right));
    run.Log("accuracy " + std::to_string(accuracy) + " %");
  }
  return run.status();
}

}  // namespace logistic

int main(int argc, char** argv) {
  cohort::train::ServeRanks();
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  cohort::train::Trainer<&logistic::Train> trainer(
      {.data = cohort::train::AbsolutePath(argc > 2 ? argv[2] : "data/mnist")},
      {.num_workers = ranks}, {.name = "logistic"});
  const absl::Status done = cohort::train::ErrorOf(trainer.Fit());
  if (!done.ok()) std::cerr << "logistic: " << done.message() << "\n";
  return done.ok() ? 0 : 1;
}

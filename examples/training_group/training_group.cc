// A group of trainers that a driver leads step by step, on plain buffers: it
// averages their weights, changes the learning rate in the middle, and has one
// rank evaluate while the others train.
//
//   cohort up --detach && ./training_group && cohort down
#include <cmath>
#include <iostream>
#include <random>
#include <utility>
#include <vector>

#include "actor/actor.h"

constexpr int kInputs = 16;
constexpr int kRanks = 4;
constexpr int kRounds = 20;

using Weights = std::vector<double>;

struct Sample {
  Weights inputs;
  double output = 0;
};

// Of both, element by element.
struct Add {
  Weights operator()(Weights a, const Weights& b) const {
    for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
  }
};

double Predict(const Weights& weights, const Weights& inputs) {
  double sum = 0;
  for (int i = 0; i < kInputs; ++i) sum += weights[i] * inputs[i];
  return sum;
}

// Learns a linear function from samples of its own.
class Trainer {
 public:
  Trainer() : random_(static_cast<unsigned>(cohort::ThisRank().rank())) {}

  void SetWeights(const Weights& weights) { weights_ = weights; }
  const Weights& GetWeights() const { return weights_; }
  void SetLearningRate(double rate) { rate_ = rate; }

  void Train(int steps) {
    for (int step = 0; step < steps; ++step) {
      const Sample sample = Draw();
      const double off = Predict(weights_, sample.inputs) - sample.output;
      for (int i = 0; i < kInputs; ++i) {
        weights_[i] -= rate_ * off * sample.inputs[i];
      }
    }
  }

  // The mean error over samples that nobody has seen.
  double Evaluate(int samples) {
    double sum = 0;
    for (int i = 0; i < samples; ++i) {
      const Sample sample = Draw();
      sum += std::abs(Predict(weights_, sample.inputs) - sample.output);
    }
    return sum / samples;
  }

 private:
  Sample Draw() {
    Sample sample;
    for (int i = 0; i < kInputs; ++i) {
      sample.inputs.push_back(
          std::uniform_real_distribution<double>(-1, 1)(random_));
      sample.output += (i + 1) * sample.inputs[i];
    }
    sample.output += std::normal_distribution<double>(0, 0.5)(random_);
    return sample;
  }

  std::mt19937 random_;
  Weights weights_ = Weights(kInputs);
  double rate_ = 0.2;
};

absl::Status Lead(const cohort::Group<Trainer>& group) {
  const cohort::Handle<Trainer> first = group.at(0);
  const cohort::Group<Trainer> others = group.Slice("ranks", 1, kRanks);
  for (int round = 0; round < kRounds; ++round) {
    // A large rate first, then a small one, which the noise disturbs less.
    if (round == kRounds / 2) group.Call<&Trainer::SetLearningRate>(0.01);
    const auto error = first.Call<&Trainer::Evaluate>(1000);
    others.Call<&Trainer::Train>(200);
    // After what each rank was told before.
    absl::StatusOr<Weights> weights =
        others.Reduce<&Trainer::GetWeights, Add>().Get();
    if (!weights.ok()) return weights.status();
    for (double& each : *weights) each /= others.size();
    group.Call<&Trainer::SetWeights>(*weights);
    const absl::StatusOr<double> value = error.Get();
    if (!value.ok()) return value.status();
    std::cout << "round " << round << ": error " << *value << "\n";
  }
  return absl::OkStatus();
}

int main(int argc, char** argv) {
  cohort::Runtime runtime = cohort::Init(argc, argv);
  const absl::Status led =
      Lead(runtime.CreateGroup<Trainer>({}, {{"ranks", kRanks}}));
  if (led.ok()) return 0;
  std::cerr << led.message() << "\n";
  return 1;
}

#pragma once

#include <concepts>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <utility>

namespace cohort::train {

// Numbers by name: "loss", "accuracy".
using Metrics = std::map<std::string, double>;

// Whether it is one that every run shows by itself, beside those of its loop.
inline bool IsOwnMetric(const std::string& name) {
  static const auto& own = *new std::set<std::string>{
      "step",        "epoch",        "progress",         "samples_per_s",
      "step_ms",     "loader_share", "collective_share", "collective_shares",
      "slowest_rank"};
  return own.contains(name);
}

// A number that may not be computed yet: a plain one, or what has
// item<double>(), such as a tensor, which is read when the step is over.
class Metric {
 public:
  template <typename N>
  requires std::is_arithmetic_v<N> Metric(N value)  // NOLINT: converts
      : read_([value] { return static_cast<double>(value); }) {}
  template <typename T>
  requires requires(const T& value) {
    { value.template item<double>() } -> std::same_as<double>;
  }
  Metric(T value)  // NOLINT: converts
      : read_([value = std::move(value)] {
          return value.template item<double>();
        }) {}

  // Throws what the tensor's library throws.
  double Read() const { return read_(); }

 private:
  std::function<double()> read_;
};

}  // namespace cohort::train

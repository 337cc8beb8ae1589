#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace cohort::trainer {

// Samples by id, 0 to size() - 1: an input of input_size() floats and a label.
// Immutable after construction, so safe from any thread.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;
  virtual int64_t input_size() const = 0;

  // Copies the samples `ids` in order.  OutOfRange for an id that is not there.
  // REQUIRES: inputs.size() == ids.size() * input_size(),
  //           labels.size() == ids.size().
  virtual absl::Status Read(std::span<const int64_t> ids,
                            std::span<float> inputs,
                            std::span<int64_t> labels) const = 0;
};

}  // namespace cohort::trainer

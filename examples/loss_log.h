#pragma once

#include <cstdint>
#include <fstream>
#include <span>
#include <string>

#include "absl/status/status.h"

namespace cohort::examples {

// --loss-log: a line a step, "12 0.25", all digits.  A line is the file's when
// Add returns: a process that ends without destructors loses none.
// Thread-compatible.
class LossLog {
 public:
  // Begins the file anew with the losses of steps 1, 2, ... until now: the log
  // tells the whole run, also of one that goes on.  InvalidArgument when it
  // cannot be written.  No file where `path` is empty.
  absl::Status Open(const std::string& path, std::span<const double> losses);

  // Nothing without a file.
  void Add(int64_t step, double loss);

 private:
  void Write(int64_t step, double loss);

  std::ofstream file_;
};

}  // namespace cohort::examples

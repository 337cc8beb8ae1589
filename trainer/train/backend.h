#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort::train {

// What a tensor library adds to the runs of a program that links it
// (trainer/torch/prepare.h).  Used by the training thread.
class Backend {
 public:
  virtual ~Backend() = default;

  // Readies the process, before the gang meets: a rank without the GPU that it
  // needs says so at once.  What it computes on, for people: "on cpu, 1 thread
  // a rank, OpenBLAS 0.3.21".
  virtual absl::StatusOr<std::string> Open(bool use_gpu) = 0;

  // Of the generators that a model draws from, at most kRandomBytesMax.
  virtual absl::StatusOr<std::string> RandomState() = 0;
  virtual absl::Status RestoreRandomState(absl::string_view state) = 0;
};
inline constexpr size_t kRandomBytesMax = 16 << 10;

// That of this program; null: none.  Set before main.
Backend* ProgramBackend();
bool SetProgramBackend(Backend* backend);

}  // namespace cohort::train

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "trainer/checkpoint.h"

namespace cohort::train {

// Under it a part's metadata says which optimizer it is: "Adam".
inline constexpr char kOptimizerKind[] = "optimizer";

// What a run was given to prepare, and saves: a model, an optimizer.
class Part {
 public:
  explicit Part(std::string name) : name_(std::move(name)) {}
  virtual ~Part() = default;
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  // The checkpoint's file of it: "model" is model.safetensors.
  const std::string& name() const { return name_; }

  // Its tensors, valid until the next call of anything of it; names, types and
  // shapes alike on all ranks, unless rank 0 alone writes them.
  virtual absl::StatusOr<trainer::CheckpointFile> Save() = 0;

  // Returns when what was begun on a device is over, so that a number can be
  // read there, and not for ever.
  virtual absl::Status Settle() { return absl::OkStatus(); }

  // Whether what is there now is more than Save saves, such as gradients that
  // are added up over several steps: then a checkpoint waits for a later step.
  virtual bool IsBetween() const { return false; }

  // Makes what each rank computes by itself the same on all, before it is saved
  // or evaluated.  Every rank calls it.
  virtual absl::Status Share() { return absl::OkStatus(); }

 private:
  const std::string name_;
};

}  // namespace cohort::train

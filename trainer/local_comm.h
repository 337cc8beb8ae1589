#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "trainer/comm/comm.h"

namespace cohort::trainer {

// The communicator of a gang of one: every operation is over at once, and
// memory is the process's own.  Thread-compatible.
class LocalComm final : public Comm {
 public:
  LocalComm() : Comm({.rank = 0, .world = 1, .epoch = 1}) {}

  absl::StatusOr<std::span<std::byte>> Allocate(size_t bytes) override;
  // Nobody waits; nothing to do.
  void Revoke() override {}

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };

  absl::Status Run(const Call& call) override;

  std::vector<std::unique_ptr<std::byte, Free>> memory_;
};

}  // namespace cohort::trainer

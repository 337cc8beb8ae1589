#pragma once

#include <functional>
#include <string>

namespace cohort::trainer {

// How a rank's communicator on its GPU was ended by force: an abort level
// of docs/design/0005-gpu-collectives.md.
struct GpuEnd {
  // As v1::GpuAbortLevel numbers them.
  enum class Level {
    kRevoked = 1,  // NCCL gave up what was under way
    kAborted = 2,  // NCCL gave up the communicator
    kKilled = 3,   // a call hangs, and the process is about to be killed
  };

  Level level = Level::kRevoked;
  std::string why;  // device and reason
};

// Told of a level once it was carried out, and of the last one before it is.
// From the owner's thread or its watch's, within the level's deadline: it
// returns within half a second.
using TellGpuEnd = std::function<void(const GpuEnd& end)>;

}  // namespace cohort::trainer

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "trainer/comm/comm.h"

namespace cohort::trainer {

// Lets pairs of ranks exchange through a communicator of all: each exchange of
// a pair is a step, and every rank takes the same number of steps, in a pair or
// not, so that none waits for another's pair.  Thread-compatible; of one round.
class Lockstep {
 public:
  // Of a blob: an address of Gloo.
  static constexpr size_t kBlobBytesMax = 1024;

  // `all` must outlive it.  `deadline` is that of each step.
  Lockstep(Comm& all, absl::Duration deadline)
      : all_(all), deadline_(deadline) {}

  // An exchange of a world of two, this rank and `peer`, in rank order, which
  // may take steps until `steps_max` are taken in all.  UNAVAILABLE when the
  // peer takes the step without its pair.  This must outlive it.
  Exchange With(int peer, int steps_max);

  // Takes what is missing to `steps`.  Errors of Comm, of any step so far.
  absl::Status ComeTo(int steps);

 private:
  absl::StatusOr<std::vector<std::string>> Step(absl::string_view mine);

  Comm& all_;
  const absl::Duration deadline_;
  int steps_ = 0;
  absl::Status status_;
};

}  // namespace cohort::trainer

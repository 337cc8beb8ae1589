#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"

#include "actor/method.h"
#include "common/mutex.h"

namespace cohort::actor {

// What of an actor's object outlives its process: a file for its slot, which
// the incarnations take over from each other (actor/saved_state.h).
//
// SK-1: at any moment there is the last state that was saved, whole: it is
//       synced before it has its name.
// SK-2: an incarnation begins with what the last one saved; from then on what
//       an earlier one saves that still runs somewhere counts for nothing: a
//       file's name has the incarnation, and who begins takes the newest as its
//       own.  One that finds none leaves a claim, below which none counts.
//
// Thread-safe after Restore.
class StateKeeper {
 public:
  static constexpr size_t kBytesMax = size_t{64} << 20;

  // `instance` outlives it.  Files are `<directory>/<slot>.<incarnation>`, and
  // claims those with `.claim`.
  StateKeeper(Instance& instance, std::string directory, int slot,
              uint64_t incarnation);

  // Gives the object what was saved last, if anything was.  REQUIRES: once,
  // before Save.
  absl::Status Restore();

  // Saves; the calling thread is one that may call methods.  INVALID_ARGUMENT,
  // kReasonTooLarge; as Instance::Save; what the file system says.
  absl::Status Save();

 private:
  std::string Path(uint64_t incarnation) const;
  std::string ClaimPath(uint64_t incarnation) const;
  absl::Status Claim();
  absl::Status TakeOver(std::set<uint64_t> saved);

  Instance& instance_;
  const std::string directory_;
  const int slot_;
  const uint64_t incarnation_;

  Mutex saving_;  // an older state never replaces a newer one
};

}  // namespace cohort::actor

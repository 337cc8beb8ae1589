#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "head/explain/explanation.h"
#include "head/state/cluster_state.h"
#include "head/store/transition.h"

namespace cohort::head {

// Who asks for a change: a client's request waits its turn and may be told to
// come back, a node's word is never refused for load.
enum class Admission { kClient, kNode };

// What a call gets whose service is gone.
inline absl::Status Gone() {
  return absl::UnavailableError("the head is shutting down");
}

// The one current ClusterState and its Commit, for the services.  A failed
// append replaces both, so nobody keeps what it gets here beyond one task.
//
// HeadCore implements it.  Strand-bound.
class StateHost {
 public:
  virtual ~StateHost() = default;

  // Unavailable (reason "loading") while the state is loaded from the store.
  virtual absl::StatusOr<const ClusterState*> Readable() = 0;

  // As Readable, and Unavailable (reason "read_only") while the store refuses
  // writes; for clients ResourceExhausted (reason "overloaded") while too much
  // waits to become durable.
  virtual absl::StatusOr<ClusterState*> Writable(Admission admission) = 0;

  // Of the state that Readable gives.  REQUIRES: it gives one.
  virtual Explainer& explainer() = 0;

  // Makes a change of the current state durable; its effects follow.
  virtual void Submit(Transition transition) = 0;

  // For reads: runs `effect` after everything that the current state shows is
  // durable, or at once while the state is read-only.
  virtual void AfterDurable(Effect effect) = 0;

  // A peer follows a head of a higher term: this one must not go on (TM-1).
  virtual void HigherTermSeen(uint64_t term) = 0;
};

}  // namespace cohort::head

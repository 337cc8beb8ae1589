#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

#include "shm/arena.h"
#include "shm/futex.h"

namespace cohort::shm {

// The epoch in front of a count shares a word with it.
inline constexpr int kEpochBits = 24;
inline constexpr uint64_t kEpochMax = (uint64_t{1} << kEpochBits) - 1;

// Where the local ranks of one epoch meet: Arrive says "I am here", Wait
// returns when all are.
//
// A waiter spins for a moment, then sleeps on a futex; an arrival wakes only
// those who sleep.  Words that a rank wrote to shared memory before Arrive are
// seen by its peers after their Wait.  Counts start at zero with the epoch.
// Thread-compatible; Arena::Revoke may come from anywhere.
//
// BR-1: Wait returns OK only when every rank arrived as often as this one, in
//       this epoch: who is in a later one has left it.
// BR-2: Wait ends at its deadline, soon after the epoch is revoked, and within
//       100 ms of the death of a rank that it waits for.
class Barrier {
 public:
  // `place` must outlive the barrier.  REQUIRES: epoch <= kEpochMax.
  Barrier(ArenaPlace& place, uint64_t epoch);

  // ABORTED when the epoch is revoked: to ask before coming to anything new.
  absl::Status CheckEpoch() const;

  // ABORTED when the process of a rank that came once is gone.  Never blocks.
  absl::Status CheckPeers() const;

  // Never blocks.
  void Arrive();

  // DEADLINE_EXCEEDED when the deadline passed (Missing() says whom it waited
  // for); ABORTED when the epoch is revoked before all arrived, or when the
  // process of a missing rank is gone: the epoch is then revoked for everyone.
  absl::Status Wait(Instant deadline);

  // The ranks that have not arrived as often as this one.
  std::vector<int> Missing() const;

 private:
  bool HasArrived(int rank) const;
  bool AllArrived() const;
  bool IsRevoked() const;
  bool IsGone(int rank) const;
  absl::Status Revoked() const;
  absl::Status Gone(int rank) const;
  absl::Status Sleep(Instant deadline);

  ArenaPlace& place_;
  Arena& arena_;
  const uint64_t epoch_;
  const int spins_;
  // What `arrived` of every rank must reach.
  uint64_t target_;
};

}  // namespace cohort::shm

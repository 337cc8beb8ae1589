#include "shm/barrier.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "absl/strings/str_cat.h"

namespace cohort::shm {
namespace {

// How long to look before sleeping: about 20 us on the machines we measured.  A
// wake-up costs 12-22 us, so spinning longer cannot win much, and a core that
// spins is one that a late rank may need.
constexpr int kSpins = 700;

// How often a sleeper looks for peers that died.
constexpr std::chrono::milliseconds kLifeCheckPeriod(50);

// The epoch in front: a rank that is in a later one has left ours, and counts
// begin again at zero without anybody resetting words that others read.
constexpr int kCountBits = 64 - kEpochBits;

int SpinsFor(int local_world) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0) return 0;
  // With fewer cores than ranks, a spinning rank keeps the one it waits for off
  // its core.
  return CPU_COUNT(&cpus) >= local_world ? kSpins : 0;
}

}  // namespace

Barrier::Barrier(ArenaPlace& place, uint64_t epoch)
    : place_(place),
      arena_(place.arena()),
      epoch_(epoch),
      spins_(SpinsFor(arena_.local_world())),
      target_(epoch << kCountBits) {}

void Barrier::Arrive() {
  ++target_;
  // Sequentially consistent, with the waiter's store to `sleeping` and load of
  // `arrived`: either it sees us, or we see it asleep.
  arena_.slot(place_.local_rank()).arrived.store(target_);
  for (int rank = 0; rank < arena_.local_world(); ++rank) {
    if (rank == place_.local_rank()) continue;
    layout::Slot& peer = arena_.slot(rank);
    if (peer.sleeping.load() == 0) continue;
    peer.doorbell.fetch_add(1);
    FutexWakeAll(peer.doorbell);
  }
}

bool Barrier::HasArrived(int rank) const {
  const uint64_t arrived = arena_.slot(rank).arrived.load();
  return arrived >= target_ && arrived >> kCountBits == epoch_;
}

bool Barrier::AllArrived() const {
  for (int rank = 0; rank < arena_.local_world(); ++rank) {
    if (!HasArrived(rank)) return false;
  }
  return true;
}

absl::Status Barrier::CheckEpoch() const {
  return IsRevoked() ? Revoked() : absl::OkStatus();
}

bool Barrier::IsRevoked() const {
  if (arena_.revoked_epoch() >= epoch_) return true;
  for (int rank = 0; rank < arena_.local_world(); ++rank) {
    if (arena_.slot(rank).arrived.load() >> kCountBits > epoch_) return true;
  }
  return false;
}

absl::Status Barrier::Revoked() const {
  return absl::AbortedError(absl::StrCat("epoch ", epoch_, " of attempt ",
                                         arena_.attempt(), " is revoked"));
}

absl::Status Barrier::Gone(int rank) const {
  return absl::AbortedError(absl::StrCat("the process of local rank ", rank,
                                         " (pid ", arena_.pid(rank),
                                         ") is gone"));
}

absl::Status Barrier::CheckPeers() const {
  for (int rank = 0; rank < arena_.local_world(); ++rank) {
    if (arena_.pid(rank) != 0 && !arena_.IsHeld(rank)) return Gone(rank);
  }
  return absl::OkStatus();
}

absl::Status Barrier::Wait(Instant deadline) {
  for (int spin = 0; spin <= spins_; ++spin) {
    // In this order: what everyone came to is over, whatever happens then.
    if (AllArrived()) return absl::OkStatus();
    if (IsRevoked()) return Revoked();
    SpinPause();
  }
  layout::Slot& own = arena_.slot(place_.local_rank());
  own.sleeping.store(1);
  const absl::Status slept = Sleep(deadline);
  own.sleeping.store(0);
  return slept;
}

absl::Status Barrier::Sleep(Instant deadline) {
  layout::Slot& own = arena_.slot(place_.local_rank());
  for (;;) {
    const uint32_t rings = own.doorbell.load();
    if (AllArrived()) return absl::OkStatus();
    if (IsRevoked()) return Revoked();
    const Instant now = std::chrono::steady_clock::now();
    if (now >= deadline) {
      return absl::DeadlineExceededError("not all local ranks arrived");
    }
    FutexWait(own.doorbell, rings, std::min(deadline, now + kLifeCheckPeriod));
    if (own.doorbell.load() != rings) continue;
    for (const int rank : Missing()) {
      if (!IsGone(rank)) continue;
      arena_.Revoke(epoch_);
      return Gone(rank);
    }
  }
}

bool Barrier::IsGone(int rank) const {
  // Without a process id it has not come yet.
  return arena_.pid(rank) != 0 && !arena_.IsHeld(rank) &&
         // It may have arrived just before it ended.
         !HasArrived(rank);
}

std::vector<int> Barrier::Missing() const {
  std::vector<int> missing;
  for (int rank = 0; rank < arena_.local_world(); ++rank) {
    if (!HasArrived(rank)) missing.push_back(rank);
  }
  return missing;
}

}  // namespace cohort::shm

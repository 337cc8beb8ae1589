#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/unique_fd.h"
#include "shm/arena_layout.h"
#include "shm/metrics_cell.h"
#include "shm/segment.h"

namespace cohort::shm {

struct ArenaOptions {
  // Names the attempt in errors and keeps a rank out of another attempt's
  // memory; 1 to 63 bytes.
  std::string attempt = {};
  // The first epoch of the attempt.
  uint64_t epoch = 1;
  // Ranks of the attempt on this node, 1 to kLocalRanksMax.
  int local_world = 1;
};

// The control segment of one attempt on one node: who its local ranks are,
// their last metrics, the words they meet on, and the revoked epoch.
//
// The worker daemon creates it in the attempt's runtime directory before the
// ranks start, opens it again after a restart, and removes the directory when
// the attempt is over; ranks hold it through an ArenaPlace.  Thread-safe: all
// of it is atomic words in shared memory (metrics cells: one writer each).
class Arena {
 public:
  // Daemon.  Creates `directory`/arena.  INVALID_ARGUMENT for bad options; else
  // as Segment::Create.
  static absl::StatusOr<std::unique_ptr<Arena>> Create(
      const std::string& directory, const ArenaOptions& options);

  // Anyone.  Errors as Segment::Open; DATA_LOSS when the header's counts do not
  // fit the file.
  static absl::StatusOr<std::unique_ptr<Arena>> Open(
      const std::string& directory);

  const std::string& directory() const { return directory_; }
  // Whether its file has all its bytes.  A process that cuts it makes each look
  // at what is missing a SIGBUS; who must live through that asks before.
  bool IsWhole() const;
  absl::string_view attempt() const;
  uint64_t epoch() const { return control().epoch; }
  int local_world() const { return static_cast<int>(control().local_world); }

  // Makes pending and later work of all communicators of `epoch` and of those
  // before it fail with ABORTED, soon: sleeping ranks are woken.  Never undone.
  // The daemon calls it when a rank ends or the head says so.
  void Revoke(uint64_t epoch);
  uint64_t revoked_epoch() const;

  // The process that claimed the place; 0 when none did.
  // REQUIRES (also below): 0 <= local_rank < local_world().
  int32_t pid(int local_rank) const;
  // Whether a living process holds the place now.
  bool IsHeld(int local_rank) const;
  // The metrics of `local_rank`.
  MetricsCell metrics(int local_rank) const;
  // What `local_rank` posts for a round of a collective, by the round's parity.
  // Its own to write until it arrives at the round's barrier, everyone's to
  // read from then until they arrive at the next.
  layout::Posted& posted(int local_rank, uint64_t round) const;

 private:
  friend class ArenaPlace;
  friend class Barrier;

  Arena(std::string directory, std::unique_ptr<Segment> segment,
        UniqueFd lock_file);

  layout::Control& control() const;
  layout::Slot& slot(int local_rank) const;

  const std::string directory_;
  const std::unique_ptr<Segment> segment_;
  // To ask who holds which place.
  const UniqueFd lock_file_;
};

// A run of bytes inside a rank's data segments, as its peers can find it.
struct ArenaLocation {
  uint32_t region = 0;
  uint64_t offset = 0;
};

// One rank's place in the arena: it takes memory that its peers can map, tells
// how far it is, and maps theirs.
//
// Held by the rank's process for its life and by nobody else at the same time:
// the claim is a file lock, which ends with the process however it ends.  Data
// segments are `directory`/rank-<r>.<n>; they outlive the process.
// Thread-compatible.
//
// AR-1: a place is held by one living process at most.
class ArenaPlace {
 public:
  // Opens the arena in `directory` and claims `local_rank`.  INVALID_ARGUMENT
  // outside local_world; ALREADY_EXISTS when a living process holds it; else as
  // Arena::Open.
  static absl::StatusOr<std::unique_ptr<ArenaPlace>> Claim(
      const std::string& directory, int local_rank);

  Arena& arena() const { return *arena_; }
  int local_rank() const { return local_rank_; }

  // Takes `bytes` of zeroed, touched, 64-byte aligned memory in the arena;
  // valid as long as this place.  RESOURCE_EXHAUSTED when the file system or
  // the rank's kRegionsMax regions are full; nothing is taken then.
  absl::StatusOr<std::span<std::byte>> Allocate(size_t bytes);

  // Where [data, data + bytes) lies in this rank's regions; nullopt when it is
  // memory of its own, out of its peers' reach.
  std::optional<ArenaLocation> Locate(const void* data, size_t bytes) const;

  // This process's view of `bytes` at `location` of a peer.  Mapped once and
  // kept.  DATA_LOSS when the peer has no such range; else as Segment::Open.
  absl::StatusOr<std::byte*> MapPeer(int peer, ArenaLocation location,
                                     size_t bytes);

  // Where to publish metrics.
  MetricsCell metrics() const { return arena_->metrics(local_rank_); }

 private:
  struct Region {
    uint32_t index = 0;
    std::unique_ptr<Segment> segment;
    size_t used_bytes = 0;
  };

  ArenaPlace(std::unique_ptr<Arena> arena, int local_rank, UniqueFd claim);
  std::string RegionPath(int rank, uint32_t region) const;

  const std::unique_ptr<Arena> arena_;
  const int local_rank_;
  // The lock lasts as long as this open file.
  const UniqueFd claim_;
  std::vector<Region> regions_;
  // By peer, then region; null until first used.
  std::vector<std::vector<std::unique_ptr<Segment>>> peers_;
};

}  // namespace cohort::shm

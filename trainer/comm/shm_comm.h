#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "shm/arena.h"
#include "shm/barrier.h"
#include "trainer/comm/comm.h"

namespace cohort::trainer {

// A communicator over the arena, for ranks that share one node; the world is
// the arena's local world.
//
// Each rank owns a range of every buffer: it reads that range of all ranks in
// rank order, and writes the result to all of them, in place.  Memory from
// Allocate is reached by the peers directly; other buffers are staged through
// it.  Small operations travel inside the control segment.  Nothing is left
// behind in the process; memory belongs to the attempt.
class ShmComm final : public Comm {
 public:
  // `place` must outlive the communicator.  ABORTED when `epoch` is revoked
  // already; FAILED_PRECONDITION when it is older than the arena's.
  static absl::StatusOr<std::unique_ptr<ShmComm>> Create(shm::ArenaPlace& place,
                                                         uint64_t epoch);

  absl::StatusOr<std::span<std::byte>> Allocate(size_t bytes) override;
  absl::Status CheckPeers() const override;
  // Revokes the epoch for all local ranks.
  void Revoke() override;
  // Thread-safe.
  bool is_revoked() const;

 private:
  // The buffers of one round, where every rank can reach them.
  struct Round {
    uint32_t index = 0;
    std::span<const Buffer> buffers = {};
    bool is_inline = false;
    // By buffer: this rank's memory that the peers reach.
    std::vector<std::byte*> reachable = {};
  };

  ShmComm(shm::ArenaPlace& place, const Identity& identity);

  absl::Status Run(const Call& call) override;
  absl::Status RunRound(const Call& call, Round round, bool staged,
                        shm::Instant until);

  // Makes the stage large enough for every round of `call`.
  absl::Status Reserve(const Call& call) override;
  static bool Reduces(const Call& call);
  bool NeedsStage(const Call& call, const Buffer& buffer) const;
  absl::Status StageIn(const Call& call, Round& round);
  // A long copy, given up soon after the epoch is revoked (CM-1).
  absl::Status Copy(std::byte* to, const void* from, size_t bytes) const;
  void Post(const Call& call, const Round& round, bool staged);
  absl::Status Meet(const Call& call, shm::Instant until);
  // Whether all ranks brought the same; all come to the same verdict.
  absl::Status ComparePosts(const Call& call) const;

  absl::Status Execute(const Call& call, const Round& round);
  absl::Status ReduceOwnRange(const Call& call, const Round& round);
  void ReduceInline(Call call, const Round& round);
  absl::Status GatherBlocks(const Call& call, const Round& round);
  absl::Status CopyFromRoot(const Call& call, const Round& round);
  // Where this process sees buffer `index` of `rank`.
  absl::StatusOr<std::byte*> View(int rank, size_t index, size_t bytes);

  shm::layout::Posted& posted(int rank) const;

  shm::ArenaPlace& place_;
  shm::Barrier barrier_;
  // Rounds so far, on all ranks alike; the parity picks the post.
  uint64_t rounds_ = 0;
  std::span<std::byte> stage_;
};

}  // namespace cohort::trainer

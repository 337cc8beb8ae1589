#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/mutex.h"
#include "trainer/comm/comm.h"
#include "trainer/comm/node_layout.h"
#include "trainer/comm/shm_comm.h"
#include "trainer/comm/signature.h"

namespace cohort::trainer {

// A communicator for several ranks on several nodes: shared memory inside a
// node, another communicator between nodes.
//
// Between nodes there are lanes: the first rank of each node makes one, the
// second another, as many as the smallest node has ranks, at most kLanesMax.  A
// large all-reduce is a reduce-scatter inside the node, an all-reduce of its
// part in each lane, and an all-gather inside.  So a byte crosses the network
// once for a node, not once for a rank, and ranks without a lane have no
// connections.
//
// The first rank of a node is its leader.  Before anything is moved, leaders
// compare what all ranks bring and pass the verdict on; small reductions and
// broadcasts travel with it.
//
// A ReduceScatter costs as much as an AllReduce.  An AllGather is a broadcast
// of each node's blocks in turn.
//
// HC-1: all ranks get the same bits, for any timing: the elements of a node's
//       ranks are combined in rank order, then the nodes' results in the order
//       of nodes.  That is another order of additions than in one node, so sums
//       of floats may differ from those in their low bits; 16-bit floats are
//       rounded once in each node and once at the end.
// HC-2: who is missing at a deadline is named by rank, by all ranks that came;
//       of a node whose leader is missing it is the leader.  For it, the ranks
//       of a node meet within half of the deadline, or all but 4 seconds.
// HC-3: an epoch that ends in a node, because it is revoked or a rank is gone,
//       ends the lanes of that node within 100 ms, and so the other nodes.
class HierarchicalComm final : public Comm {
 public:
  static constexpr int kLanesMax = 8;
  static int LanesOf(const NodeLayout& layout);

  // `local` has the ranks of this node, in their order; `lane` a rank of each
  // node, in the order of nodes, and is null where this rank has none.
  // RESOURCE_EXHAUSTED without room in shared memory.
  static absl::StatusOr<std::unique_ptr<HierarchicalComm>> Create(
      const NodeLayout& layout, const Identity& identity,
      std::unique_ptr<ShmComm> local, std::unique_ptr<Comm> lane);
  ~HierarchicalComm() override;

  absl::StatusOr<std::span<std::byte>> Allocate(size_t bytes) override {
    return local_->Allocate(bytes);
  }
  absl::Status CheckPeers() const override;
  void Revoke() override;

 private:
  struct Card;
  // How far an operation is: each step has a deadline of its own, so that who
  // waits for a rank hears of those that it waited for.
  enum class Step { kInNode, kBetweenNodes, kLast };

  HierarchicalComm(const NodeLayout& layout, const Identity& identity,
                   std::unique_ptr<ShmComm> local, std::unique_ptr<Comm> lane,
                   std::span<Card> cards);

  absl::Status Run(const Call& call) override;

  bool is_leader() const { return local_->rank() == 0; }
  int RankOf(int local_rank) const;
  absl::Duration Left(Step step) const;
  // Parts of an operation, with errors in the gang's ranks.
  absl::Status OnNode(const Call& call, Call part, Step step);
  absl::Status OnLane(const Call& call, Call part, Step step);

  // All ranks come to one verdict; small operations are over with it.
  absl::Status Agree(const Call& call);
  absl::Status ReserveFor(const Call& call);
  // On leaders: what `met`, the node, says, and then the others.
  void Judge(const Call& call, const absl::Status& met, Card& verdict);
  absl::Status Compare(int peer, const Signature& theirs) const;
  absl::Status JudgeNode(const Call& call, Card& node);
  absl::Status JudgeNodes(const Call& call, Card& verdict);

  absl::Status Move(const Call& call);
  absl::Status MoveReduction(const Call& call);
  absl::Status MoveBroadcast(const Call& call);
  absl::Status MoveGather(const Call& call);
  // This rank's parts of buffers that cross the network in lanes.
  std::vector<Buffer> LaneParts(std::span<const Buffer> buffers) const;
  // The blocks that the ranks of `node` bring, and those of other nodes.
  std::vector<Buffer> BlocksOf(std::span<const Buffer> buffers, int node) const;
  std::vector<Buffer> BlocksOfOthers(std::span<const Buffer> buffers) const;

  // A thread: ends the lane when the epoch ends in the node.
  void WatchNode();

  const NodeLayout layout_;
  const int node_;
  const int lanes_;
  const std::unique_ptr<ShmComm> local_;
  const std::unique_ptr<Comm> lane_;
  const std::span<Card> cards_;  // by local rank, in shared memory
  std::vector<Card> node_cards_;
  std::chrono::steady_clock::time_point until_;
  absl::Duration reserve_;  // for each step behind the present one

  Mutex mutex_;
  CondVar changed_;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread watch_;
};

}  // namespace cohort::trainer

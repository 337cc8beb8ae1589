#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/job_id.h"
#include "common/resources.h"
#include "common/strong_id.h"
#include "head/placement/placement_index.h"
#include "head/state/desired.h"
#include "head/state/observed.h"
#include "head/store/records.h"

namespace cohort::head {

// Null when the node has no such device.
const Device* FindDevice(const NodeRecord& node, const std::string& id);

// Which nodes there are, what each offers and what is held of it.
//
//   PL-2: no device and no amount is held twice: Hold takes only what the
//         snapshot shows as free, and no two nodes offer one real GPU.
//   DV-5: nothing is free of a device that is fenced.
//   DV-7: of samples there is the latest of each device, until its node is
//         dead.
//   PL-3: a node's resources are offered only between Offer, which follows the
//         registration in this term and its full observed set, and Withdraw.
//         Until then they count as held.
//
// An orphan is an attempt of which the node has processes without a lease: they
// are over for the head, or no row knows them (OrphanTable).  What they hold
// stays unavailable until the node says that they are gone.
// Thread-compatible; belongs to ClusterState.
class NodeTable {
 public:
  NodeTable() = default;
  NodeTable(const NodeTable&) = delete;
  NodeTable& operator=(const NodeTable&) = delete;

  // Adds or replaces the record; not offered, orphans forgotten, holds stay.
  void Put(NodeRecord record);
  // REQUIRES: it is here, dead, and holds nothing.
  void Remove(const NodeId& node);
  const NodeRecord* Find(const NodeId& node) const;

  void Offer(const NodeId& node);
  // Away from `now` on.
  void Withdraw(const NodeId& node, absl::Time now);
  bool IsOffered(const NodeId& node) const;
  // Since when a node that is not dead is not offered, for people;
  // InfinitePast: it is, or it is not known.
  absl::Time AwaySince(const NodeId& node) const;
  // Dead nodes are withdrawn and their orphans forgotten.
  void MarkDead(const NodeId& node);
  // Silent, but not dead yet; heard again.  REQUIRES: it is not dead.
  void MarkSuspect(const NodeId& node);
  void MarkAlive(const NodeId& node);
  void SetDrain(const NodeId& node, const std::optional<Drain>& drain);
  // When its shown state became what it is, for people.
  void SetSince(const NodeId& node, absl::Time since);
  // Why no attempt could begin there, as the node says; empty: it could.  Kept
  // until the node says otherwise or is dead.
  void SetNotReady(const NodeId& node, std::string why);
  // Empty also of a node that is not here.
  const std::string& NotReadyBecause(const NodeId& node) const;
  // REQUIRES: the node has the device.
  void SetDeviceState(const NodeId& node, const v1::DeviceStatus& device,
                      absl::Time now);
  // The last event that told of a device's state; 0: none in this head's life.
  void SetDeviceEvent(const NodeId& node, const std::string& device,
                      uint64_t event);
  uint64_t DeviceEvent(const NodeId& node, const std::string& device) const;
  // What its devices said of themselves, in place of what they said before
  // (DV-7).
  void SetSamples(const NodeId& node, std::vector<v1::DeviceStatus> devices);
  // The latest of one device; null: none since this head began, or the node is
  // dead.
  const v1::DeviceSample* SampleOf(const NodeId& node,
                                   const std::string& device) const;
  // Nodes whose rows show another state than when this was last asked.
  std::vector<NodeId> TakeRestated();
  // The event that a drain comes from; of a node without one, its registration.
  void SetCause(const NodeId& node, uint64_t event);

  // What processes hold of a node, all of one attempt.
  struct Held {
    ResourceSet each;  // GPU included
    // How much of which devices.
    std::map<Incarnation, std::map<std::string, Amount>> processes;
    bool everything =
        false;  // all of the node, and what is above does not count

    ResourceSet resources() const {
      return everything ? ResourceSet()
                        : each.Times(static_cast<int64_t>(processes.size()));
    }
  };

  // The processes' resources are taken on the node, beside what others of the
  // attempt hold there.  What is loaded from rows may be more than a node that
  // came back smaller has; then nothing is free.
  // REQUIRES: the node is here, and none of them holds anything on it.
  void Hold(const AttemptId& attempt, const NodeId& node, Held held);
  // Gives back; nothing when it holds nothing.
  void Release(const AttemptId& attempt, const NodeId& node,
               const Incarnation& process);

  // The node still has these processes of `attempt` of `job` (nil: not known),
  // which have no lease there, in place of those that were told before; none:
  // nothing is left of it.  What the whole node could not hold takes all of it.
  // True when there were none before.
  bool SetOrphan(const NodeId& node, const AttemptId& attempt, const JobId& job,
                 Held held);
  // True when there was one.
  bool RemoveOrphan(const NodeId& node, const AttemptId& attempt);
  // What it holds; null when there is none.
  const Held* FindOrphan(const NodeId& node, const AttemptId& attempt) const;
  // The event that told of it; nothing when there is no such orphan.  0: none.
  void SetOrphanEvent(const NodeId& node, const AttemptId& attempt,
                      uint64_t event);
  uint64_t OrphanEvent(const NodeId& node, const AttemptId& attempt) const;
  // Which of `unbegun`, in their order, have no room on the node beside all the
  // rest that holds it, orphans included.
  std::vector<AttemptId> WithoutRoom(
      const NodeId& node, const std::vector<AttemptId>& unbegun) const;
  // Of a node, in the order of their ids.
  std::vector<AttemptId> OrphansOn(const NodeId& node) const;
  size_t OrphanCountOn(const NodeId& node) const;
  bool IsOrphanOn(const NodeId& node, const AttemptId& attempt) const {
    return FindOrphan(node, attempt) != nullptr;
  }
  // Neither holds nor orphans.
  bool IsEmpty(const NodeId& node) const;

  // FailedPrecondition, naming both, when another node that is not dead offers
  // one of these GPUs.  Simulated ones are no one's.
  absl::Status CheckGpus(const NodeId& id, const v1::Node& node) const;

  // Who holds how much of a device, orphans too.
  std::map<AttemptId, Amount> HoldersOf(const NodeId& node,
                                        const std::string& device) const;
  // What each attempt holds of a node; orphans are not among them.
  std::map<AttemptId, ResourceSet> HeldOn(const NodeId& node) const;
  // What orphans hold of a node, by their jobs; of jobs that are known.
  std::map<JobId, ResourceSet> HeldByOrphansOn(const NodeId& node) const;
  // The node as it would be in the index if it took new work and `without`
  // held nothing.  REQUIRES: the node is here.
  NodeSnapshot Imagine(const NodeId& node,
                       const std::set<AttemptId>& without) const;

  // What could be placed there now: nothing unless offered.
  ResourceSet AvailableOn(const NodeId& node) const;
  // All nodes that are not dead; those not offered with nothing available, so
  // that a request which only they can hold is not told that it never fits.
  const PlacementIndex& index() const;
  // What came free since this was last asked.
  Gains TakeGains();

  // Another one after each change, also of dead nodes, which are in no index.
  uint64_t version() const { return version_; }

  const std::map<NodeId, NodeRecord>& records() const { return records_; }
  // All that a node has.  REQUIRES: it is here.
  const ResourceSet& ResourcesOf(const NodeId& node) const {
    return ledgers_.at(node).idle.total;
  }
  int64_t CountOf(NodeState state) const;
  // By the name of ShownState, those without a node too.
  std::map<std::string, int64_t> CountsByState() const;
  // Attempts that hold something on a node, over all nodes.
  int64_t HoldCount() const;
  size_t DrainedCount() const;
  // Of a node that is here.  One that would be ALIVE and is not offered is
  // ABSENT: not in its row, which says the same before and after, and so
  // neither an event nor a new `since` there.
  NodeState ShownState(const NodeId& node) const;
  // Since when; InfinitePast: it is not known.
  absl::Time ShownSince(const NodeId& node) const;
  // Sums over the nodes in the index.
  ResourceSet Total() const;
  ResourceSet Available() const;

 private:
  struct Ledger {
    // As the record says, of an idle node.
    NodeSnapshot idle;
    bool offered = false;
    absl::Time away_since = absl::InfinitePast();
    std::optional<NodeState> told;  // by TakeRestated
    std::map<AttemptId, Held> holds;
    std::map<AttemptId, Held> orphans;
    std::map<AttemptId, JobId> orphan_jobs;
    std::map<AttemptId, uint64_t> orphan_events;
    std::map<std::string, uint64_t> device_events;
    std::vector<v1::DeviceStatus> samples;
    // Sums over both.
    ResourceSet resources;
    std::map<std::string, Amount> devices;
    int everything = 0;

    void Charge(const Held& held);
    void Refund(const Held& held);
    void RefundDevices(const std::map<std::string, Amount>& shares);
    void ForgetOrphans();
  };

  void Move(const NodeId& node, NodeState to);
  void ForgetGpus(const NodeRecord& record);
  static NodeSnapshot SnapshotOf(const NodeRecord& record, const Ledger& ledger,
                                 NodeGate gate);
  // The node changed: the next look at the index finds it as it is then.
  // Once for all that changed meanwhile: a gang gives back rank by rank.
  void Refresh(const NodeId& node);

  std::map<NodeId, NodeRecord> records_;
  // Where in records_, for each heartbeat's look.
  absl::flat_hash_map<NodeId, NodeRecord*> by_id_;
  absl::node_hash_map<NodeId, Ledger> ledgers_;
  std::map<NodeState, int64_t> counts_;
  std::map<std::string, NodeId> gpus_;  // real ones of nodes that are not dead
  // By index(), but for the nodes that changed since it was last asked for.
  mutable PlacementIndex index_;
  mutable std::set<NodeId> stale_;
  uint64_t version_ = 0;
  std::set<NodeId> restated_;  // perhaps
};

}  // namespace cohort::head

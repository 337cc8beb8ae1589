#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "client/event.h"
#include "client/job.h"
#include "common/device_sample.h"
#include "common/job_id.h"
#include "common/resources.h"
#include "common/strong_id.h"
#include "common/taint.h"

// What users are told about the cluster.  Plain values.
namespace cohort {

// An attempt that has a device, or a part of it.
struct DeviceHolder {
  AttemptId attempt;
  JobId job;  // nil: the head does not know it
  std::string job_name;
  Amount share;
  std::vector<int> ranks;
};

struct Device {
  std::string id;
  std::string kind;  // "gpu"
  std::string model;
  int64_t memory_bytes = 0;
  bool simulated = false;
  // Empty where it is not known.
  std::string pci_bus_id;
  std::optional<int> numa_node;
  std::vector<std::string> nvlink_peers;  // ids
  std::string parent;                     // of a MIG instance: the GPU's uuid
  // HEALTHY; SUSPECT: given out last; FENCED: given to no one.
  std::string state;
  std::string reason;  // unless it is healthy
  std::optional<absl::Time> since;
  std::optional<DeviceSample> sample;
  std::vector<DeviceHolder> holders;
};

// A person wants a node to take no new work.
struct Drain {
  std::string reason;
  std::string principal;  // who asked
  std::optional<absl::Time> asked_at;
  std::optional<absl::Time> deadline;  // nothing: what runs may go on
};

struct Node {
  NodeId id;
  std::string name;
  // ALIVE, UNFIT, ABSENT, SUSPECT, DRAINING, DRAINED, DEAD
  std::string state;
  std::optional<absl::Time> since;  // it is in this state
  uint64_t incarnation = 0;
  int64_t pid = 0;  // of its worker daemon
  ResourceSet resources;
  ResourceSet available;
  std::map<std::string, std::string> labels;
  std::vector<Taint> taints;
  std::vector<Device> devices;
  std::optional<Drain> drain;
  std::string unfit;  // why no attempt could begin there; empty: it could
  std::string host;   // where its ranks can be reached
  std::string build;  // of its worker daemon
};

// An attempt that a node has.
struct HeldAttempt {
  AttemptId attempt;
  JobId job;  // nil: the head does not know it
  std::string job_name;
  int number = 0;
  // PREPARING, RUNNING, ENDING; VOID: over, but the node still has it;
  // ORPHAN: of before a restore, until a person adopts or ends it.
  std::string state;
  ResourceSet resources;
  std::vector<Rank> ranks;  // on that node
};

struct NodeDetails {
  Node node;
  std::vector<HeldAttempt> held;
  std::vector<Event> history;  // the last that happened to it, newest last
};

// Of NodeDetails::history.
inline constexpr size_t kNodeHistoryMax = 32;

// Of the nodes that are not dead.
struct ClusterResources {
  ResourceSet total;
  ResourceSet available;
};

// An attempt that nobody has spoken for since the head's store was restored.
struct OrphanAttempt {
  AttemptId attempt;
  JobId job;
  std::vector<std::string> nodes;  // names
  // "RUNNING", "PREPARED", "ENDED", "MISSING", "AWAY"; "ENDING": a person has
  // ended it, and those of `nodes` have not said yet that it is gone.
  std::string state;
  std::optional<absl::Time> since;  // nothing: not known
};

// A job that goes on with an attempt from before a restore.
struct Adoption {
  JobId job;
  // Of its nodes, by name, those that are dead or do not have it any more: its
  // ranks on the others end, and the job goes on as after a lost node.
  std::vector<std::string> lost_nodes;
};

struct ClusterStatus {
  ClusterId cluster_id;
  std::string address;
  std::string http_address;  // empty: it serves no HTTP
  int64_t head_pid = 0;
  uint64_t term = 0;
  std::map<std::string, int64_t> nodes_by_state;
  std::map<std::string, int64_t> jobs_by_state;
  // The head's store refuses writes for now.
  bool read_only = false;
  std::string read_only_why;  // empty unless it does
  // The store was restored a moment ago: nothing starts yet.
  bool settling = false;
  std::vector<OrphanAttempt> orphans;  // as many as fit
  int64_t orphan_count = 0;            // in all
  // Nodes that refuse this head because they follow a store of the cluster that
  // was restored later, of that term; and what to do.
  std::vector<std::string> later_store_nodes;
  uint64_t later_store_term = 0;
  std::string later_store_why;  // empty unless there are some
};

// What a backup of the head's store has.
struct BackupSummary {
  int64_t files = 0;
  int64_t size_bytes = 0;
  // Hex hashes of packages that jobs need and that could not be read.
  std::vector<std::string> missing_packages;
};

}  // namespace cohort

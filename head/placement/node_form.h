#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

#include "common/label_selector.h"
#include "common/resources.h"
#include "common/strong_id.h"
#include "common/taint.h"
#include "head/placement/gang_request.h"

namespace cohort::head {

using Labels = std::map<std::string, std::string>;

inline constexpr Amount kWholeDevice =
    Amount::FromTenThousandths(Amount::kScale);
// Whether a worker asks for a part of a GPU.
constexpr bool IsFraction(Amount gpus) { return gpus < kWholeDevice; }

// One GPU of a node.
struct DeviceShare {
  std::string id;
  Amount free;  // what is left of 1
  // What would be were it not fenced; then `free` is nothing.
  Amount fenced = {};
  bool suspect = false;  // taken last

  friend bool operator==(const DeviceShare&, const DeviceShare&) = default;
};

// Whether a node takes new work, and why not.
enum class NodeGate : uint8_t {
  kOpen = 0,
  kAbsent = 1,    // has not registered with this head yet, or is leaving (PL-3)
  kSuspect = 2,   // silent
  kDrained = 3,   // a person wants it empty
  kNotReady = 4,  // it says that no attempt could begin there
};

// What one node has now.
struct NodeSnapshot {
  NodeId id;
  std::string name;
  ResourceSet total;
  ResourceSet available;  // GPU included
  // Held beyond the total: it came back smaller, or has what the head did not
  // place there.  Has to end before anything is free.
  ResourceSet overdrawn;
  std::vector<DeviceShare> devices;  // its GPUs, in the node's order
  Labels labels;
  std::vector<Taint> taints;  // ascending
  std::string accelerator;    // the model of its GPUs; empty: none, or several
  NodeGate gate = NodeGate::kOpen;
};

// Everything that decides how much a node can take but its labels and its name:
// nodes of one form are interchangeable to a request that does not select by
// labels, and a cluster has few forms however many nodes it has.  A value.
struct NodeForm {
  ResourceSet total;
  ResourceSet available;
  ResourceSet overdrawn;
  std::vector<Amount> shares;  // what is left of each GPU, ascending
  std::vector<Amount> fenced;  // what would be of those that are, ascending
  std::vector<Taint> taints;
  std::string accelerator;
  NodeGate gate = NodeGate::kOpen;

  friend bool operator==(const NodeForm&, const NodeForm&) = default;

  template <typename H>
  friend H AbslHashValue(H h, const NodeForm& form) {
    return H::combine(std::move(h), form.total, form.available, form.overdrawn,
                      form.shares, form.fenced, form.accelerator,
                      form.taints.size(), form.gate);
  }
};

NodeForm FormOf(const NodeSnapshot& node);
// As it were if none of its GPUs were fenced.
NodeForm WithoutFences(const NodeForm& form);

// ---- why a node cannot ----
// The planner and those who explain it share these.

// Whether a node of this form may be used at all: it takes new work, its taints
// are tolerated, its GPUs are of the type asked for.
bool FormAllows(const NodeForm& form, const GangRequest& request);
// A node without new work on it, however it comes: FormAllows but for the gate.
bool FormAllowsIdle(const NodeForm& form, const GangRequest& request);
// `type` is the model or some words of it, whatever their case: "h100" of
// "NVIDIA H100 80GB HBM3".
bool IsAccelerator(absl::string_view model, absl::string_view type);
// Whether the selector asks for more than labels: by the label `host`.
bool SelectsByName(const LabelSelector& selector);
// The requirements on labels hold, those on `host` aside.
bool LabelsAllow(const Labels& labels, const LabelSelector& selector);
// Those on `host` hold: of the node's name, or of its id in hex.
bool HostAllows(const NodeSnapshot& node, const LabelSelector& selector);
// Workers of the request that fit, at most ranks_per_node_max, and none or
// workers_per_node where it says so; on an idle one.
// Workers are equal, so this is exact: any way of filling the node reaches it.
int64_t Capacity(const NodeForm& form, const GangRequest& request);
int64_t IdleCapacity(const NodeForm& form, const GangRequest& request);
// Of what is free there of a resource, as much as so many workers can use: GPUs
// that are whole, or parts that are large enough, and for who finds none the
// largest that are not.
Amount FreeFor(const NodeForm& form, const ResourceSet::Entry& need,
               int64_t workers);
// What so many workers lack of it there.
Amount LackFor(const NodeForm& form, const ResourceSet::Entry& need,
               int64_t workers);
// Workers that fit as far as one resource goes.
int64_t CapacityBy(const NodeForm& form, const ResourceSet::Entry& need);

// Whether so many workers would find GPUs there were none of them fenced, and
// do not now.
bool KeptByFences(const NodeForm& form, const ResourceSet& per_worker,
                  int64_t workers);

// Whole GPUs that `workers` with a part of one each break where so many of them
// fit on GPUs that are broken already.  REQUIRES: 0 < gpus < 1.
int64_t GpusBroken(Amount gpus, int64_t workers, int64_t fit_on_broken);
// Workers that fit on those GPUs of which a part is taken.
int64_t CapacityOnBroken(const NodeForm& form, Amount gpus);

// One thing that keeps a node from holding a worker, or as many as it has to.
struct Misfit {
  enum class By : uint8_t {
    kState,
    kTaint,
    kAccelerator,
    kLabel,     // a requirement of the selector
    kTopology,  // no label of the level
    kDevice,    // GPUs that would do are fenced
    kResource,
    // Of nodes that have room, but not together for the gang.
    kDomain,  // all of it must be in one, and this one comes nearest
    kSpread,  // each worker must have another node
  };
  By by = By::kResource;
  // The gate, taint, model, requirement, level or resource, as text.
  std::string what;
  Amount short_by;  // of a resource: how much they lack

  friend bool operator==(const Misfit&, const Misfit&) = default;
};

// All that keeps LeastOnANode workers of the request off this node now; empty:
// nothing.
// A GPU's share that no single device has left is a shortage of GPU.
std::vector<Misfit> WhyNodeCannot(const NodeSnapshot& node,
                                  const GangRequest& request);

// "drained".
const char* GateName(NodeGate gate);

}  // namespace cohort::head

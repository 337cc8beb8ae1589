#include "head/placement/node_form.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace cohort::head {
namespace {

// Workers that fit into `free` of a resource.
int64_t WorkersIn(Amount free, Amount need) {
  return std::max<int64_t>(free.ten_thousandths(), 0) / need.ten_thousandths();
}

// Workers that fit on the devices alone; `shares` ascend.
int64_t DeviceCapacity(const std::vector<Amount>& shares, Amount gpus) {
  if (!IsFraction(gpus)) {
    const auto whole =
        std::lower_bound(shares.begin(), shares.end(), kWholeDevice);
    return (shares.end() - whole) / gpus.WholeUnits();
  }
  int64_t workers = 0;
  for (auto share = std::lower_bound(shares.begin(), shares.end(), gpus);
       share != shares.end(); ++share) {
    workers += WorkersIn(*share, gpus);
  }
  return workers;
}

int64_t IdleDeviceCapacity(size_t devices, Amount gpus) {
  const auto n = static_cast<int64_t>(devices);
  return IsFraction(gpus) ? n * WorkersIn(kWholeDevice, gpus)
                          : n / gpus.WholeUnits();
}

// Of parts of GPUs what is left of each when it holds as many as it can.
std::vector<Amount> Remainders(const std::vector<Amount>& shares, Amount gpus) {
  std::vector<Amount> left;
  for (const Amount share : shares) {
    left.push_back(share - gpus.Times(WorkersIn(share, gpus)));
  }
  std::sort(left.rbegin(), left.rend());
  return left;
}

// Of those that would fit, as many as the gang puts on one node.
int64_t AsDealt(int64_t workers, const GangRequest& request) {
  if (request.workers_per_node == 0) return workers;
  return workers < request.workers_per_node ? 0 : request.workers_per_node;
}

bool IsWordEnd(absl::string_view text, size_t at) {
  return at == 0 || at >= text.size() || !absl::ascii_isalnum(text[at]) ||
         !absl::ascii_isalnum(text[at - 1]);
}

}  // namespace

NodeForm FormOf(const NodeSnapshot& node) {
  NodeForm form{.total = node.total,
                .available = node.available,
                .overdrawn = node.overdrawn,
                .shares = {},
                .fenced = {},
                .taints = node.taints,
                .accelerator = node.accelerator,
                .gate = node.gate};
  form.shares.reserve(node.devices.size());
  for (const DeviceShare& device : node.devices) {
    form.shares.push_back(device.free);
    if (!device.fenced.IsZero()) form.fenced.push_back(device.fenced);
  }
  std::sort(form.shares.begin(), form.shares.end());
  std::sort(form.fenced.begin(), form.fenced.end());
  return form;
}

NodeForm WithoutFences(const NodeForm& form) {
  NodeForm open = form;
  open.fenced.clear();
  // Of a fenced one nothing is free: they are the first of the shares.
  for (size_t i = 0; i < form.fenced.size(); ++i) {
    open.shares[i] = form.fenced[i];
    open.available.Set(kGpu, open.available.Get(kGpu) + form.fenced[i]);
  }
  std::sort(open.shares.begin(), open.shares.end());
  return open;
}

Amount FreeFor(const NodeForm& form, const ResourceSet::Entry& need,
               int64_t workers) {
  const auto& [name, each] = need;
  if (name != kGpu) return form.available.Get(name);
  // On a node that is overdrawn there is less than its devices show.
  const Amount all = form.available.Get(name);
  if (!IsFraction(each)) {
    return std::min(
        all, Amount::FromUnits(DeviceCapacity(form.shares, kWholeDevice)));
  }
  const int64_t fit = std::min(DeviceCapacity(form.shares, each), workers);
  Amount free = each.Times(fit);
  const std::vector<Amount> left = Remainders(form.shares, each);
  for (size_t i = 0; i < left.size() && i < static_cast<size_t>(workers - fit);
       ++i) {
    free += std::max(left[i], Amount());
  }
  return std::min(all, free);
}

Amount LackFor(const NodeForm& form, const ResourceSet::Entry& need,
               int64_t workers) {
  const Amount free = FreeFor(form, need, workers);
  ResourceSet one;
  one.Set(need.first, need.second);
  const Amount all = one.Times(workers).Get(need.first);
  if (free >= all) return Amount();
  return all - free + form.overdrawn.Get(need.first);
}

bool FormAllows(const NodeForm& form, const GangRequest& request) {
  return form.gate == NodeGate::kOpen && FormAllowsIdle(form, request);
}

bool FormAllowsIdle(const NodeForm& form, const GangRequest& request) {
  return FirstUntolerated(form.taints, request.tolerations) == nullptr &&
         (request.accelerator_type.empty() ||
          IsAccelerator(form.accelerator, request.accelerator_type));
}

bool IsAccelerator(absl::string_view model, absl::string_view type) {
  const std::string in = absl::AsciiStrToLower(model);
  const std::string word = absl::AsciiStrToLower(type);
  for (size_t at = in.find(word); !word.empty() && at != std::string::npos;
       at = in.find(word, at + 1)) {
    if (IsWordEnd(in, at) && IsWordEnd(in, at + word.size())) return true;
  }
  return false;
}

bool SelectsByName(const LabelSelector& selector) {
  const auto& all = selector.requirements();
  return std::any_of(all.begin(), all.end(),
                     [](const LabelSelector::Requirement& requirement) {
                       return requirement.key == kHostLevel;
                     });
}

bool LabelsAllow(const Labels& labels, const LabelSelector& selector) {
  const auto& all = selector.requirements();
  return std::all_of(all.begin(), all.end(),
                     [&labels](const LabelSelector::Requirement& requirement) {
                       if (requirement.key == kHostLevel) return true;
                       const auto found = labels.find(requirement.key);
                       return requirement.HoldsFor(
                           found == labels.end() ? nullptr : &found->second);
                     });
}

bool HostAllows(const NodeSnapshot& node,
                const LabelSelector::Requirement& requirement) {
  if (requirement.key != kHostLevel) return true;
  const std::string id = node.id.ToHex();
  const bool by_name = requirement.HoldsFor(&node.name);
  const bool by_id = requirement.HoldsFor(&id);
  return requirement.op == LabelSelector::Operator::kNotIn ? by_name && by_id
                                                           : by_name || by_id;
}

bool HostAllows(const NodeSnapshot& node, const LabelSelector& selector) {
  const auto& all = selector.requirements();
  return std::all_of(all.begin(), all.end(),
                     [&node](const LabelSelector::Requirement& requirement) {
                       return HostAllows(node, requirement);
                     });
}

int64_t CapacityBy(const NodeForm& form, const ResourceSet::Entry& need) {
  const int64_t by_amount =
      WorkersIn(form.available.Get(need.first), need.second);
  if (need.first != kGpu || by_amount == 0) return by_amount;
  return std::min(by_amount, DeviceCapacity(form.shares, need.second));
}

int64_t GpusBroken(Amount gpus, int64_t workers, int64_t fit_on_broken) {
  const int64_t each = WorkersIn(kWholeDevice, gpus);
  return (std::max<int64_t>(workers - fit_on_broken, 0) + each - 1) / each;
}

bool KeptByFences(const NodeForm& form, const ResourceSet& per_worker,
                  int64_t workers) {
  const Amount gpus = per_worker.Get(kGpu);
  if (form.fenced.empty() || gpus.IsZero()) return false;
  const ResourceSet::Entry need = {kGpu, gpus};
  return CapacityBy(form, need) < workers &&
         CapacityBy(WithoutFences(form), need) >= workers;
}

int64_t CapacityOnBroken(const NodeForm& form, Amount gpus) {
  int64_t workers = 0;
  for (const Amount share : form.shares) {
    if (share == kWholeDevice) break;
    workers += WorkersIn(share, gpus);
  }
  return workers;
}

int64_t Capacity(const NodeForm& form, const GangRequest& request) {
  int64_t workers = std::min(request.num_workers, request.ranks_per_node_max);
  for (const ResourceSet::Entry& need : request.per_worker) {
    if (workers == 0) break;
    workers = std::min(workers, CapacityBy(form, need));
  }
  return AsDealt(workers, request);
}

int64_t IdleCapacity(const NodeForm& form, const GangRequest& request) {
  int64_t workers = std::min(request.num_workers, request.ranks_per_node_max);
  for (const auto& [name, amount] : request.per_worker) {
    workers = std::min(workers, WorkersIn(form.total.Get(name), amount));
    if (name == kGpu) {
      workers =
          std::min(workers, IdleDeviceCapacity(form.shares.size(), amount));
    }
  }
  return AsDealt(workers, request);
}

std::vector<Misfit> WhyNodeCannot(const NodeSnapshot& node,
                                  const GangRequest& request) {
  using By = Misfit::By;
  std::vector<Misfit> misfits;
  if (node.gate != NodeGate::kOpen) {
    misfits.push_back({By::kState, GateName(node.gate), {}});
  }
  if (const Taint* taint = FirstUntolerated(node.taints, request.tolerations)) {
    misfits.push_back({By::kTaint, taint->ToString(), {}});
  }
  if (!request.accelerator_type.empty() &&
      !IsAccelerator(node.accelerator, request.accelerator_type)) {
    misfits.push_back({By::kAccelerator, node.accelerator, {}});
  }
  const auto label = [&node](const std::string& key) -> const std::string* {
    if (key == kHostLevel) return &node.name;
    const auto found = node.labels.find(key);
    return found == node.labels.end() ? nullptr : &found->second;
  };
  for (const auto& requirement : request.selector.requirements()) {
    if (requirement.key == kHostLevel
            ? HostAllows(node, requirement)
            : requirement.HoldsFor(label(requirement.key))) {
      continue;
    }
    misfits.push_back({By::kLabel, requirement.ToString(), {}});
    break;
  }
  const std::string& level = request.topology.level;
  if (request.topology.required && label(level) == nullptr) {
    misfits.push_back({By::kTopology, level, {}});
  }
  const NodeForm form = FormOf(node);
  const int64_t least = LeastOnANode(request);
  const bool by_fences = KeptByFences(form, request.per_worker, least);
  if (by_fences) misfits.push_back({By::kDevice, "fenced", {}});
  for (const ResourceSet::Entry& need : request.per_worker) {
    if (CapacityBy(form, need) >= least) continue;
    if (by_fences && need.first == kGpu) continue;
    misfits.push_back({By::kResource, need.first, LackFor(form, need, least)});
  }
  return misfits;
}

const char* GateName(NodeGate gate) {
  switch (gate) {
    case NodeGate::kOpen:
      return "open";
    case NodeGate::kAbsent:
      return "absent";
    case NodeGate::kSuspect:
      return "suspect";
    case NodeGate::kDrained:
      return "drained";
    case NodeGate::kNotReady:
      return "not ready";
  }
  return "unknown";
}

}  // namespace cohort::head

#pragma once

// Nodes, requests and what became of them, in few words.

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/resources.h"
#include "head/placement/placement.h"

namespace cohort::head {

inline Amount Units(double units) { return *Amount::FromDouble(units); }

inline ResourceSet Resources(const std::string& text) {
  return text.empty() ? ResourceSet() : *ParseResources(text);
}

inline NodeId Id(int n) {
  std::string bytes(NodeId::kBytes, '\0');
  bytes.back() = static_cast<char>(n);
  return *NodeId::FromBytes(bytes);
}

// An idle node whose GPUs are named n<number>-g<index>.
inline NodeSnapshot Node(int number, const std::string& resources) {
  NodeSnapshot node;
  node.id = Id(number);
  node.name = absl::StrCat("n", number);
  node.total = Resources(resources);
  node.available = node.total;
  for (int64_t g = 0; g < node.total.Get(kGpu).WholeUnits(); ++g) {
    node.devices.push_back(
        {.id = absl::StrCat(node.name, "-g", g), .free = Units(1)});
  }
  return node;
}

// Takes `amount` of GPU `index`.
inline void Use(NodeSnapshot& node, size_t index, double amount) {
  ResourceSet used;
  used.Set(kGpu, Units(amount));
  ASSERT_TRUE(node.available.Take(used));
  node.devices[index].free -= Units(amount);
}

inline GangRequest Gang(
    int workers, const std::string& per_worker,
    PlacementStrategy strategy = v1::PLACEMENT_STRATEGY_PACK) {
  return {.num_workers = workers,
          .per_worker = Resources(per_worker),
          .strategy = strategy};
}

inline Plan MustPlace(const std::vector<NodeSnapshot>& nodes,
                      const GangRequest& request) {
  Placement placement = PlaceGang(nodes, request);
  if (const auto* refusal = std::get_if<Refusal>(&placement)) {
    ADD_FAILURE() << refusal->reason;
    return Plan();
  }
  return std::get<Plan>(std::move(placement));
}

inline Refusal MustRefuse(const std::vector<NodeSnapshot>& nodes,
                          const GangRequest& request) {
  Placement placement = PlaceGang(nodes, request);
  if (std::holds_alternative<Plan>(placement)) {
    ADD_FAILURE() << "placed";
    return Refusal();
  }
  return std::get<Refusal>(std::move(placement));
}

// (node, workers) in the order of node ranks.
inline std::vector<std::pair<NodeId, size_t>> Shape(const Plan& plan) {
  std::vector<std::pair<NodeId, size_t>> shape;
  for (const PlannedPart& part : plan.parts) {
    shape.emplace_back(part.node, part.ranks.size());
  }
  return shape;
}

}  // namespace cohort::head

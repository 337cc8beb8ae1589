#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "common/gang_limits.h"
#include "common/label_selector.h"
#include "common/node_labels.h"
#include "common/resources.h"
#include "common/taint.h"
#include "head/store/records.h"

namespace cohort::head {

// All ranks are to lie within one `level`: "host" is the node, any other is a
// node label whose value is the same for all of them.
struct TopologyWish {
  std::string level;      // empty: no wish
  bool required = false;  // false: when that is possible

  friend bool operator==(const TopologyWish&, const TopologyWish&) = default;
  friend auto operator<=>(const TopologyWish&, const TopologyWish&) = default;
};

// What a job asks of the planner.  A value; requests that compare equal get
// equal answers.
struct GangRequest {
  int num_workers = 1;
  int ranks_per_node_max = kRanksPerNodeMax;
  // A node that has any has exactly so many; num_workers is a multiple of it.
  // 0: as the strategy has it.
  int workers_per_node = 0;
  ResourceSet per_worker;
  PlacementStrategy strategy = v1::PLACEMENT_STRATEGY_PACK;
  LabelSelector selector;
  std::vector<Toleration> tolerations;
  std::string accelerator_type;  // empty: any
  TopologyWish topology;
  // Why it can never be placed, in words; empty: nothing is wrong with it.
  std::string fault;

  friend bool operator==(const GangRequest&, const GangRequest&) = default;
  friend auto operator<=>(const GangRequest&, const GangRequest&) = default;
};

// As many as a node takes at least: fewer are of no use there.
constexpr int LeastOnANode(const GangRequest& request) {
  return request.workers_per_node > 0 ? request.workers_per_node : 1;
}

// "PACK".
const char* StrategyName(PlacementStrategy strategy);

// "8 x {CPU 1, GPU 1} (PACK), 4 on each node, with zone=a on H100 in one rack".
std::string Describe(const GangRequest& request);

}  // namespace cohort::head

#include "head/placement/gang_request.h"

#include "absl/strings/str_cat.h"

#include "common/resource_text.h"

namespace cohort::head {

const char* StrategyName(PlacementStrategy strategy) {
  switch (strategy) {
    case v1::PLACEMENT_STRATEGY_PACK:
      return "PACK";
    case v1::PLACEMENT_STRATEGY_SPREAD:
      return "SPREAD";
    case v1::PLACEMENT_STRATEGY_STRICT_PACK:
      return "STRICT_PACK";
    case v1::PLACEMENT_STRATEGY_STRICT_SPREAD:
      return "STRICT_SPREAD";
    default:
      return "unknown strategy";
  }
}

std::string Describe(const GangRequest& request) {
  std::string text =
      absl::StrCat(request.num_workers, " x {",
                   ResourcesText(request.per_worker, SizeRounding::kNone),
                   "} (", StrategyName(request.strategy), ")");
  if (request.workers_per_node > 0 && request.num_workers > 1) {
    absl::StrAppend(&text, ", ", request.workers_per_node, " on each node");
  }
  if (!request.selector.empty()) {
    absl::StrAppend(&text, " with ", request.selector.ToString());
  }
  if (!request.accelerator_type.empty()) {
    absl::StrAppend(&text, " on ", request.accelerator_type);
  }
  if (request.topology.required) {
    absl::StrAppend(&text, " in one ", request.topology.level);
  }
  return text;
}

}  // namespace cohort::head

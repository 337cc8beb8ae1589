#include "head/explain/diagnosis_cache.h"

namespace cohort::head {

const FullDiagnosis& DiagnosisCache::Of(const NodeTable& nodes,
                                        const AttemptTable& attempts,
                                        const GangRequest& request) {
  const uint64_t version = nodes.version();
  const auto known = entries_.find(request);
  if (known != entries_.end() && known->second.version == version) {
    return known->second.full;
  }
  if (known == entries_.end() && entries_.size() >= kEntriesMax) {
    entries_.clear();
  }
  Entry& entry = entries_[request];
  entry = {.version = version, .full = DiagnoseFully(nodes, attempts, request)};
  return entry.full;
}

}  // namespace cohort::head

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "head/explain/diagnosis.h"
#include "head/placement/gang_request.h"
#include "head/state/attempt_table.h"
#include "head/state/node_table.h"

namespace cohort::head {

// The last full diagnoses, so that asking again while nothing has changed costs
// nothing.  Thread-compatible; belongs to who owns the tables.
class DiagnosisCache {
 public:
  // Valid until the next call.  The tables are the same ones each time.
  const FullDiagnosis& Of(const NodeTable& nodes, const AttemptTable& attempts,
                          const GangRequest& request);

 private:
  static constexpr size_t kEntriesMax = 64;

  struct Entry {
    uint64_t version = 0;  // of the nodes
    FullDiagnosis full;
  };
  std::map<GangRequest, Entry> entries_;
};

}  // namespace cohort::head

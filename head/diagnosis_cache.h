#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "head/attempt_table.h"
#include "head/diagnosis.h"
#include "head/gang_request.h"
#include "head/node_table.h"

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
    uint64_t version = 0;  // of the nodes' index
    FullDiagnosis full;
  };
  std::map<GangRequest, Entry> entries_;
};

}  // namespace cohort::head

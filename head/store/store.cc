#include "head/store/store.h"

#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/status_util.h"

namespace cohort::head {

const char* TableName(Table table) {
  switch (table) {
    case Table::kCluster:
      return "cluster";
    case Table::kNodes:
      return "nodes";
    case Table::kJobs:
      return "jobs";
    case Table::kAttempts:
      return "attempts";
    case Table::kRequests:
      return "requests";
    case Table::kPackages:
      return "packages";
    case Table::kEvents:
      return "events";
    case Table::kArrays:
      return "arrays";
    case Table::kWaitReasons:
      return "wait_reasons";
  }
  COHORT_CHECK(false) << "no table " << static_cast<int>(table);
  return "";
}

size_t BytesOf(const Write& write) {
  return write.key.size() + (write.value ? write.value->size() : 0);
}

size_t BytesOf(const Batch& batch) {
  size_t bytes = 0;
  for (const Write& write : batch) bytes += BytesOf(write);
  return bytes;
}

absl::Status CheckTerm(uint64_t term, uint64_t stored) {
  if (term == stored) return absl::OkStatus();
  return SetReason(absl::FailedPreconditionError(absl::StrCat(
                       "another head took over this store: its term is ",
                       stored, ", this head's is ", term)),
                   "stale_term");
}

}  // namespace cohort::head

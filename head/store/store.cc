#include "head/store/store.h"

#include "absl/strings/str_cat.h"

#include "common/status_util.h"

namespace cohort::head {

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

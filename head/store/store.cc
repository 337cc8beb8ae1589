#include "head/store/store.h"

#include <limits>

#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
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

absl::StatusOr<StoredRows> Store::LoadRange(Table table,
                                            const std::string& first,
                                            size_t limit) {
  StoredRows rows;
  COHORT_RETURN_IF_ERROR(Scan(
      table, first, limit, [&](absl::string_view key, absl::string_view value) {
        rows.emplace_back(key, value);
        return absl::OkStatus();
      }));
  return rows;
}

absl::StatusOr<StoredRows> Store::LoadAll(Table table) {
  return LoadRange(table, "", std::numeric_limits<size_t>::max());
}

absl::Status CheckTerm(uint64_t term, uint64_t stored) {
  if (term == stored) return absl::OkStatus();
  return SetReason(absl::FailedPreconditionError(absl::StrCat(
                       "another head took over this store: its term is ",
                       stored, ", this head's is ", term)),
                   "stale_term");
}

}  // namespace cohort::head

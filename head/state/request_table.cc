#include "head/state/request_table.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/job_limits.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/store/records_codec.h"

namespace cohort::head {
RequestTable::RequestTable(HistoryCaps caps, const Clock& clock)
    : line_(caps, clock) {}

void RequestTable::Load(std::vector<RequestRecord> records) {
  std::stable_sort(records.begin(), records.end(),
                   [](const RequestRecord& a, const RequestRecord& b) {
                     return a.at_us() < b.at_us();
                   });
  for (RequestRecord& record : records) {
    const size_t bytes = StoredBytes(record);
    Add(std::move(record), bytes);
  }
}

absl::StatusOr<const RequestRecord*> RequestTable::Find(
    absl::string_view principal, absl::string_view request_id,
    absl::string_view body_hash) const {
  COHORT_RETURN_IF_ERROR(CheckRequestId(std::string(request_id)));
  const auto found = records_.find(Key(principal, request_id));
  if (found == records_.end()) return nullptr;
  if (absl::string_view(found->body_hash()) != body_hash) {
    return SetReason(absl::AlreadyExistsError(absl::StrCat(
                         "the request id ", Quoted(request_id),
                         " was used for another request: take a new one")),
                     "request_id_reused");
  }
  return &*found;
}

void RequestTable::Add(RequestRecord record, size_t bytes) {
  const auto [place, is_new] = records_.insert(std::move(record));
  COHORT_CHECK(is_new);
  line_.Put(&*place, static_cast<int64_t>(bytes));
}

std::vector<RequestRecord> RequestTable::Trim(size_t n) {
  std::vector<RequestRecord> gone;
  while (gone.size() < n) {
    const std::optional<const RequestRecord*> oldest = line_.Due();
    if (!oldest.has_value()) break;
    line_.Trim(*oldest);
    auto record = records_.extract(KeyOf(**oldest));
    gone.push_back(std::move(record.value()));
  }
  return gone;
}

}  // namespace cohort::head

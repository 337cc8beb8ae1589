#include "head/request_table.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/status_util.h"

namespace cohort::head {
namespace {

constexpr size_t kRequestIdBytesMax = 128;

}  // namespace

RequestTable::RequestTable(Limits limits, const Clock& clock)
    : limits_(limits), clock_(clock) {}

void RequestTable::Load(std::vector<RequestRecord> records) {
  std::stable_sort(records.begin(), records.end(),
                   [](const RequestRecord& a, const RequestRecord& b) {
                     return a.at < b.at;
                   });
  for (RequestRecord& record : records) Add(std::move(record));
}

absl::StatusOr<const RequestRecord*> RequestTable::Find(
    absl::string_view principal, absl::string_view request_id,
    absl::string_view body_hash) const {
  if (request_id.empty() || request_id.size() > kRequestIdBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a request id has 1 to ", kRequestIdBytesMax,
                     " bytes, this one has ", request_id.size(),
                     ": make a new one for each request and keep it for "
                     "its retries"));
  }
  const auto found =
      records_.find(Key(std::string(principal), std::string(request_id)));
  if (found == records_.end()) return nullptr;
  if (absl::string_view(found->second.body_hash) != body_hash) {
    return SetReason(absl::AlreadyExistsError(absl::StrCat(
                         "the request id \"", absl::CHexEscape(request_id),
                         "\" was used for another request: take a new one")),
                     "request_id_reused");
  }
  return &found->second;
}

void RequestTable::Add(RequestRecord record) {
  Key key(record.principal, record.request_id);
  by_age_.emplace_back(clock_.Monotonic(), key);
  COHORT_CHECK(records_.emplace(std::move(key), std::move(record)).second);
}

std::vector<RequestRecord> RequestTable::Trim(size_t n) {
  std::vector<RequestRecord> gone;
  const absl::Duration now = clock_.Monotonic();
  while (gone.size() < n && !by_age_.empty() &&
         (by_age_.size() > limits_.count_max ||
          now - by_age_.front().first >= limits_.kept)) {
    auto record = records_.extract(by_age_.front().second);
    gone.push_back(std::move(record.mapped()));
    by_age_.pop_front();
  }
  return gone;
}

}  // namespace cohort::head

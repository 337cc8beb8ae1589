#include "common/status_util.h"

#include <optional>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace cohort {

absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(),
                         absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload(
      [&annotated](absl::string_view type_url, const absl::Cord& payload) {
        annotated.SetPayload(type_url, payload);
      });
  return annotated;
}

absl::Status SetReason(absl::Status status, absl::string_view reason) {
  if (!status.ok()) status.SetPayload(kReasonTypeUrl, absl::Cord(reason));
  return status;
}

std::string GetReason(const absl::Status& status) {
  const auto payload = status.GetPayload(kReasonTypeUrl);
  return payload.has_value() ? std::string(*payload) : std::string();
}

bool IsRetryable(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ||
         status.code() == absl::StatusCode::kResourceExhausted;
}

absl::Status ErrnoStatus(int error_number, absl::string_view what) {
  return absl::ErrnoToStatus(error_number, what);
}

}  // namespace cohort

#include "actor/call_failure.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "actor/call_error.h"
#include "actor/call_limits.h"
#include "common/check.h"
#include "common/printable_text.h"
#include "common/status_util.h"

namespace cohort::actor {
namespace {

constexpr char kReasonWithdrawn[] = "withdrawn";

absl::StatusCode ErrorCode(int code) {
  const bool known =
      code >= static_cast<int>(absl::StatusCode::kCancelled) &&
      code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return known ? static_cast<absl::StatusCode>(code)
               : absl::StatusCode::kUnknown;
}

}  // namespace

v1::CallFailure ToCallFailure(const absl::Status& status) {
  COHORT_CHECK(!status.ok());
  v1::CallFailure failure;
  failure.set_code(static_cast<int>(status.code()));
  // A proto3 string is UTF-8; a user's reason may be anything.
  std::string reason = GetReason(status);
  if (IsUtf8(reason)) failure.set_reason(std::move(reason));
  failure.set_message(Cut(status.message(), kFailureMessageBytesMax));
  return failure;
}

absl::Status FromCallFailure(const v1::CallFailure& failure) {
  absl::Status status(ErrorCode(failure.code()), failure.message());
  if (failure.reason().empty()) return status;
  return SetReason(std::move(status), failure.reason());
}

v1::ActorResults::Result ResultOf(uint64_t sequence,
                                  absl::StatusOr<std::string> value) {
  v1::ActorResults::Result result;
  result.set_sequence(sequence);
  if (value.ok() && value->size() > kResultBytesMax) {
    value = TooLarge("the result is", value->size(), kResultBytesMax);
  }
  if (value.ok()) {
    result.set_value(*std::move(value));
  } else {
    *result.mutable_failure() = ToCallFailure(value.status());
  }
  return result;
}

absl::Status TooLarge(absl::string_view whose, size_t bytes, size_t bytes_max) {
  return SetReason(
      absl::InvalidArgumentError(absl::StrCat(
          whose, " too large: ", bytes, " bytes, where ", bytes_max,
          " are the most (pass large values in files)")),
      kReasonTooLarge);
}

absl::Status CallCancelled() {
  return SetReason(absl::CancelledError("the call was cancelled by its caller"),
                   kReasonCancelled);
}

absl::Status CallWithdrawn() {
  return SetReason(absl::CancelledError("the call goes elsewhere"),
                   kReasonWithdrawn);
}

bool IsWithdrawn(const absl::Status& status) {
  return GetReason(status) == kReasonWithdrawn;
}

absl::Status QueueFull(size_t waiting) {
  return SetReason(absl::ResourceExhaustedError(absl::StrCat(
                       "too many calls: ", waiting,
                       " have not ended (wait, or raise "
                       "max_pending_calls, of tasks max_waiting_tasks)")),
                   kReasonQueueFull);
}

}  // namespace cohort::actor

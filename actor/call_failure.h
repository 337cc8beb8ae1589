#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "cohort/v1/actor.pb.h"

// How a call failed, as the wire has it and as a status.  Stateless;
// thread-safe.
namespace cohort::actor {

// Longer messages are cut.
inline constexpr size_t kFailureMessageBytesMax = 16 << 10;

// Code, reason and message; other payloads stay here.  REQUIRES: !status.ok().
v1::CallFailure ToCallFailure(const absl::Status& status);

// How that call ended, with the value unless it is over kResultBytesMax.
v1::ActorResults::Result ResultOf(uint64_t sequence,
                                  absl::StatusOr<std::string> value);

// Never OK: a code that is none of absl's errors becomes UNKNOWN.
absl::Status FromCallFailure(const v1::CallFailure& failure);

// Of the bytes of arguments or of a result; `whose` says which of them.
absl::Status TooLarge(absl::string_view whose, size_t bytes, size_t bytes_max);

// So many wait already.
absl::Status QueueFull(size_t waiting);

// By its caller.
absl::Status CallCancelled();

// It has not begun, and is to go elsewhere (CallNotice::kWithdrawn).  Users do
// not see it.
absl::Status CallWithdrawn();
bool IsWithdrawn(const absl::Status& status);

}  // namespace cohort::actor

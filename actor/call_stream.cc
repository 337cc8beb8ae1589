#include "actor/call_stream.h"

#include "absl/strings/str_cat.h"

#include "actor/call_failure.h"
#include "actor/call_limits.h"

namespace cohort::actor {

absl::Status Garbage(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("calls to an actor cannot be sent like this: ", what));
}

absl::Status CallStream::CheckMethod(
    const v1::ActorCalls::Method& method) const {
  if (method.number() == methods.size() && methods.size() < kMethodsMax &&
      method.name().size() + method.group().size() <= kMethodNameBytesMax) {
    return absl::OkStatus();
  }
  return Garbage(absl::StrCat("method ", method.number(), " after ",
                              methods.size(), " of at most ", kMethodsMax));
}

absl::Status CallStream::CheckCalls(const v1::ActorCalls& message) {
  for (const v1::ActorCalls::Call& call : message.calls()) {
    if (call.method() >= methods.size()) {
      return Garbage(absl::StrCat("method ", call.method(), " has no name"));
    }
    if (call.sequence() <= last_sequence) {
      return Garbage(
          absl::StrCat("call ", call.sequence(), " after ", last_sequence));
    }
    if (call.arguments().size() > kArgumentsBytesMax) {
      return TooLarge("arguments are", call.arguments().size(),
                      kArgumentsBytesMax);
    }
    last_sequence = call.sequence();
  }
  return absl::OkStatus();
}

}  // namespace cohort::actor

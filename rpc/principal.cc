#include "rpc/principal.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace cohort::rpc {

absl::Status CheckSpeaksFor(const Principal& principal,
                            absl::string_view node_id) {
  if (principal.role != Role::kWorker || principal.node.bytes() == node_id) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat(
      "this credential is for node ", principal.node.ToHex(), ", not for ",
      absl::BytesToHexString(node_id),
      " (a node's state directory has its own: start the worker with --join)"));
}

}  // namespace cohort::rpc

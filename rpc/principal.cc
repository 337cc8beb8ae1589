#include "rpc/principal.h"

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cohort::rpc {

bool Principal::MayUse(absl::string_view name_space) const {
  return namespaces.empty() || absl::c_linear_search(namespaces, name_space);
}

absl::Status CheckMayUse(const Principal& principal,
                         absl::string_view name_space) {
  if (principal.MayUse(name_space)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      principal.name, " may use the namespace ",
      absl::StrJoin(principal.namespaces, ", "), " only, not ", name_space,
      " (ask an admin, who grants them by `cohort user add --namespaces`)"));
}

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

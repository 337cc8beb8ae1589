#include "rpc/role.h"

#include "common/check.h"

namespace cohort::rpc {

absl::string_view RoleName(Role role) {
  switch (role) {
    case Role::kAdmin:
      return "admin";
    case Role::kSubmit:
      return "submit";
    case Role::kRead:
      return "read";
    case Role::kWorker:
      return "worker";
    case Role::kRank:
      return "rank";
    case Role::kJoin:
      return "join";
  }
  COHORT_CHECK(false) << "role " << static_cast<int>(role);
  return "";
}

std::optional<Role> RoleNamed(absl::string_view name) {
  for (const Role role : kAllRoles) {
    if (RoleName(role) == name) return role;
  }
  return std::nullopt;
}

}  // namespace cohort::rpc

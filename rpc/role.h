#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>

#include "absl/strings/string_view.h"

namespace cohort::rpc {

// What a caller may do.  On the wire and on disk as v1::Role: add, never
// renumber.
enum class Role : uint8_t {
  kAdmin = 1,   // everything; who holds the cluster's secret
  kSubmit = 2,  // run, change and read jobs
  kRead = 3,    // read
  kWorker = 4,  // be one node
  kRank = 5,    // be one process of a job
  kJoin = 6,    // become a node
};
inline constexpr Role kAllRoles[] = {Role::kAdmin,  Role::kSubmit, Role::kRead,
                                     Role::kWorker, Role::kRank,   Role::kJoin};

// "admin", "submit", ...
absl::string_view RoleName(Role role);
std::optional<Role> RoleNamed(absl::string_view name);

// A set of them.  A value.
class Roles {
 public:
  constexpr Roles(std::initializer_list<Role> roles) {
    for (const Role role : roles) bits_ |= BitOf(role);
  }

  constexpr bool Has(Role role) const { return (bits_ & BitOf(role)) != 0; }

 private:
  static constexpr uint32_t BitOf(Role role) {
    return uint32_t{1} << static_cast<uint8_t>(role);
  }

  uint32_t bits_ = 0;
};

// Those that methods name (methods.h).  A method that names none is for admins.
inline constexpr Roles kAdmins{Role::kAdmin};
inline constexpr Roles kWriters{Role::kAdmin, Role::kSubmit};
inline constexpr Roles kWritersAndRanks{Role::kAdmin, Role::kSubmit,
                                        Role::kRank};
inline constexpr Roles kReaders{Role::kAdmin, Role::kSubmit, Role::kRead};
inline constexpr Roles kReadersAndRanks{Role::kAdmin, Role::kSubmit,
                                        Role::kRead, Role::kRank};
inline constexpr Roles kEverybodyInside{
    Role::kAdmin, Role::kSubmit, Role::kRead, Role::kWorker, Role::kRank};
inline constexpr Roles kWorkers{Role::kAdmin, Role::kWorker};
inline constexpr Roles kRanks{Role::kAdmin, Role::kWorker, Role::kRank};
inline constexpr Roles kJoiners{Role::kJoin};

}  // namespace cohort::rpc

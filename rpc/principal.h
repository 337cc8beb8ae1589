#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "common/process_id.h"
#include "common/strong_id.h"
#include "rpc/role.h"

namespace cohort::rpc {

// Who is calling, as handlers, records and log lines carry it.  A value.
struct Principal {
  Role role = Role::kRank;
  // "cluster", "user/<name>", "node/<id>", "join/<token>" or
  // "rank/<process>".
  std::string name;
  // Nil unless kRank.
  ProcessId process;
  // Nil unless kWorker, or kRank by such a worker's credential.
  NodeId node;
  // Of the token by which it is known (token_book.h); empty: by none.
  std::string token_id;
  // Whose jobs it sees and changes; empty: all, as far as its role goes.
  std::vector<std::string> namespaces;

  bool MayUse(absl::string_view name_space) const;
};

// PermissionDenied for a user who is granted other namespaces.
absl::Status CheckMayUse(const Principal& principal,
                         absl::string_view name_space);

// PermissionDenied for a worker whose credential is another node's than the
// one with these bytes.
absl::Status CheckSpeaksFor(const Principal& principal,
                            absl::string_view node_id);

}  // namespace cohort::rpc

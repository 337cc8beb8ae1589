#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "rpc/credential.h"
#include "rpc/principal.h"

namespace cohort::rpc {

// Says who is calling, or that nobody known is.
//
// Stands in the Router before every handler of every server.  Immutable.
//
// AU-1: no handler runs for a call that it refused.
// AU-2: comparisons take the same time wherever the bytes differ.
// AU-3: a refusal names the fix and says nothing about the secret.
class Authenticator {
 public:
  // REQUIRES: !cluster.IsRank().
  explicit Authenticator(Credential cluster);

  // `authorization_header` is the call's metadata `authorization`, empty when
  // absent.  Unauthenticated when it is missing, malformed or wrong.
  absl::StatusOr<Principal> Authenticate(
      absl::string_view authorization_header) const;

 private:
  const Credential cluster_;
};

}  // namespace cohort::rpc

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "rpc/credential.h"

namespace cohort::rpc {

// What a machine is given to become a node: which authority the head has, and
// a secret for it.  A value.
//
//   cohort1.<SHA-256 of the authority's certificate>.<id>.<secret>, in hex
struct JoinToken {
  static constexpr char kPrefix[] = "cohort1.";

  // InvalidArgument, with what is wrong and nothing of the secret.
  static absl::StatusOr<JoinToken> Parse(absl::string_view text);
  // REQUIRES: `token` is a token's, with an authority.
  static JoinToken Of(const Credential& token);

  std::string ToText() const;

  std::string fingerprint;  // as FingerprintOf
  std::string token;        // Credential::FromBytes takes it
};

}  // namespace cohort::rpc

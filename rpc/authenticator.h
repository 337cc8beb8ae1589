#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "rpc/credential.h"
#include "rpc/principal.h"
#include "rpc/token_book.h"

namespace cohort::rpc {

// Says who is calling, or that nobody known is.
//
// Stands in the Router before every handler of every server.  Immutable, but
// for the book.
//
// AU-1: no handler runs for a call that it refused.
// AU-2: comparisons take the same time wherever the bytes differ.
// AU-3: a refusal names the fix and says nothing about the secret.
class Authenticator {
 public:
  // Lets in who shows `own`, and the ranks that were made from it.  With a
  // book, the head's, tokens too, and ranks that were made from a worker's.
  // REQUIRES: !own.IsRank(); with a book it is a cluster's.
  explicit Authenticator(Credential own,
                         std::shared_ptr<const TokenBook> tokens = nullptr);

  // `authorization_header` is the call's metadata `authorization`, empty when
  // absent.  Unauthenticated when it is missing, malformed or wrong;
  // Unavailable while the book is not there yet.
  absl::StatusOr<Principal> Authenticate(
      absl::string_view authorization_header) const;

  // Of a call that was let in by that token: what it would be told now.
  absl::Status CheckToken(absl::string_view token_id) const;

 private:
  absl::StatusOr<Principal> ByToken(const Credential& shown) const;
  absl::StatusOr<Principal> AsRankOf(const Credential& holder,
                                     const Credential& shown) const;

  const Credential own_;
  // Shared: the head adds to it.
  const std::shared_ptr<const TokenBook> tokens_;
};

}  // namespace cohort::rpc

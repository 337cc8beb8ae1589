#pragma once

#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/clock.h"
#include "common/mutex.h"
#include "common/strong_id.h"
#include "rpc/role.h"

namespace cohort::rpc {

// What a token is good for.  A value.
struct TokenGrant {
  std::string id;  // Credential::kTokenIdBytes
  Role role = Role::kRead;
  std::string name;                     // of a user
  std::vector<std::string> namespaces;  // of a user; empty: all
  NodeId node;                          // of a worker
  absl::Time expires_at = absl::InfiniteFuture();
  bool revoked = false;
};

// The tokens that a server lets in, by id.  Their secrets are not here: they
// are made of the cluster's secret and the id (Credential::OfToken).
// Thread-safe.
//
// TB-1: a token that is revoked, expired or not here is let in nowhere, from
//       the moment on that the book says so.
// TB-2: until the first Replace nobody is told that a token is unknown.
class TokenBook {
 public:
  // `clock` outlives the book; only it says whether a token has expired.
  explicit TokenBook(const Clock& clock) : clock_(clock) {}

  void Put(TokenGrant grant);
  void Remove(absl::string_view id);
  void Replace(std::vector<TokenGrant> grants);

  // Unauthenticated (reason "unknown_token", "revoked_token" or
  // "expired_token") with what to do; Unavailable (reason "loading") before the
  // first Replace.
  absl::StatusOr<TokenGrant> Find(absl::string_view id) const;

 private:
  const Clock& clock_;
  mutable Mutex mutex_;
  bool loaded_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<std::string, TokenGrant> grants_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::rpc

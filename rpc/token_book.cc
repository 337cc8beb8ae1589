#include "rpc/token_book.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/status_util.h"

namespace cohort::rpc {
namespace {

absl::Status NotLetIn(absl::string_view what, absl::string_view reason) {
  return SetReason(absl::UnauthenticatedError(what), reason);
}

// How to get another one, by what the old one was.
absl::string_view AnotherOne(Role role) {
  return role == Role::kWorker || role == Role::kJoin
             ? "make another with `cohort token create`, and start the worker "
               "with --join"
             : "ask for another: `cohort user add`";
}

}  // namespace

void TokenBook::Put(TokenGrant grant) {
  MutexLock lock(mutex_);
  std::string id = grant.id;
  grants_.insert_or_assign(std::move(id), std::move(grant));
}

void TokenBook::Remove(absl::string_view id) {
  MutexLock lock(mutex_);
  grants_.erase(id);
}

void TokenBook::Replace(std::vector<TokenGrant> grants) {
  MutexLock lock(mutex_);
  loaded_ = true;
  grants_.clear();
  for (TokenGrant& grant : grants) {
    std::string id = grant.id;
    grants_.insert_or_assign(std::move(id), std::move(grant));
  }
}

absl::StatusOr<TokenGrant> TokenBook::Find(absl::string_view id) const {
  const std::string shown = absl::BytesToHexString(id);
  MutexLock lock(mutex_);
  if (!loaded_) {
    return SetReason(
        absl::UnavailableError("the head is loading its state, try again"),
        "loading");
  }
  const auto found = grants_.find(id);
  if (found == grants_.end()) {
    return NotLetIn(
        absl::StrCat("the cluster knows no token ", shown,
                     " (it is of another cluster, or was forgotten after its "
                     "end; an admin makes another: `cohort token create`)"),
        "unknown_token");
  }
  const TokenGrant& grant = found->second;
  if (grant.revoked) {
    return NotLetIn(absl::StrCat("token ", shown, " was revoked (",
                                 AnotherOne(grant.role), ")"),
                    "revoked_token");
  }
  const absl::Time now = clock_.Wall();
  if (now >= grant.expires_at) {
    return NotLetIn(
        absl::StrCat(
            "token ", shown, " expired at ",
            absl::FormatTime(absl::RFC3339_sec, grant.expires_at,
                             absl::UTCTimeZone()),
            ", and the head's clock says ",
            absl::FormatTime(absl::RFC3339_sec, now, absl::UTCTimeZone()), " (",
            AnotherOne(grant.role), ")"),
        "expired_token");
  }
  return grant;
}

}  // namespace cohort::rpc

#include "rpc/authenticator.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "openssl/crypto.h"

#include "common/check.h"
#include "common/process_id.h"
#include "common/status_macros.h"

namespace cohort::rpc {
namespace {

absl::Status Refused(absl::string_view what) {
  return absl::UnauthenticatedError(absl::StrCat(
      what,
      ": copy the token or the credential's file again, or ask an admin for "
      "one "
      "(`cohort token create` for a worker, `cohort user add` for a person; "
      "--credential-file or COHORT_CREDENTIAL_FILE names it)"));
}

bool SameBytes(const std::string& a, const std::string& b) {
  return a.size() == b.size() &&
         CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

// "user/ann", "node/<id>", "join/<id>".
std::string NameOf(const TokenGrant& grant) {
  switch (grant.role) {
    case Role::kWorker:
      return absl::StrCat("node/", grant.node.ToHex());
    case Role::kJoin:
      return absl::StrCat("join/", absl::BytesToHexString(grant.id));
    default:
      return absl::StrCat("user/", grant.name);
  }
}

}  // namespace

Authenticator::Authenticator(Credential own,
                             std::shared_ptr<const TokenBook> tokens)
    : own_(std::move(own)), tokens_(std::move(tokens)) {
  COHORT_CHECK(!own_.IsRank());
  COHORT_CHECK(tokens_ == nullptr || !own_.IsToken());
}

absl::StatusOr<Principal> Authenticator::Authenticate(
    absl::string_view authorization_header) const {
  if (authorization_header.empty()) {
    return Refused("the call carries no credential");
  }
  absl::string_view hex = authorization_header;
  if (!absl::ConsumePrefix(&hex, "Bearer ")) {
    return Refused("the call's authorization is not \"Bearer <hex>\"");
  }
  const absl::StatusOr<Credential> shown = Credential::FromHex(hex);
  if (!shown.ok()) return Refused("the call's credential is malformed");

  if (tokens_ != nullptr && !shown->TokenId().empty()) return ByToken(*shown);
  if (shown->IsRank()) return AsRankOf(own_, *shown);
  if (!SameBytes(shown->bytes(), own_.bytes())) {
    return Refused("the call's credential is not this cluster's");
  }
  return Principal{.role = Role::kAdmin, .name = "cluster"};
}

absl::Status Authenticator::CheckToken(absl::string_view token_id) const {
  if (tokens_ == nullptr) return absl::OkStatus();
  return tokens_->Find(token_id).status();
}

// The secret first: who does not know it learns nothing of the token.
absl::StatusOr<Principal> Authenticator::ByToken(
    const Credential& shown) const {
  const Credential token = Credential::OfToken(own_, shown.TokenId());
  Principal principal;
  if (shown.IsRank()) {
    COHORT_ASSIGN_OR_RETURN(principal, AsRankOf(token, shown));
  } else if (!SameBytes(shown.bytes(), token.bytes())) {
    return Refused("the call's token is not this cluster's");
  }
  COHORT_ASSIGN_OR_RETURN(const TokenGrant grant,
                          tokens_->Find(shown.TokenId()));
  principal.node = grant.node;
  principal.token_id = grant.id;
  if (shown.IsRank()) {
    if (grant.role == Role::kWorker) return principal;
    return Refused("only a worker's token makes rank credentials");
  }
  principal.role = grant.role;
  principal.name = NameOf(grant);
  principal.namespaces = grant.namespaces;
  return principal;
}

absl::StatusOr<Principal> Authenticator::AsRankOf(
    const Credential& holder, const Credential& shown) const {
  const ProcessId process = ProcessOf(shown);
  if (!SameBytes(shown.bytes(), MintRankCredential(holder, process).bytes())) {
    return Refused("the call's rank credential is not this cluster's");
  }
  return Principal{.role = Role::kRank,
                   .name = absl::StrCat("rank/", process.ToText()),
                   .process = process};
}

}  // namespace cohort::rpc

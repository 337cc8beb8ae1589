#include "rpc/authenticator.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "openssl/crypto.h"

#include "common/check.h"
#include "common/process_id.h"

namespace cohort::rpc {
namespace {

absl::Status Refused(absl::string_view what) {
  return absl::UnauthenticatedError(absl::StrCat(
      what,
      ": give the cluster's credential file with --credential-file or "
      "COHORT_CREDENTIAL_FILE (the head keeps it as <state-dir>/credential)"));
}

bool SameBytes(const std::string& a, const std::string& b) {
  return a.size() == b.size() &&
         CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

Authenticator::Authenticator(Credential cluster)
    : cluster_(std::move(cluster)) {
  COHORT_CHECK(!cluster_.IsRank());
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

  if (!shown->IsRank()) {
    if (!SameBytes(shown->bytes(), cluster_.bytes())) {
      return Refused("the call's credential is not this cluster's");
    }
    return Principal{
        .kind = Principal::Kind::kCluster, .name = "cluster", .process = {}};
  }
  const ProcessId process = ProcessOf(*shown);
  if (!SameBytes(shown->bytes(),
                 MintRankCredential(cluster_, process).bytes())) {
    return Refused("the call's rank credential is not this cluster's");
  }
  return Principal{.kind = Principal::Kind::kRank,
                   .name = absl::StrCat("rank/", process.ToText()),
                   .process = process};
}

}  // namespace cohort::rpc

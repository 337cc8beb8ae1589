#include "rpc/grpc_credentials.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/support/channel_arguments.h"

#include "common/status_util.h"

namespace cohort::rpc {
namespace {

absl::Status Insecure(const GrpcAddress& address, absl::string_view fix) {
  return SetReason(absl::FailedPreconditionError(absl::StrCat(
                       address.ToString(),
                       " is not on loopback, and plaintext is not for "
                       "networks (",
                       fix, ")")),
                   "insecure");
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentials(
    const GrpcAddress& address, const std::vector<Identity>& identities) {
  if (identities.empty()) {
    if (!address.IsLoopback()) {
      return Insecure(address,
                      "listen on loopback, or start without "
                      "--insecure");
    }
    return grpc::InsecureServerCredentials();
  }
  if (address.IsUnix()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  for (const Identity& each : identities) {
    options.pem_key_cert_pairs.push_back({each.private_key, each.certificate});
  }
  return grpc::SslServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentials(
    const GrpcAddress& address, const Credential& credential,
    grpc::ChannelArguments& arguments) {
  if (address.IsUnix()) return grpc::InsecureChannelCredentials();
  if (credential.authority().empty()) {
    if (!address.IsLoopback()) {
      return Insecure(address,
                      "this credential has no certificate: copy that "
                      "of a head without --insecure");
    }
    return grpc::InsecureChannelCredentials();
  }
  arguments.SetSslTargetNameOverride(ServerNameOf(credential.authority()));
  return grpc::SslCredentials({.pem_root_certs = credential.authority()});
}

absl::Status TlsFailure(const absl::Status& error, const std::string& address) {
  if (!absl::IsUnavailable(error)) return absl::OkStatus();
  const absl::string_view message = error.message();
  if (absl::StrContains(message, "certificate verify failed")) {
    return SetReason(
        absl::UnauthenticatedError(absl::StrCat(
            "what answers at ", address,
            " has a certificate of another authority than this credential's "
            "and was sent nothing (check the address; if its authority was "
            "rotated meanwhile, ask an admin for the fingerprint in `cohort "
            "authority list` and run `cohort authority trust FINGERPRINT`; or "
            "take the credential of that cluster's head, "
            "<state-dir>/credential)")),
        kOtherAuthority);
  }
  if (absl::StrContains(message, "wrong version number") ||
      absl::StrContains(message, "packet length too long")) {
    return SetReason(
        absl::UnavailableError(absl::StrCat(
            "what answers at ", address,
            " speaks plaintext and was sent nothing (check the address, or "
            "take the credential that this head made with --insecure)")),
        "plaintext");
  }
  return absl::OkStatus();
}

}  // namespace cohort::rpc

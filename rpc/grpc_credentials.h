#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "rpc/certificate.h"
#include "rpc/credential.h"
#include "rpc/grpc_address.h"

namespace grpc {
class ChannelArguments;
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

// The one place that decides what is encrypted, and by whom a server is known.
//
// SC-1: a client over TCP sends its secret only to a server whose certificate
//       the credential's authority signed.
// SC-2: plaintext over TCP exists on loopback only, at both ends.
namespace cohort::rpc {

// For a server at `address`, which shows the first of `identities` unless a
// client asks for another by its authority (ServerNameOf).  FailedPrecondition
// (reason "insecure") where that would be plaintext on a network.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentials(
    const GrpcAddress& address, const std::vector<Identity>& identities);

// For a client of a server at `address`; adds to the channel's arguments.
// Errors as above.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentials(
    const GrpcAddress& address, const Credential& credential,
    grpc::ChannelArguments& arguments);

// Of a handshake with a server of another authority.
inline constexpr char kOtherAuthority[] = "other_authority";

// What `error`, of a call to `address`, says of a handshake that failed, with
// the fix: Unauthenticated (reason "other_authority") for a server of another
// authority, Unavailable (reason "plaintext") for one without TLS.  OK when it
// says nothing of that.
absl::Status TlsFailure(const absl::Status& error, const std::string& address);

}  // namespace cohort::rpc

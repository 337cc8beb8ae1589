#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort::rpc {

// What servers prove that they are who they are, made by OpenSSL: Ed25519 keys
// and X.509 certificates, as PEM.
//
// None of these certificates has an end, and none has a beginning that a clock
// could miss: clients trust one authority by its bytes, and the head shuts
// out those that it no longer trusts.
struct Identity {
  std::string certificate;
  std::string private_key;
};

// The one name that every server's certificate has: clients know a server by
// who signed for it, whatever address leads to it.
inline constexpr char kServerName[] = "cohort";
// The one by which a client asks for a server's certificate of `authority`:
// where a cluster has two of them, its servers have a certificate of each.
// kServerName of a cluster's first authority, and where `authority` is none.
std::string ServerNameOf(const std::string& authority);

// A new key for AuthorityOf.
std::string NewPrivateKey();

// The certificate authority of that key: of one key always the same bytes.
// InvalidArgument: it is not an Ed25519 key in PEM.
absl::StatusOr<Identity> AuthorityOf(const std::string& private_key);

// A new one, with a name of its own, to follow a cluster's first.
Identity NewAuthority();
// An authority from the text of both, or from its key alone (AuthorityOf).
// InvalidArgument: it is no such text, or they do not belong together.
absl::StatusOr<Identity> ReadAuthority(absl::string_view pem);

// A server that `authority` signs for, with a key of its own.
Identity IssueServer(const Identity& authority);

// A server whose certificate follows from `secret` alone, always the same
// bytes: only those that know the secret can be that server, or recognize it.
Identity ServerOfSecret(absl::string_view secret);

// SHA-256 of a certificate, lower-case hex; InvalidArgument: it is none in PEM.
absl::StatusOr<std::string> FingerprintOf(const std::string& certificate);

// From now on this process accepts TLS 1.3 alone, from everybody: for daemons,
// since it is true of all of OpenSSL.
void RequireTls13();

}  // namespace cohort::rpc

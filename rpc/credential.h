#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/process_id.h"

namespace cohort::rpc {

// All that a client needs: the secret that it shows with each call, and the
// certificate of the authority by which it knows a server over TCP, before it
// shows that (certificate.h).
//
// A cluster's secret is 32 random bytes.  A token's is made from it: the
// token's id and an HMAC over it; what it is good for is in the head's list
// (token_book.h).  A rank's is made from either for one process: the process's
// id and an HMAC over it, so that servers need no list of them.  One without an
// authority is for unix sockets, and for servers in
// plaintext on loopback.  Immutable; a value.
//
// One that was read from a file knows it: once the cluster has another
// authority the file is written again (RenewAuthority), and channels read it
// again.
//
// As a file, of mode 0600: a line `secret HEX`, then the certificate in PEM, so
// that it serves as a CA file of curl and others.
class Credential {
 public:
  static constexpr size_t kClusterBytes = 32;
  static constexpr size_t kTokenIdBytes = 8;
  static constexpr size_t kTokenBytes = kTokenIdBytes + kClusterBytes;
  static constexpr size_t kRankBytes = 60;
  static constexpr size_t kTokenRankBytes = kTokenIdBytes + kRankBytes;

  // InvalidArgument unless there are as many bytes as one of these has.
  static absl::StatusOr<Credential> FromBytes(absl::string_view bytes);
  // As FromBytes, from hex digits: the form of COHORT_CREDENTIAL and the wire.
  static absl::StatusOr<Credential> FromHex(absl::string_view hex);

  // Reads a credential file of either kind.  NotFound when there is none;
  // FailedPrecondition when another user owns it or its mode lets others read
  // it; DataLoss when it is not such a text.  Messages name the file and the
  // fix.
  static absl::StatusOr<Credential> Load(const std::string& path);

  // Writes it to `path` with mode 0600 by temporary file and rename; a file
  // that is there is replaced.
  absl::Status Save(const std::string& path) const;

  // The text of its file.
  std::string ToText() const;
  // The same secret and file, for servers that show a certificate of
  // `authority`: a certificate in PEM.
  Credential For(std::string authority) const;

  // The credential of the token with that id.  REQUIRES: `cluster` is a
  // cluster's.
  static Credential OfToken(const Credential& cluster, absl::string_view id);

  bool IsRank() const {
    return bytes_.size() == kRankBytes || bytes_.size() == kTokenRankBytes;
  }
  bool IsToken() const { return bytes_.size() == kTokenBytes; }
  // Of a token, and of a rank whose credential was made from one; else empty.
  absl::string_view TokenId() const;
  const std::string& bytes() const { return bytes_; }
  // Empty: none.
  const std::string& authority() const { return authority_; }
  // Where Load read it; empty: nowhere.
  const std::string& file() const { return file_; }
  // Lower case.
  std::string ToHex() const;
  // The value of the metadata `authorization`: "Bearer <hex>".
  std::string AuthorizationHeader() const;

 private:
  static absl::StatusOr<Credential> FromText(absl::string_view text);
  explicit Credential(std::string bytes) : bytes_(std::move(bytes)) {}

  std::string bytes_;
  std::string authority_;
  std::string file_;
};

// Writes the file of `held` with another authority, unless it has that one.
// InvalidArgument when it is no certificate in PEM; FailedPrecondition when
// `held` has no file; errors of Load and the disk.
absl::Status RenewAuthority(const Credential& held,
                            const std::string& authority);

// The credential that lets `process`, and nobody else, in, with the authority
// of `holder`, which is a cluster's credential or a worker's token.
// REQUIRES: !holder.IsRank().
Credential MintRankCredential(const Credential& holder,
                              const ProcessId& process);

// Whom a rank's credential says that it is for; whether the cluster made it is
// the Authenticator's to find out.  REQUIRES: rank.IsRank().
ProcessId ProcessOf(const Credential& rank);

}  // namespace cohort::rpc

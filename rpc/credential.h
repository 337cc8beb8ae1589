#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/process_id.h"
#include "common/random.h"

namespace cohort::rpc {

// A secret that a client shows with each call.
//
// A cluster credential is 32 random bytes in a file of mode 0600.  A rank
// credential is made from it for one process: the process's id and an HMAC over
// it, so that servers need no list of them.  Immutable; a value.
class Credential {
 public:
  static constexpr size_t kClusterBytes = 32;
  static constexpr size_t kRankBytes = 60;

  // InvalidArgument unless there are 32 or 60 bytes.
  static absl::StatusOr<Credential> FromBytes(absl::string_view bytes);
  // As FromBytes, from hex digits: the form of COHORT_CREDENTIAL and the wire.
  static absl::StatusOr<Credential> FromHex(absl::string_view hex);

  // Reads a credential file of either kind.  NotFound when there is none;
  // FailedPrecondition when another user owns it or its mode lets others read
  // it; DataLoss when the length is wrong.  Messages name the file and the fix.
  static absl::StatusOr<Credential> Load(const std::string& path);

  // Loads the cluster credential at `path`, or makes one there first.  Atomic:
  // of two processes that create it at once both get the same one.  Errors as
  // Load, or what the file system said.
  static absl::StatusOr<Credential> LoadOrCreate(const std::string& path,
                                                 Random& random);

  // Writes it to `path` with mode 0600 by temporary file and rename; a file
  // that is there is replaced.
  absl::Status Save(const std::string& path) const;

  bool IsRank() const { return bytes_.size() == kRankBytes; }
  const std::string& bytes() const { return bytes_; }
  // Lower case.
  std::string ToHex() const;
  // The value of the metadata `authorization`: "Bearer <hex>".
  std::string AuthorizationHeader() const;

 private:
  explicit Credential(std::string bytes) : bytes_(std::move(bytes)) {}

  std::string bytes_;
};

// The credential that lets `process`, and nobody else, in.
// REQUIRES: !cluster.IsRank().
Credential MintRankCredential(const Credential& cluster,
                              const ProcessId& process);

// Whom a rank's credential says that it is for; whether the cluster made it is
// the Authenticator's to find out.  REQUIRES: rank.IsRank().
ProcessId ProcessOf(const Credential& rank);

}  // namespace cohort::rpc

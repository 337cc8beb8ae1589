#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "common/random.h"
#include "common/secret_box.h"
#include "head/options.h"
#include "rpc/certificate.h"
#include "rpc/credential.h"

namespace cohort::head {

struct HeadSecrets {
  rpc::Credential credential;
  // What the head shows over TCP, made at each start and kept nowhere; none
  // with options.insecure.
  std::optional<rpc::Identity> server;
};

// The keys in `secrets.key` in the state directory, which seal what the store
// has of jobs' secrets; made when there are none.  No backup has them.
// FailedPrecondition when they are damaged; errors of the disk.
absl::StatusOr<SecretBox> LoadSecretBox(const std::string& state_dir,
                                        Random& random);

// The credential in the state directory, and a server that the authority in
// `ca.key` beside it signs for.  With a new store both are made; beside a store
// that is there they are not, unless the credential is missing and
// options.new_credential asks for it: all workers and clients would be refused,
// nodes declared dead and their work given up.
//
// FailedPrecondition (no_credential), with nothing changed, when the credential
// is missing, damaged, a rank's, or another than before by its hash in
// credential.sha256, and when `ca.key` is missing or is not of the credential's
// authority; InvalidArgument when the credential was made with --insecure and
// this head is not, or the other way round.  Errors of the disk, and of a file
// that others may read.
absl::StatusOr<HeadSecrets> LoadHeadSecrets(const HeadOptions& options,
                                            Random& random);

}  // namespace cohort::head

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/random.h"
#include "common/secret_box.h"
#include "head/options.h"
#include "rpc/certificate.h"
#include "rpc/credential.h"

namespace cohort::head {

struct HeadSecrets {
  // With the authority that clients are to have: the next, if there is one.
  rpc::Credential credential;
  // In `ca.key`: the present one, then the next while clients change to it;
  // none with options.insecure.
  std::vector<rpc::Identity> authorities;
};

// What a server shows that `authorities` sign for, one for each, with keys that
// are made now and kept nowhere.
std::vector<rpc::Identity> ServersOf(
    const std::vector<rpc::Identity>& authorities);

// Makes a next authority, durably.  REQUIRES: there is one.  Errors of the
// disk: `secrets` are as they were, and so is the directory at the next start.
absl::Status BeginRotation(const std::string& state_dir, HeadSecrets& secrets);
// Drops the first of two.  Errors as BeginRotation's.
absl::Status FinishRotation(const std::string& state_dir, HeadSecrets& secrets);

// The keys in `secrets.key` in the state directory, which seal what the store
// has of jobs' secrets; made when there are none.  No backup has them.
// FailedPrecondition when they are damaged; errors of the disk.
absl::StatusOr<SecretBox> LoadSecretBox(const std::string& state_dir,
                                        Random& random);

// The credential in the state directory, and the authorities in `ca.key` beside
// it, which says how far a rotation is: a credential with another of its
// authorities than the last is written again.  With a new store both are made;
// beside a store that is there they are not, unless the credential is missing
// and options.new_credential asks for it: all workers and clients would be
// refused, nodes declared dead and their work given up.
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

#include "head/head_credential.h"

#include <unistd.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/file.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::head {
namespace {

bool HasStore(const HeadOptions& options) {
  const std::string store = options.state_dir + "/store";
  return access((store + "/CURRENT").c_str(), F_OK) == 0 ||
         access((store + ".mark").c_str(), F_OK) == 0;
}

// Why a credential that is there beside a store does not do; empty: it does.
std::string WhyWrong(const absl::StatusOr<rpc::Credential>& there,
                     const absl::StatusOr<std::string>& known) {
  if (absl::IsNotFound(there.status())) return "is missing";
  if (!there.ok()) return "is damaged";
  if (there->IsRank()) return "is one of a rank";
  if (known.ok() && *known != Sha256::Of(there->bytes()).ToHex()) {
    return "is not the one that was there before (its hash in "
           "credential.sha256 is another)";
  }
  return "";
}

absl::StatusOr<rpc::Credential> MakeCredential(const std::string& path,
                                               const std::string& known_path,
                                               Random& random) {
  COHORT_RETURN_IF_ERROR(RemoveTree(known_path));  // of one before
  COHORT_ASSIGN_OR_RETURN(const rpc::Credential made,
                          rpc::Credential::LoadOrCreate(path, random));
  COHORT_RETURN_IF_ERROR(
      WriteFileAtomically(known_path, Sha256::Of(made.bytes()).ToHex(), 0600));
  return made;
}

}  // namespace

absl::StatusOr<rpc::Credential> LoadHeadCredential(const HeadOptions& options,
                                                   Random& random) {
  const std::string path = options.state_dir + "/credential";
  const std::string known_path = path + ".sha256";
  absl::StatusOr<rpc::Credential> there = rpc::Credential::Load(path);
  if (absl::IsNotFound(there.status()) &&
      (options.new_credential || !HasStore(options))) {
    return MakeCredential(path, known_path, random);
  }
  if (!there.ok() && !absl::IsNotFound(there.status()) &&
      !absl::IsDataLoss(there.status())) {
    return there;  // its mode, say
  }
  const absl::StatusOr<std::string> known = ReadFile(known_path, 4096);
  const std::string wrong = WhyWrong(there, known);
  if (wrong.empty()) {
    if (absl::IsNotFound(known.status())) {
      // Of an older release, or just restored.  A full disk keeps nobody from
      // starting.
      const absl::Status noted = WriteFileAtomically(
          known_path, Sha256::Of(there->bytes()).ToHex(), 0600);
      if (!noted.ok()) {
        COHORT_LOG(kWarning, "credential_hash_not_kept",
                   {"error", noted.message()});
      }
    }
    return there;
  }
  return SetReason(
      absl::FailedPreconditionError(absl::StrCat(
          "the cluster's credential ", path, " ", wrong,
          ", and workers and clients know it: put a copy back (each worker's "
          "machine and each backup has one, mode 0600), or move away what is "
          "there and start once with --new-credential, which makes a new one "
          "that every worker and client then needs; nothing was changed")),
      "no_credential");
}

}  // namespace cohort::head

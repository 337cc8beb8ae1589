#include "head/head_credential.h"

#include <unistd.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/file.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::head {
namespace {

constexpr char kKeyFile[] = "/ca.key";

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

// Both are durable once a client can have either.
absl::StatusOr<rpc::Credential> MakeCredential(const HeadOptions& options,
                                               const std::string& path,
                                               const std::string& known_path,
                                               Random& random) {
  COHORT_RETURN_IF_ERROR(RemoveTree(known_path));  // of one before
  COHORT_ASSIGN_OR_RETURN(
      rpc::Credential made,
      rpc::Credential::FromBytes(random.Bytes(rpc::Credential::kClusterBytes)));
  if (!options.insecure) {
    COHORT_ASSIGN_OR_RETURN(const rpc::Identity authority,
                            rpc::AuthorityOf(rpc::NewPrivateKey()));
    COHORT_RETURN_IF_ERROR(WriteFileAtomically(options.state_dir + kKeyFile,
                                               authority.private_key, 0600));
    made = made.For(authority.certificate);
  }
  COHORT_RETURN_IF_ERROR(made.Save(path));
  COHORT_RETURN_IF_ERROR(
      WriteFileAtomically(known_path, Sha256::Of(made.bytes()).ToHex(), 0600));
  return made;
}

absl::Status Wrong(absl::string_view what) {
  return SetReason(
      absl::FailedPreconditionError(absl::StrCat(
          "the cluster's ", what,
          ", and workers and clients know it: put a copy back (each backup has "
          "one, mode 0600), or move away what is there and start once with "
          "--new-credential, which makes a new one that every worker and "
          "client then needs; nothing was changed")),
      "no_credential");
}

absl::StatusOr<rpc::Credential> LoadCredential(const HeadOptions& options,
                                               Random& random) {
  const std::string path = options.state_dir + "/credential";
  const std::string known_path = path + ".sha256";
  absl::StatusOr<rpc::Credential> there = rpc::Credential::Load(path);
  if (absl::IsNotFound(there.status()) &&
      (options.new_credential || !HasStore(options))) {
    return MakeCredential(options, path, known_path, random);
  }
  if (!there.ok() && !absl::IsNotFound(there.status()) &&
      !absl::IsDataLoss(there.status())) {
    return there;  // its mode, say
  }
  const absl::StatusOr<std::string> known = ReadFile(known_path, 4096);
  const std::string wrong = WhyWrong(there, known);
  if (!wrong.empty()) {
    return Wrong(absl::StrCat("credential ", path, " ", wrong));
  }
  if (absl::IsNotFound(known.status())) {
    // Just restored.  A full disk keeps nobody from starting.
    const absl::Status noted = WriteFileAtomically(
        known_path, Sha256::Of(there->bytes()).ToHex(), 0600);
    if (!noted.ok()) {
      COHORT_LOG(kWarning, "credential_hash_not_kept",
                 {"error", noted.message()});
    }
  }
  return there;
}

}  // namespace

absl::StatusOr<SecretBox> LoadSecretBox(const std::string& state_dir,
                                        Random& random) {
  const std::string path = state_dir + "/secrets.key";
  absl::StatusOr<std::string> text = ReadFile(path, 64 << 10);
  if (absl::IsNotFound(text.status())) {
    text = absl::StrCat(
        absl::BytesToHexString(random.Bytes(SecretBox::kKeyBytes)), "\n");
    COHORT_RETURN_IF_ERROR(WriteFileAtomically(path, *text, 0600));
  }
  if (!text.ok()) return text.status();
  absl::StatusOr<SecretBox> box = SecretBox::FromText(*text);
  if (box.ok()) return box;
  return absl::FailedPreconditionError(absl::StrCat(
      path, " is damaged: ", box.status().message(),
      " (put a copy back, or move it away: jobs with secrets then wait)"));
}

absl::StatusOr<HeadSecrets> LoadHeadSecrets(const HeadOptions& options,
                                            Random& random) {
  COHORT_ASSIGN_OR_RETURN(rpc::Credential credential,
                          LoadCredential(options, random));
  if (options.insecure != credential.authority().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--state-dir ", options.state_dir,
        options.insecure
            ? ": its clients know this head by its certificate, and --insecure "
              "shows none (leave it out, or name a new state directory)"
            : ": it was made with --insecure, and its clients know no "
              "certificate (give --insecure, or name a new state directory)"));
  }
  if (options.insecure) return HeadSecrets{credential, std::nullopt};
  const std::string path = options.state_dir + kKeyFile;
  const absl::StatusOr<std::string> key = ReadFile(path, 4096);
  if (!key.ok() && !absl::IsNotFound(key.status())) return key.status();
  const absl::StatusOr<rpc::Identity> authority =
      rpc::AuthorityOf(key.value_or(""));
  if (!authority.ok() || authority->certificate != credential.authority()) {
    return Wrong(absl::StrCat("key of its certificate authority, ", path,
                              !key.ok() ? ", is missing"
                              : !authority.ok()
                                  ? ", is damaged"
                                  : ", is not that of the credential's"));
  }
  rpc::Identity server = rpc::IssueServer(*authority);
  // Who joins knows its hash only.
  server.certificate += authority->certificate;
  return HeadSecrets{std::move(credential), std::move(server)};
}

}  // namespace cohort::head

#include "head/head_credential.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

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

std::string TextOf(const std::vector<rpc::Identity>& authorities) {
  std::string text;
  for (const rpc::Identity& each : authorities) {
    absl::StrAppend(&text, each.private_key, each.certificate);
  }
  return text;
}

absl::StatusOr<std::vector<rpc::Identity>> ParseAuthorities(
    absl::string_view text) {
  constexpr absl::string_view kBegin = "-----BEGIN PRIVATE KEY-----";
  std::vector<rpc::Identity> all;
  do {
    const size_t next = text.find(kBegin, 1);
    COHORT_ASSIGN_OR_RETURN(all.emplace_back(),
                            rpc::ReadAuthority(text.substr(0, next)));
    text.remove_prefix(std::min(next, text.size()));
  } while (!text.empty());
  if (all.size() <= 2) return all;
  return absl::InvalidArgumentError("it has more than two authorities");
}

absl::StatusOr<std::vector<rpc::Identity>> LoadAuthorities(
    const std::string& path, const rpc::Credential& credential) {
  const absl::StatusOr<std::string> text = ReadFile(path, 16 << 10);
  if (!text.ok() && !absl::IsNotFound(text.status())) return text.status();
  absl::StatusOr<std::vector<rpc::Identity>> all =
      ParseAuthorities(text.value_or(""));
  std::string wrong;
  if (!text.ok()) {
    wrong = "is missing";
  } else if (!all.ok()) {
    wrong = absl::StrCat("is damaged (", all.status().message(), ")");
  } else if (std::none_of(all->begin(), all->end(), [&](const auto& each) {
               return each.certificate == credential.authority();
             })) {
    wrong = "is not that of the credential's";
  }
  if (wrong.empty()) return all;
  return Wrong(
      absl::StrCat("key of its certificate authority, ", path, ", ", wrong));
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
  if (options.insecure) return HeadSecrets{credential, {}};
  HeadSecrets secrets{credential, {}};
  COHORT_ASSIGN_OR_RETURN(
      secrets.authorities,
      LoadAuthorities(options.state_dir + kKeyFile, credential));
  const std::string& last = secrets.authorities.back().certificate;
  if (credential.authority() != last) {
    // A start after a rotation that went as far as the key.
    secrets.credential = credential.For(last);
    COHORT_RETURN_IF_ERROR(
        secrets.credential.Save(options.state_dir + "/credential"));
  }
  return secrets;
}

std::vector<rpc::Identity> ServersOf(
    const std::vector<rpc::Identity>& authorities) {
  std::vector<rpc::Identity> servers;
  for (const rpc::Identity& each : authorities) {
    servers.push_back(rpc::IssueServer(each));
    // Who joins knows the hash of one of them only.
    servers.back().certificate += each.certificate;
    for (const rpc::Identity& other : authorities) {
      if (other.certificate != each.certificate) {
        servers.back().certificate += other.certificate;
      }
    }
  }
  return servers;
}

absl::Status BeginRotation(const std::string& state_dir, HeadSecrets& secrets) {
  const rpc::Identity next = rpc::NewAuthority();
  std::vector<rpc::Identity> both = {secrets.authorities.back(), next};
  COHORT_RETURN_IF_ERROR(
      WriteFileAtomically(state_dir + kKeyFile, TextOf(both), 0600));
  secrets.authorities = std::move(both);
  secrets.credential = secrets.credential.For(next.certificate);
  const absl::Status saved = secrets.credential.Save(state_dir + "/credential");
  if (!saved.ok()) {
    // The next start does it.
    COHORT_LOG(kWarning, "credential_not_written", {"why", saved});
  }
  return absl::OkStatus();
}

absl::Status FinishRotation(const std::string& state_dir,
                            HeadSecrets& secrets) {
  std::vector<rpc::Identity> last = {secrets.authorities.back()};
  COHORT_RETURN_IF_ERROR(
      WriteFileAtomically(state_dir + kKeyFile, TextOf(last), 0600));
  secrets.authorities = std::move(last);
  return absl::OkStatus();
}

}  // namespace cohort::head

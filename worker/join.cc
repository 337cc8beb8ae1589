#include "worker/join.h"

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "common/file.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "rpc/channel.h"
#include "rpc/fetch_authority.h"
#include "rpc/grpc_channel.h"
#include "rpc/join_token.h"
#include "rpc/methods.h"

namespace cohort::worker {
namespace {

// Of each of two questions, and of the handshakes before: a thousand machines
// may come at once.
constexpr absl::Duration kAnswer = absl::Seconds(30);
constexpr size_t kNonceBytes = 16;

absl::StatusOr<rpc::Credential> Join(const WorkerOptions& options,
                                     const NodeId& node, Random& random) {
  const absl::StatusOr<rpc::JoinToken> token =
      rpc::JoinToken::Parse(options.join);
  if (!token.ok()) return Annotate(token.status(), "--join");
  COHORT_ASSIGN_OR_RETURN(
      std::string authority,
      rpc::FetchAuthority(options.head, token->fingerprint, kAnswer));
  COHORT_ASSIGN_OR_RETURN(const rpc::Credential shown,
                          rpc::Credential::FromBytes(token->token));
  COHORT_ASSIGN_OR_RETURN(
      const std::unique_ptr<rpc::Channel> channel,
      rpc::NewGrpcChannel(options.head.ToString(), shown.For(authority),
                          {.connect_timeout = kAnswer}));
  v1::JoinRequest request;
  request.set_node_id(std::string(node.bytes()));
  request.set_name(options.name);
  request.set_nonce(random.Bytes(kNonceBytes));
  const absl::StatusOr<v1::JoinResponse> joined =
      rpc::CallAndWait(*channel, rpc::kJoin, request, {.deadline = kAnswer})
          .response;
  if (!joined.ok()) return Annotate(joined.status(), "--join");
  COHORT_ASSIGN_OR_RETURN(const rpc::Credential made,
                          rpc::Credential::FromBytes(joined->secret()));
  return made.For(std::move(authority));
}

}  // namespace

std::string NodeCredentialFile(const std::string& state_dir) {
  return absl::StrCat(state_dir, "/credential");
}

absl::StatusOr<rpc::Credential> LoadOrJoin(const WorkerOptions& options,
                                           const NodeId& node, Random& random) {
  if (!options.credential_file.empty()) {
    absl::StatusOr<rpc::Credential> named =
        rpc::Credential::Load(options.credential_file);
    if (named.ok()) return named;
    return absl::InvalidArgumentError(
        absl::StrCat("--credential-file: ", named.status().message()));
  }
  const std::string own = NodeCredentialFile(options.state_dir);
  // Which token it was got by: with another one the node joins again, as one
  // whose credential was revoked has to.
  const std::string own_token = absl::StrCat(own, ".token");
  const std::string hash = Sha256::Of(options.join).ToHex();
  absl::StatusOr<rpc::Credential> kept = rpc::Credential::Load(own);
  if (!kept.ok() && !absl::IsNotFound(kept.status())) return kept;
  if (kept.ok() &&
      (options.join.empty() || ReadFile(own_token).value_or("") == hash)) {
    return kept;
  }
  if (options.join.empty()) {
    return absl::InvalidArgumentError(
        "no credential: give --join TOKEN (`cohort token create` makes one), "
        "or --credential-file or COHORT_CREDENTIAL_FILE, the file that the "
        "head made (<its state directory>/credential)");
  }
  absl::StatusOr<rpc::Credential> made = Join(options, node, random);
  if (absl::IsAlreadyExists(made.status()) && kept.ok()) made = kept;
  if (!made.ok()) return made;
  COHORT_RETURN_IF_ERROR(made->Save(own));
  COHORT_RETURN_IF_ERROR(WriteFileAtomically(own_token, hash, 0600));
  COHORT_LOG(kInfo, "node_credential", {"node", node}, {"file", own});
  return rpc::Credential::Load(own);
}

}  // namespace cohort::worker

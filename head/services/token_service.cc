#include "head/services/token_service.h"

#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/hash.h"
#include "common/job_limits.h"
#include "common/log.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "rpc/methods.h"

namespace cohort::head {
namespace {

constexpr size_t kNameBytesMax = 64;
constexpr int kNamespacesMax = 64;
constexpr size_t kNonceBytesMin = 8;
constexpr size_t kNonceBytesMax = 64;

absl::Status CheckName(const std::string& name) {
  // Words of a worker's --run-as.
  if (name == "*" || name == "cluster") {
    return absl::InvalidArgumentError(
        absl::StrCat("user ", Quoted(name),
                     ": that stands for others already: choose another name"));
  }
  if (!name.empty() && name.size() <= kNameBytesMax && IsNameText(name)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("user ", Quoted(name),
                   ": a name is one line of printable UTF-8, at most ",
                   kNameBytesMax, " bytes, without spaces at its ends"));
}

absl::Status CheckNamespaces(const v1::CreateTokenRequest& request) {
  if (request.namespaces_size() > kNamespacesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a user is granted at most ", kNamespacesMax,
                     " namespaces, or all of them by naming none"));
  }
  if (request.namespaces_size() > 0 && request.role() == v1::ROLE_ADMIN) {
    return absl::InvalidArgumentError(
        "an admin has all namespaces: name none, or give another role");
  }
  for (const std::string& each : request.namespaces()) {
    COHORT_RETURN_IF_ERROR(CheckNamespace(each));
  }
  return absl::OkStatus();
}

}  // namespace

TokenService::TokenService(std::optional<Secrets> secrets, StateHost& host,
                           Executor& strand, const Clock& clock)
    : secrets_(std::move(secrets)),
      host_(host),
      strand_(strand),
      clock_(clock),
      self_(std::make_shared<TokenService*>(this)) {}

TokenService::~TokenService() { *self_ = nullptr; }

template <typename Req, typename Resp>
void TokenService::Handle(rpc::Router& router,
                          const rpc::UnaryMethod<Req, Resp>& method,
                          absl::StatusOr<Resp> (TokenService::*decide)(
                              const rpc::Principal&, const Req&, ClusterState&,
                              Transition&)) {
  router.Handle(
      method, strand_,
      [self = self_, decide](const Context& context, const Req& request,
                             rpc::Reply<Resp> reply) {
        if (*self == nullptr) return std::move(reply)(Gone());
        TokenService& service = **self;
        if (!service.secrets_.has_value()) {
          return std::move(reply)(
              absl::UnimplementedError("this head has no tokens"));
        }
        const absl::StatusOr<ClusterState*> state =
            service.host_.Writable(Admission::kClient);
        if (!state.ok()) return std::move(reply)(state.status());
        Transition transition;
        absl::StatusOr<Resp> decided = (service.*decide)(
            context->principal(), request, **state, transition);
        transition.Then(
            [reply = std::move(reply),
             decided = std::move(decided)](const absl::Status& status) mutable {
              if (!status.ok()) return std::move(reply)(status);
              std::move(reply)(std::move(decided));
            });
        service.host_.Submit(std::move(transition));
      });
}

void TokenService::RegisterOn(rpc::Router& router) {
  router_ = &router;
  Handle(router, rpc::kCreateToken, &TokenService::Create);
  Handle(router, rpc::kRevokeToken, &TokenService::Revoke);
  Handle(router, rpc::kJoin, &TokenService::Join);
  router.Handle(rpc::kListTokens, strand_,
                [self = self_](const Context&, const v1::ListTokensRequest&,
                               rpc::Reply<v1::ListTokensResponse> reply) {
                  if (*self == nullptr) return std::move(reply)(Gone());
                  StateHost& host = (*self)->host_;
                  const absl::StatusOr<const ClusterState*> state =
                      host.Readable();
                  if (!state.ok()) return std::move(reply)(state.status());
                  v1::ListTokensResponse response;
                  for (const auto& [id, token] : (*state)->tokens().all()) {
                    *response.add_tokens() = token;
                  }
                  host.AfterDurable([reply = std::move(reply),
                                     response = std::move(response)](
                                        const absl::Status& status) mutable {
                    if (!status.ok()) return std::move(reply)(status);
                    std::move(reply)(std::move(response));
                  });
                });
}

void TokenService::StateLoaded(ClusterState& state) {
  if (!secrets_.has_value()) return;
  state.KeepTokens(secrets_->book);
  if (secrets_->revocations != nullptr) RevokeAgain(state);
}

void TokenService::RevokeAgain(ClusterState& state) {
  Transition transition;
  const bool writable = host_.Writable(Admission::kNode).ok();
  for (const std::string& id : secrets_->revocations->ids()) {
    const TokenRecord* const token = state.tokens().Find(id);
    if (token == nullptr || token->revoked_at_us() != 0) continue;
    COHORT_LOG(kWarning, "token_revoked_again",
               {"token", absl::BytesToHexString(id)},
               {"meaning", "the store is older than its revocation"});
    secrets_->book->Remove(id);
    if (writable) (void)state.RevokeToken("cluster", id, transition);
  }
  if (writable) host_.Submit(std::move(transition));
}

std::string TokenService::SecretOf(const TokenRecord& token) const {
  return rpc::Credential::OfToken(secrets_->cluster, token.token_id()).bytes();
}

absl::StatusOr<v1::CreateTokenResponse> TokenService::Create(
    const rpc::Principal& principal, const v1::CreateTokenRequest& request,
    ClusterState& state, Transition& transition) {
  if (request.token_id().size() != rpc::Credential::kTokenIdBytes) {
    return absl::InvalidArgumentError("a token's id has 8 bytes");
  }
  TokenRecord token;
  token.set_token_id(request.token_id());
  token.set_role(request.role());
  token.set_created_by(principal.name);
  if (request.ttl_us() < 0) {
    return absl::InvalidArgumentError("a token's time to live is above 0");
  }
  if (request.ttl_us() > 0) {
    token.set_expires_at_us(
        ToMicros(clock_.Wall() + absl::Microseconds(request.ttl_us())));
  }
  switch (request.role()) {
    case v1::ROLE_JOIN:
      break;
    case v1::ROLE_ADMIN:
    case v1::ROLE_SUBMIT:
    case v1::ROLE_READ:
      COHORT_RETURN_IF_ERROR(CheckName(request.name()));
      token.set_name(request.name());
      COHORT_RETURN_IF_ERROR(CheckNamespaces(request));
      *token.mutable_namespaces() = request.namespaces();
      break;
    default:
      return absl::InvalidArgumentError(
          "a token has role admin, submit, read or join");
  }
  v1::CreateTokenResponse response;
  COHORT_ASSIGN_OR_RETURN(*response.mutable_token(),
                          state.AddToken(std::move(token), transition));
  response.set_secret(SecretOf(response.token()));
  return response;
}

absl::StatusOr<v1::RevokeTokenResponse> TokenService::Revoke(
    const rpc::Principal& principal, const v1::RevokeTokenRequest& request,
    ClusterState& state, Transition& transition) {
  v1::RevokeTokenResponse response;
  COHORT_ASSIGN_OR_RETURN(
      *response.mutable_token(),
      state.RevokeToken(principal.name, request.token_id(), transition));
  if (secrets_->revocations != nullptr) {
    const absl::Status kept = secrets_->revocations->Add(request.token_id());
    if (!kept.ok()) {
      COHORT_LOG(kError, "revocation_not_kept", {"why", kept},
                 {"meaning", "a backup of before lets that token in again"});
    }
  }
  router_->EndRefused();
  return response;
}

absl::StatusOr<v1::JoinResponse> TokenService::Join(
    const rpc::Principal& principal, const v1::JoinRequest& request,
    ClusterState& state, Transition& transition) {
  COHORT_RETURN_IF_ERROR(NodeId::FromBytes(request.node_id()).status());
  if (request.nonce().size() < kNonceBytesMin ||
      request.nonce().size() > kNonceBytesMax) {
    return absl::InvalidArgumentError("a nonce has 8 to 64 bytes");
  }
  TokenRecord token;
  // Another one for each attempt, the same when its answer was lost.
  token.set_token_id(
      std::string(Sha256::Of(absl::StrCat(principal.token_id, request.node_id(),
                                          request.nonce()))
                      .bytes())
          .substr(0, rpc::Credential::kTokenIdBytes));
  token.set_role(v1::ROLE_WORKER);
  token.set_name(request.name().substr(0, kNameBytesMax));
  token.set_node_id(request.node_id());
  token.set_created_by(principal.name);
  COHORT_ASSIGN_OR_RETURN(
      token, state.AddToken(std::move(token), transition, principal.token_id));
  v1::JoinResponse response;
  response.set_secret(SecretOf(token));
  return response;
}

}  // namespace cohort::head

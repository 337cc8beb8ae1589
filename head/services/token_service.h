#pragma once

#include <memory>
#include <optional>

#include "cohort/v1/security.pb.h"
#include "common/clock.h"
#include "common/executor.h"
#include "common/strong_id.h"
#include "head/services/revocations.h"
#include "head/services/state_host.h"
#include "rpc/credential.h"
#include "rpc/router.h"
#include "rpc/token_book.h"

namespace cohort::head {

// SecurityService: who is let in.  Keeps the Authenticator's book as the state
// is.
//
// Strand-bound; HeadCore owns it.  Calls may outlive it by a task, and are then
// answered UNAVAILABLE.
class TokenService final {
 public:
  struct Secrets {
    rpc::Credential cluster;
    std::shared_ptr<rpc::TokenBook> book;
    Revocations* revocations = nullptr;  // null: they are in the store alone
  };

  // Without `secrets` there are no tokens.  All outlive the service.
  TokenService(std::optional<Secrets> secrets, StateHost& host,
               Executor& strand, const Clock& clock);
  ~TokenService();

  TokenService(const TokenService&) = delete;
  TokenService& operator=(const TokenService&) = delete;

  void RegisterOn(rpc::Router& router);
  // The state is another one; what was revoked before is revoked in it, too.
  void StateLoaded(ClusterState& state);

 private:
  using Context = std::shared_ptr<rpc::CallContext>;

  template <typename Req, typename Resp>
  void Handle(rpc::Router& router, const rpc::UnaryMethod<Req, Resp>& method,
              absl::StatusOr<Resp> (TokenService::*decide)(
                  const rpc::Principal&, const Req&, ClusterState&,
                  Transition&));
  absl::StatusOr<v1::CreateTokenResponse> Create(
      const rpc::Principal& principal, const v1::CreateTokenRequest& request,
      ClusterState& state, Transition& transition);
  absl::StatusOr<v1::RevokeTokenResponse> Revoke(
      const rpc::Principal& principal, const v1::RevokeTokenRequest& request,
      ClusterState& state, Transition& transition);
  absl::StatusOr<v1::JoinResponse> Join(const rpc::Principal& principal,
                                        const v1::JoinRequest& request,
                                        ClusterState& state,
                                        Transition& transition);
  // Those of `Revocations` that the state lets in are out, in the book at once.
  void RevokeAgain(ClusterState& state);
  std::string SecretOf(const TokenRecord& token) const;

  const std::optional<Secrets> secrets_;
  StateHost& host_;
  Executor& strand_;
  const Clock& clock_;
  rpc::Router* router_ = nullptr;

  // Shared: this and its calls, which find it empty once this is gone.
  const std::shared_ptr<TokenService*> self_;
};

}  // namespace cohort::head

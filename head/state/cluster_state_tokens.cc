// Who is let in: ClusterState's part about tokens
// (docs/design/0018-security.md).

#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/status_util.h"
#include "head/state/cluster_state.h"

namespace cohort::head {
namespace {

// A row is some 100 bytes; workers have one each.
constexpr size_t kTokensMax = 100'000;

constexpr char kAutoscaler[] = "autoscaler";

std::string HexOf(const TokenRecord& token) {
  return absl::BytesToHexString(token.token_id());
}

// "user ann, submit", "node w1", "a machine that joins".
std::string HolderOf(const TokenRecord& token) {
  switch (token.role()) {
    case v1::ROLE_WORKER:
      return absl::StrCat("node ", token.name());
    case v1::ROLE_JOIN:
      return "a machine that joins";
    default:
      return absl::StrCat("user ", token.name(), ", ",
                          rpc::RoleName(static_cast<rpc::Role>(token.role())));
  }
}

bool IsTheSame(const TokenRecord& a, const TokenRecord& b) {
  return a.role() == b.role() && a.name() == b.name() &&
         a.node_id() == b.node_id();
}

absl::Status Exists(std::string what) {
  return SetReason(absl::AlreadyExistsError(std::move(what)), "token_exists");
}

}  // namespace

absl::StatusOr<TokenRecord> ClusterState::AddToken(
    TokenRecord token, Transition& transition, const std::string& joins_by) {
  const absl::Time now = clock_.Wall();
  // Of an instance: it lets one node in.
  const TokenRecord* const used = LaunchToken(joins_by);
  if (const TokenRecord* const known = tokens_.Find(token.token_id())) {
    if (IsTheSame(*known, token)) return *known;
    return Exists("another token has this id (try again)");
  }
  if (token.role() == v1::ROLE_WORKER) {
    if (const TokenRecord* const known =
            tokens_.FindNode(token.node_id(), now)) {
      return Exists(absl::StrCat(
          "this node has joined already, with token ", HexOf(*known),
          " (its state directory has the credential; if that is lost, revoke "
          "it: `cohort token revoke ",
          HexOf(*known), "`)"));
    }
    if (used != nullptr && !used->node_id().empty() &&
        used->node_id() != token.node_id()) {
      return SetReason(
          absl::PermissionDeniedError(
              "this token is of one launched machine, which another node has "
              "joined as (each launch has a token of its own)"),
          "token_used");
    }
  } else if (token.role() != v1::ROLE_JOIN) {
    if (const TokenRecord* const known = tokens_.FindUser(token.name(), now)) {
      return Exists(absl::StrCat("user ", token.name(), " is there already, ",
                                 "with token ", HexOf(*known),
                                 " (`cohort user remove` first)"));
    }
  }
  Change change;
  change.principal = token.created_by();
  if (tokens_.all().size() >= kTokensMax) {
    for (const std::string& id : tokens_.Ended(now)) {
      change.Delete<TokenRecord>(id);
      tokens_.Remove(id);
    }
    if (tokens_.all().size() >= kTokensMax) {
      return SetReason(
          absl::ResourceExhaustedError(absl::StrCat(
              kTokensMax, " tokens are here already (revoke some)")),
          "too_many_tokens");
    }
  }
  token.set_created_at_us(ToMicros(now));
  if (used != nullptr) {
    TokenRecord launch = *used;
    launch.set_node_id(token.node_id());
    change.Put(launch);
    tokens_.Put(std::move(launch));
  }
  AddEvent(EventOf("token_created", absl::StrCat("token ", HexOf(token),
                                                 " for ", HolderOf(token))),
           change);
  change.Put(token);
  tokens_.Put(token);  // before it is durable: nobody has the secret before
  Finish(change, transition);
  return token;
}

const TokenRecord* ClusterState::LaunchToken(const std::string& id) const {
  const TokenRecord* const token = tokens_.Find(id);
  return token != nullptr && token->created_by() == kAutoscaler ? token
                                                                : nullptr;
}

bool ClusterState::CameAs(const NodeId& node,
                          const InstanceId& instance) const {
  const TokenRecord* const its = tokens_.FindNode(IdBytes(node), clock_.Wall());
  // None: by the cluster's own secret, or there are no tokens.
  if (its == nullptr) return true;
  const TokenRecord* const launch = LaunchToken(LaunchTokenId(instance));
  return launch != nullptr && launch->node_id() == IdBytes(node);
}

void ClusterState::AddLaunchToken(const InstanceId& id, Change& change) {
  TokenRecord token;
  token.set_token_id(LaunchTokenId(id));
  token.set_role(v1::ROLE_JOIN);
  token.set_created_by(kAutoscaler);
  token.set_created_at_us(ToMicros(clock_.Wall()));
  change.Put(token);
  tokens_.Put(std::move(token));
}

void ClusterState::DropToken(const TokenRecord* token, Change& change) {
  if (token == nullptr) return;
  const std::string id = token->token_id();
  change.Delete<TokenRecord>(id);
  tokens_.Remove(id);
}

absl::StatusOr<TokenRecord> ClusterState::RevokeToken(
    const std::string& principal, const std::string& id,
    Transition& transition) {
  const TokenRecord* const known = tokens_.Find(id);
  if (known == nullptr) {
    return SetReason(absl::NotFoundError(absl::StrCat(
                         "there is no token ", absl::BytesToHexString(id),
                         " (`cohort token list` shows them)")),
                     "unknown_token");
  }
  TokenRecord token = *known;
  if (token.revoked_at_us() != 0) return token;
  Change change;
  change.principal = principal;
  token.set_revoked_at_us(ToMicros(clock_.Wall()));
  AddEvent(EventOf("token_revoked", absl::StrCat("token ", HexOf(token), " of ",
                                                 HolderOf(token))),
           change);
  change.Put(token);
  tokens_.Put(token);
  Finish(change, transition);
  return token;
}

}  // namespace cohort::head

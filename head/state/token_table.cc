#include "head/state/token_table.h"

#include <utility>

#include "rpc/credential.h"

namespace cohort::head {

namespace {

rpc::TokenGrant GrantOf(const TokenRecord& token) {
  rpc::TokenGrant grant;
  grant.id = token.token_id();
  grant.role = static_cast<rpc::Role>(token.role());
  grant.name = token.name();
  grant.namespaces = {token.namespaces().begin(), token.namespaces().end()};
  grant.node = IdOf<NodeId>(token.node_id());
  if (token.expires_at_us() != 0) {
    grant.expires_at = FromMicros(token.expires_at_us());
  }
  grant.revoked = token.revoked_at_us() != 0;
  return grant;
}

}  // namespace

std::string LaunchTokenId(const InstanceId& instance) {
  return IdBytes(instance).substr(0, rpc::Credential::kTokenIdBytes);
}

bool IsLiving(const TokenRecord& token, absl::Time now) {
  return token.revoked_at_us() == 0 &&
         (token.expires_at_us() == 0 || ToMicros(now) < token.expires_at_us());
}

void TokenTable::Keep(std::shared_ptr<rpc::TokenBook> book) {
  book_ = std::move(book);
  std::vector<rpc::TokenGrant> grants;
  for (const auto& [id, token] : tokens_) grants.push_back(GrantOf(token));
  book_->Replace(std::move(grants));
}

void TokenTable::Put(TokenRecord token) {
  if (book_ != nullptr) book_->Put(GrantOf(token));
  std::string id = token.token_id();
  tokens_.insert_or_assign(std::move(id), std::move(token));
}

void TokenTable::Remove(const std::string& id) {
  if (book_ != nullptr) book_->Remove(id);
  tokens_.erase(id);
}

const TokenRecord* TokenTable::Find(const std::string& id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : &found->second;
}

const TokenRecord* TokenTable::FindUser(const std::string& name,
                                        absl::Time now) const {
  for (const auto& [id, token] : tokens_) {
    if (token.name() == name && token.role() != v1::ROLE_WORKER &&
        token.role() != v1::ROLE_JOIN && IsLiving(token, now)) {
      return &token;
    }
  }
  return nullptr;
}

const TokenRecord* TokenTable::FindNode(const std::string& node_id,
                                        absl::Time now) const {
  for (const auto& [id, token] : tokens_) {
    if (token.node_id() == node_id && token.role() == v1::ROLE_WORKER &&
        IsLiving(token, now)) {
      return &token;
    }
  }
  return nullptr;
}

std::vector<std::string> TokenTable::Ended(absl::Time now) const {
  std::vector<std::string> ended;
  for (const auto& [id, token] : tokens_) {
    if (!IsLiving(token, now)) ended.push_back(id);
  }
  return ended;
}

}  // namespace cohort::head

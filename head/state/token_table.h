#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "head/store/records.h"
#include "rpc/token_book.h"

namespace cohort::head {

// The id of the token by which an instance joins, and nothing else does.
std::string LaunchTokenId(const InstanceId& instance);
// Neither revoked nor expired.
bool IsLiving(const TokenRecord& token, absl::Time now);
// Whom the head lets in, by id.  Thread-compatible; belongs to ClusterState.
class TokenTable {
 public:
  // From now on `book`, which the Authenticator reads, has what the table has.
  void Keep(std::shared_ptr<rpc::TokenBook> book);

  // Adds or replaces.
  void Put(TokenRecord token);
  void Remove(const std::string& id);

  // Null: it is not here.
  const TokenRecord* Find(const std::string& id) const;
  // A living one of the user with that name, or of the node with those bytes;
  // null: there is none.
  const TokenRecord* FindUser(const std::string& name, absl::Time now) const;
  const TokenRecord* FindNode(const std::string& node_id, absl::Time now) const;
  // The ids of those that are not living.
  std::vector<std::string> Ended(absl::Time now) const;

  const std::map<std::string, TokenRecord>& all() const { return tokens_; }

 private:
  std::map<std::string, TokenRecord> tokens_;
  std::shared_ptr<rpc::TokenBook> book_;  // null: nobody reads it
};

}  // namespace cohort::head

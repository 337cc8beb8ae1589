#include "actor/connect_actor.h"

#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "common/status_macros.h"
#include "rpc/certificate.h"
#include "rpc/channel.h"
#include "rpc/credential.h"
#include "rpc/grpc_channel.h"

namespace cohort::actor {
namespace {

bool IsHere(absl::string_view path) {
  return access(std::string(path).c_str(), F_OK) == 0;
}

absl::StatusOr<std::string> Nearest(const std::vector<std::string>& addresses) {
  const std::string* network = nullptr;
  for (const std::string& address : addresses) {
    absl::string_view path = address;
    if (absl::ConsumePrefix(&path, "unix:")) {
      if (IsHere(path)) return address;
    } else if (network == nullptr) {
      network = &address;
    }
  }
  if (network != nullptr) return *network;
  return absl::UnavailableError(
      absl::StrCat("none of the actor's addresses is reachable from here: ",
                   absl::StrJoin(addresses, ", ")));
}

}  // namespace

ActorConnect ConnectOverGrpc() {
  return
      [](const std::vector<std::string>& addresses, const std::string& secret)
          -> absl::StatusOr<std::unique_ptr<rpc::Channel>> {
        COHORT_ASSIGN_OR_RETURN(rpc::Credential credential,
                                rpc::Credential::FromBytes(secret));
        COHORT_ASSIGN_OR_RETURN(const std::string address, Nearest(addresses));
        // Between nodes; only who knows the secret can be that server.
        if (!absl::StartsWith(address, "unix:")) {
          credential = credential.For(rpc::ServerOfSecret(secret).certificate);
        }
        return rpc::NewGrpcChannel(address, credential);
      };
}

}  // namespace cohort::actor

#include "rpc/router.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/status_util.h"
#include "rpc/incoming_call.h"

namespace cohort::rpc {
namespace {

// The other end of a call that was refused at once: nothing follows.
class RefusedCall final : public ServerCall {
 public:
  void OnRead(std::optional<absl::string_view> /*message*/) override {}
  void OnWriteDone(bool /*ok*/) override {}
  void OnCancelled() override {}
  void Abandon() override {}
};

}  // namespace

Router::Router(RouterOptions options, Authenticator authenticator,
               const Clock& clock)
    : core_(std::make_shared<RouterCore>(options, clock)),
      authenticator_(std::move(authenticator)) {}

Router::~Router() = default;

void Router::EndRefused() {
  for (const std::string& token : core_->lasting().Tokens()) {
    const absl::Status status = authenticator_.CheckToken(token);
    if (!absl::IsUnauthenticated(status)) continue;
    for (const auto& call : core_->lasting().CallsOf(token)) call->End(status);
  }
}

void Router::SetStamp(Stamp stamp) { core_->SetStamp(std::move(stamp)); }

void Router::SetObserver(CallObserver& observer) {
  core_->SetObserver(observer);
}

void Router::SetAround(Around around) { core_->SetAround(std::move(around)); }

const RouterOptions& Router::options() const { return core_->options(); }

size_t Router::calls_in_flight() const { return core_->admission().taken(); }

void Router::Add(Method method) {
  if (method.load != Load::kNode) {
    std::shared_ptr<FairLine>& line = lines_[method.strand];
    if (line == nullptr) line = std::make_shared<FairLine>(*method.strand);
    method.line = line;
  }
  std::string path = method.path;
  const bool added =
      methods_.emplace(path, std::make_shared<const Method>(std::move(method)))
          .second;
  COHORT_CHECK(added) << path << " has a handler already";
}

std::vector<std::pair<std::string, Roles>> Router::Methods() const {
  std::vector<std::pair<std::string, Roles>> all;
  for (const auto& [path, method] : methods_) {
    all.emplace_back(path, method->roles);
  }
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  return all;
}

std::vector<std::string> Router::UnaryPaths() const {
  std::vector<std::string> paths;
  for (const auto& [path, method] : methods_) {
    if (method->open == nullptr) paths.push_back(path);
  }
  return paths;
}

std::shared_ptr<ServerCall> Router::Accept(CallInfo info,
                                           ServerTransport& transport) {
  const auto refuse = [&](absl::Status status) {
    // What the caller made up would make names without end.
    const bool known = methods_.contains(info.path);
    core_->Observe(known ? info.path : "unknown", /*is_stream=*/false,
                   status.code(), absl::ZeroDuration());
    transport.Finish({.status = std::move(status),
                      .message = std::nullopt,
                      .stamp = core_->stamp()});
    return std::make_shared<RefusedCall>();
  };
  absl::StatusOr<Principal> principal =
      authenticator_.Authenticate(info.authorization);
  if (!principal.ok()) {
    const bool known = methods_.contains(info.path);
    core_->NoteRefusal(known ? info.path : "unknown", info.peer, nullptr,
                       principal.status());
    return refuse(std::move(principal).status());
  }

  const auto method = methods_.find(info.path);
  if (method == methods_.end()) {
    return refuse(absl::UnimplementedError(
        absl::StrCat("this server has no method ", info.path)));
  }
  if (!method->second->roles.Has(principal->role)) {
    absl::Status why = SetReason(
        absl::PermissionDeniedError(absl::StrCat(
            principal->name, " has role ", RoleName(principal->role), ", and ",
            info.path,
            " is not for it: use the cluster's credential, or ask an admin "
            "for another role (docs/security.md)")),
        "role");
    core_->NoteRefusal(info.path, info.peer, &*principal, why);
    return refuse(std::move(why));
  }
  std::string caller = absl::StrCat(principal->name, "@", info.peer);
  absl::StatusOr<Admission::Place> place = core_->admission().Enter(
      method->second->load, caller, principal->name.size());
  if (!place.ok()) return refuse(std::move(place).status());
  Admitted admitted{.method = method->second,
                    .principal = *std::move(principal),
                    .caller = std::move(caller),
                    .place = *std::move(place)};
  const auto make =
      method->second->open != nullptr ? NewStreamCall : NewUnaryCall;
  const bool lasts =
      method->second->open != nullptr || method->second->load == Load::kWaiting;
  const std::string token = lasts ? admitted.principal.token_id : "";
  const std::shared_ptr<IncomingCall> call =
      make(core_, std::move(admitted), info, transport);
  if (!token.empty()) core_->lasting().Add(token, call);
  call->Start();
  return call;
}

}  // namespace cohort::rpc

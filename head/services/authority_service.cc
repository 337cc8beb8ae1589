#include "head/services/authority_service.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/log.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "rpc/certificate.h"
#include "rpc/methods.h"

namespace cohort::head {
namespace {

constexpr size_t kNodesNamedMax = 20;

std::string PrintOf(const std::string& certificate) {
  return rpc::FingerprintOf(certificate).value_or("");
}

void Add(const std::string& certificate, bool next, v1::Authorities& all) {
  v1::Authority& authority = *all.add_authorities();
  authority.set_fingerprint(PrintOf(certificate));
  authority.set_certificate(certificate);
  authority.set_next(next);
}

}  // namespace

AuthorityService::AuthorityService(Authorities* authorities, NodeService& nodes,
                                   DriverService& drivers, StateHost& host,
                                   Executor& strand, const Clock& clock)
    : authorities_(authorities),
      nodes_(nodes),
      drivers_(drivers),
      host_(host),
      strand_(strand),
      clock_(clock),
      rotated_at_(clock.Wall()),
      self_(std::make_shared<AuthorityService*>(this)) {
  if (authorities_ != nullptr) Announce();
}

AuthorityService::~AuthorityService() { *self_ = nullptr; }

void AuthorityService::Announce() {
  const std::string next = authorities_->held().next;
  nodes_.SetNextAuthority(next);
  drivers_.SetNextAuthority(next);
}

template <typename Req>
void AuthorityService::Handle(
    rpc::Router& router, const rpc::UnaryMethod<Req, v1::Authorities>& method,
    std::type_identity_t<Change<Req>> change) {
  router.Handle(method, strand_,
                [self = self_, change](const std::shared_ptr<rpc::CallContext>&,
                                       const Req& request,
                                       rpc::Reply<v1::Authorities> reply) {
                  if (*self == nullptr) return std::move(reply)(Gone());
                  AuthorityService& service = **self;
                  if (service.authorities_ == nullptr) {
                    return std::move(reply)(absl::UnimplementedError(
                        "this head shows no certificate (--insecure)"));
                  }
                  if (change != nullptr) {
                    // Where no row of the audit log can be written nothing is
                    // changed.
                    const absl::StatusOr<ClusterState*> state =
                        service.host_.Writable(Admission::kClient);
                    if (!state.ok()) return std::move(reply)(state.status());
                    const absl::Status status =
                        (service.*change)(request, **state);
                    if (!status.ok()) return std::move(reply)(status);
                  }
                  std::move(reply)(service.List());
                });
}

void AuthorityService::RegisterOn(rpc::Router& router) {
  Handle(router, rpc::kListAuthorities, nullptr);
  Handle(router, rpc::kRotateAuthority, &AuthorityService::Rotate);
  Handle(router, rpc::kFinishRotation, &AuthorityService::Finish);
}

std::vector<std::string> AuthorityService::NodesWithout(
    const ClusterState& state) const {
  const std::string next = PrintOf(authorities_->held().next);
  std::vector<std::string> names;
  for (const auto& [id, node] : state.nodes().records()) {
    if (node.state != v1::NODE_STATE_DEAD && nodes_.AuthorityOf(id) != next) {
      names.push_back(node.node.name());
    }
  }
  for (const auto& [id, instance] : state.fleet().instances()) {
    const bool was_launched =
        instance.state() == v1::INSTANCE_STATE_REQUESTED ||
        instance.state() == v1::INSTANCE_STATE_ALLOCATED;
    if (was_launched &&
        absl::FromUnixMicros(instance.created_at_us()) <= rotated_at_) {
      names.push_back(
          absl::StrCat("instance ", id.ToHex(), " (has not joined)"));
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<v1::Authorities> AuthorityService::List() const {
  COHORT_ASSIGN_OR_RETURN(const ClusterState* state, host_.Readable());
  const Authorities::Held held = authorities_->held();
  v1::Authorities all;
  Add(held.current, /*next=*/false, all);
  if (held.next.empty()) return all;
  Add(held.next, /*next=*/true, all);
  for (std::string& name : NodesWithout(*state)) {
    all.add_nodes_without(std::move(name));
  }
  return all;
}

absl::Status AuthorityService::Rotate(
    const v1::RotateAuthorityRequest& /*request*/,
    const ClusterState& /*state*/) {
  const bool is_new = authorities_->held().next.empty();
  COHORT_RETURN_IF_ERROR(authorities_->BeginRotation());
  if (is_new) rotated_at_ = clock_.Wall();
  COHORT_LOG(kInfo, "authority_rotation_begun",
             {"next", PrintOf(authorities_->held().next)});
  Announce();
  return absl::OkStatus();
}

absl::Status AuthorityService::Finish(const v1::FinishRotationRequest& request,
                                      const ClusterState& state) {
  const Authorities::Held held = authorities_->held();
  if (held.next.empty() && PrintOf(held.current) == request.fingerprint()) {
    return absl::OkStatus();
  }
  if (held.next.empty() || PrintOf(held.next) != request.fingerprint()) {
    return SetReason(
        absl::FailedPreconditionError(absl::StrCat(
            "there is no rotation to authority ", Shown(request.fingerprint()),
            " (`cohort authority list` shows what there is, `cohort authority "
            "rotate` begins one)")),
        "no_rotation");
  }
  std::vector<std::string> without = NodesWithout(state);
  if (!without.empty() && !request.force()) {
    const size_t count = without.size();
    without.resize(std::min(count, kNodesNamedMax));
    return SetReason(
        absl::FailedPreconditionError(absl::StrCat(
            count, " nodes do not have the next authority yet: ",
            absl::StrJoin(without, ", "), count > without.size() ? ", ..." : "",
            " (wait until they are there, or give --force: on those that come "
            "back later run `cohort authority trust`, and an instance that "
            "has not joined by then cannot)")),
        "nodes_without_authority");
  }
  COHORT_RETURN_IF_ERROR(authorities_->FinishRotation());
  COHORT_LOG(kInfo, "authority_rotation_finished",
             {"authority", request.fingerprint()});
  Announce();
  return absl::OkStatus();
}

}  // namespace cohort::head

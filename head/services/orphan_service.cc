#include "head/services/orphan_service.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/hash.h"
#include "head/state/orphan_list.h"
#include "rpc/methods.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

constexpr size_t kListedMax = 1'000;
constexpr size_t kListedBytesMax = 4 << 20;

std::string NodeName(const ClusterState& state, const NodeId& id) {
  const NodeRecord* node = state.nodes().Find(id);
  return node == nullptr ? id.ToHex() : node->node.name();
}

void AddLost(const ClusterState& state, const AttemptId& attempt,
             v1::AdoptAttemptResponse& response) {
  const AttemptRecord* row = state.attempts().Find(attempt);
  if (row == nullptr) return;
  for (const NodeId& node : LostNodesOf(*row)) {
    response.add_lost_node_names(NodeName(state, node));
  }
}

// It ends, whatever is lost.
void AddLost(const ClusterState&, const AttemptId&, v1::EndAttemptResponse&) {}

}  // namespace

OrphanService::OrphanService(StateHost& host, Executor& strand)
    : host_(host),
      strand_(strand),
      self_(std::make_shared<OrphanService*>(this)) {}

OrphanService::~OrphanService() { *self_ = nullptr; }

void OrphanService::RegisterOn(rpc::Router& router) {
  Handle(router, rpc::kAdoptAttempt, &ClusterState::AdoptAttempt);
  Handle(router, rpc::kEndAttempt, &ClusterState::EndAttempt);
}

template <typename Req, typename Resp>
void OrphanService::Handle(rpc::Router& router,
                           const rpc::UnaryMethod<Req, Resp>& method,
                           Decide decide) {
  router.Handle(method, strand_,
                [self = self_, decide, path = method.path](
                    const std::shared_ptr<rpc::CallContext>& context,
                    const Req& request, rpc::Reply<Resp> reply) {
                  if (*self == nullptr) return std::move(reply)(Gone());
                  (*self)->Answer(*context, request, decide, path,
                                  std::move(reply));
                });
}

template <typename Req, typename Resp>
void OrphanService::Answer(const rpc::CallContext& context, const Req& request,
                           Decide decide, const char* path,
                           rpc::Reply<Resp> reply) {
  const absl::StatusOr<ClusterState*> state =
      host_.Writable(Admission::kClient);
  if (!state.ok()) return std::move(reply)(state.status());
  const absl::StatusOr<AttemptId> attempt =
      AttemptId::FromBytes(request.attempt_id());
  if (!attempt.ok()) return std::move(reply)(attempt.status());
  const std::string body = absl::StrCat(path, request.attempt_id());
  const RequestKey key{.principal = context.principal().name,
                       .request_id = request.request_id(),
                       .body_hash = std::string(Sha256::Of(body).bytes())};
  Transition transition;
  const absl::StatusOr<JobId> job =
      ((*state)->*decide)(key, *attempt, transition);
  Resp response;
  if (job.ok()) {
    response.set_job_id(job->bytes());
    AddLost(**state, *attempt, response);
  }
  transition.Then(
      [reply = std::move(reply), refused = job.status(),
       response = std::move(response)](const absl::Status& status) mutable {
        if (!status.ok()) return std::move(reply)(status);
        if (!refused.ok()) return std::move(reply)(refused);
        std::move(reply)(std::move(response));
      });
  host_.Submit(std::move(transition));
}

void AddOrphans(const ClusterState& state, v1::GetStatusResponse& response) {
  response.set_settling(state.cluster().settling());
  response.set_orphan_count(static_cast<int64_t>(
      state.orphans().all().size() + state.attempts().ended_orphans().size()));
  size_t bytes = 0;
  for (const ListedAttempt& each : ListOrphans(state, kListedMax)) {
    v1::OrphanAttempt& wire = *response.add_orphans();
    wire.set_attempt_id(std::string(each.attempt.bytes()));
    wire.set_job_id(each.job.bytes());
    wire.set_state(each.state);
    if (each.since != absl::InfinitePast()) {
      *wire.mutable_since() = rpc::ToWire(each.since);
    }
    for (const NodeId& node : each.nodes) {
      wire.add_node_names(NodeName(state, node));
    }
    bytes += wire.ByteSizeLong();
    if (bytes > kListedBytesMax) return;
  }
}

}  // namespace cohort::head

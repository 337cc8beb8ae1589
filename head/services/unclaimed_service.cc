#include "head/services/unclaimed_service.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/hash.h"
#include "head/state/unclaimed.h"
#include "rpc/methods.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

constexpr int kListedMax = 1'000;

}  // namespace

UnclaimedService::UnclaimedService(StateHost& host, Executor& strand)
    : host_(host),
      strand_(strand),
      self_(std::make_shared<UnclaimedService*>(this)) {}

UnclaimedService::~UnclaimedService() { *self_ = nullptr; }

void UnclaimedService::RegisterOn(rpc::Router& router) {
  Handle(router, rpc::kAdoptAttempt, &ClusterState::AdoptAttempt);
  Handle(router, rpc::kEndAttempt, &ClusterState::EndAttempt);
}

template <typename Req, typename Resp>
void UnclaimedService::Handle(rpc::Router& router,
                              const rpc::UnaryMethod<Req, Resp>& method,
                              Decide decide) {
  router.Handle(method, rpc::Access::kCluster, strand_,
                [self = self_, decide, path = method.path](
                    const std::shared_ptr<rpc::CallContext>& context,
                    const Req& request, rpc::Reply<Resp> reply) {
                  if (*self == nullptr) return std::move(reply)(Gone());
                  (*self)->Answer(*context, request, decide, path,
                                  std::move(reply));
                });
}

template <typename Req, typename Resp>
void UnclaimedService::Answer(const rpc::CallContext& context,
                              const Req& request, Decide decide,
                              const char* path, rpc::Reply<Resp> reply) {
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
  absl::StatusOr<JobId> job = ((*state)->*decide)(key, *attempt, transition);
  transition.Then([reply = std::move(reply),
                   job = std::move(job)](const absl::Status& status) mutable {
    if (!status.ok()) return std::move(reply)(status);
    if (!job.ok()) return std::move(reply)(job.status());
    Resp response;
    response.set_job_id(job->bytes());
    std::move(reply)(std::move(response));
  });
  host_.Submit(std::move(transition));
}

void AddUnclaimed(const ClusterState& state, v1::GetStatusResponse& response) {
  response.set_settling(state.cluster().settling);
  for (const auto& [id, listed] : state.unclaimed().all()) {
    if (response.unclaimed_size() >= kListedMax) return;
    UnclaimedTable::Entry entry = listed;
    v1::UnclaimedAttempt& wire = *response.add_unclaimed();
    wire.set_attempt_id(std::string(id.bytes()));
    wire.set_job_id(entry.job.bytes());
    wire.set_known(entry.has_row);
    *wire.mutable_since() = rpc::ToWire(entry.since);
    const auto name = [&](const NodeId& node) {
      const NodeRecord* record = state.nodes().Find(node);
      wire.add_node_names(record == nullptr ? node.ToHex() : record->name);
      // Of a node that went away nothing is known.
      if (record == nullptr || record->state == NodeState::kDead) {
        entry.seen.erase(node);
      }
    };
    size_t nodes = listed.seen.size();
    if (const AttemptRecord* attempt = state.attempts().Find(id)) {
      nodes = attempt->parts.size();
      for (const AttemptPart& part : attempt->parts) name(part.node);
    } else {
      for (const auto& [node, observed] : listed.seen) {
        name(node);
        if (!observed.wanted.has_value()) continue;
        nodes = static_cast<size_t>(observed.wanted->node_count);
      }
    }
    wire.set_state(StateOf(entry, nodes));
  }
}

}  // namespace cohort::head

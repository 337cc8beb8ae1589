#include "head/services/event_service.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/services/cluster_wire.h"
#include "rpc/methods.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

constexpr size_t kEventsMax = 1'000;

// The nodes that `text` names, by id or name.
absl::StatusOr<std::set<NodeId>> NodesNamed(const ClusterState& state,
                                            const std::string& text) {
  std::set<NodeId> nodes;
  if (const absl::StatusOr<NodeId> id = NodeId::FromHex(text);
      id.ok() && !id->IsNil()) {
    nodes.insert(*id);  // the head may have forgotten it, its events not yet
    return nodes;
  }
  for (const auto& [id, node] : state.nodes().records()) {
    if (node.node.name() == text) nodes.insert(id);
  }
  if (!nodes.empty()) return nodes;
  return SetReason(absl::NotFoundError(absl::StrCat(
                       "there is no node ", Shown(text),
                       ": give a name or an id that `cohort nodes` shows")),
                   "unknown_node");
}

absl::StatusOr<EventQuery> QueryOf(const ClusterState& state,
                                   const v1::ListEventsRequest& request) {
  EventQuery query;
  query.after = request.after();
  if (request.has_since()) query.filter.since = rpc::FromWire(request.since());
  if (!request.job_id().empty()) {
    COHORT_ASSIGN_OR_RETURN(query.filter.job,
                            JobId::FromBytes(request.job_id()));
    if (query.filter.job->IsNil()) return NoSuchJob(*query.filter.job);
  }
  if (!request.node().empty()) {
    COHORT_ASSIGN_OR_RETURN(query.filter.nodes,
                            NodesNamed(state, request.node()));
  }
  query.filter.kind = request.kind();
  if (request.limit() < 0) {
    return absl::InvalidArgumentError("a limit of events is above zero");
  }
  query.events_max =
      request.limit() == 0
          ? kEventsMax
          : std::min(kEventsMax, static_cast<size_t>(request.limit()));
  return query;
}

// Numbers of events are of one history: a store that was restored uses those
// after its backup again.
absl::Status CheckGeneration(const ClusterRecord& cluster,
                             const v1::ListEventsRequest& request) {
  if (request.generation().empty() ||
      request.generation() == cluster.generation()) {
    return absl::OkStatus();
  }
  return SetReason(
      absl::FailedPreconditionError(absl::StrCat(
          "the store was restored from a backup since event ", request.after(),
          " was read, generation ",
          absl::BytesToHexString(request.generation().substr(0, 32)),
          ": its history is another one from its last event store_restored on, "
          "generation ",
          absl::BytesToHexString(cluster.generation()),
          "; go on after the event before that")),
      "history_replaced");
}

// Of nodes and the cluster everybody sees them; of tokens admins alone.  A
// package's hash is as good as its files, so who is granted some namespaces
// does not see it.
bool MaySee(const rpc::Principal& principal, const EventRecord& event) {
  if (absl::StartsWith(event.kind(), "token_")) {
    return principal.role == rpc::Role::kAdmin;
  }
  const bool is_somebodys = !event.job_id().empty() ||
                            absl::StartsWith(event.kind(), "driver_") ||
                            absl::StartsWith(event.kind(), "package_");
  return !is_somebodys || principal.MayUse(event.namespace_());
}

}  // namespace

EventService::EventService(StateHost& host, Read read, Executor& strand)
    : host_(host),
      read_(std::move(read)),
      strand_(strand),
      self_(std::make_shared<EventService*>(this)) {}

EventService::~EventService() {
  DropWaiting(Gone());
  *self_ = nullptr;
}

void EventService::RegisterOn(rpc::Router& router) {
  router.Handle(
      rpc::kListEvents, strand_,
      [self = self_](const Context& context,
                     const v1::ListEventsRequest& request, Reply reply) {
        if (*self == nullptr) return std::move(reply)(Gone());
        (*self)->List(context, request, std::move(reply));
      });
}

void EventService::List(const Context& context,
                        const v1::ListEventsRequest& request, Reply reply) {
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  if (!state.ok()) return std::move(reply)(state.status());
  absl::StatusOr<EventQuery> query = QueryOf(**state, request);
  if (!query.ok()) return std::move(reply)(query.status());
  const absl::Status same = CheckGeneration((*state)->cluster(), request);
  if (!same.ok()) return std::move(reply)(same);
  const uint64_t last = (*state)->cluster().next_event() - 1;
  if (query->after > last) {
    return std::move(reply)(SetReason(
        absl::OutOfRangeError(absl::StrCat(
            "there is no event ", query->after, " yet, the last one is ", last,
            "; if there was one, the store has been restored since: start "
            "again")),
        "no_such_event"));
  }
  const uint64_t number = next_++;
  pending_.emplace(number, Pending{.query = *std::move(query),
                                   .wait = request.wait(),
                                   .parked = false,
                                   .principal = context->principal(),
                                   .reply = std::move(reply)});
  context->OnCancel([self = self_, number] {
    if (*self != nullptr) {
      (*self)->Answer(number,
                      absl::DeadlineExceededError("there was no such event"));
    }
  });
  Proceed(number);
}

void EventService::Proceed(uint64_t number) {
  Pending& pending = pending_.at(number);
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  if (!state.ok()) return Answer(number, state.status());
  pending.query.last = (*state)->cluster().next_event() - 1;
  if (pending.wait && pending.query.last <= pending.query.after) {
    pending.parked = true;
    ++parked_;
    return;
  }
  // ES-1: the last event is read after it is durable, and none beyond it.
  host_.AfterDurable([self = self_, number](const absl::Status& status) {
    if (*self == nullptr) return;
    EventService& service = **self;
    const auto it = service.pending_.find(number);
    if (it == service.pending_.end()) return;
    if (!status.ok()) return service.Answer(number, status);
    service.read_(it->second.query,
                  [self, number](absl::StatusOr<EventPage> page) {
                    if (*self != nullptr) {
                      (*self)->OnPage(number, std::move(page));
                    }
                  });
  });
}

void EventService::OnPage(uint64_t number, absl::StatusOr<EventPage> page) {
  const auto it = pending_.find(number);
  if (it == pending_.end()) return;
  if (!page.ok()) return Answer(number, page.status());
  Pending& pending = it->second;
  if (pending.wait && page->events.empty() && page->skipped == 0) {
    pending.query.after = page->next;
    return Proceed(number);
  }
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  if (!state.ok()) return Answer(number, state.status());
  v1::ListEventsResponse response;
  for (EventRecord& event : page->events) {
    if (!MaySee(pending.principal, event)) continue;
    *response.add_events() = EventToWire(**state, std::move(event));
  }
  response.set_next(page->next);
  response.set_more(page->next < pending.query.last);
  response.set_skipped(page->skipped);
  response.set_generation((*state)->cluster().generation());
  Answer(number, std::move(response));
}

void EventService::Answer(uint64_t number,
                          absl::StatusOr<v1::ListEventsResponse> response) {
  auto pending = pending_.extract(number);
  if (pending.empty()) return;
  if (pending.mapped().parked) --parked_;
  std::move(pending.mapped().reply)(std::move(response));
}

void EventService::EventsAdded() {
  if (parked_ == 0) return;
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  if (!state.ok()) return;  // they are dropped with the state
  const uint64_t last = (*state)->cluster().next_event() - 1;
  std::vector<uint64_t> awake;
  for (auto& [number, pending] : pending_) {
    if (!pending.parked || last <= pending.query.after) continue;
    pending.parked = false;
    --parked_;
    awake.push_back(number);
  }
  for (const uint64_t number : awake) Proceed(number);
}

void EventService::DropWaiting(const absl::Status& why) {
  parked_ = 0;
  for (auto& [number, pending] : std::exchange(pending_, {})) {
    std::move(pending.reply)(why);
  }
}

}  // namespace cohort::head

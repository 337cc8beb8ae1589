#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"

#include "cohort/v1/cluster.pb.h"
#include "common/executor.h"
#include "head/services/event_reader.h"
#include "head/services/state_host.h"
#include "rpc/router.h"

namespace cohort::head {

// The call ListEvents of ClusterService: pages of the event log, and waiting
// for what comes next.
//
//   ES-1: only durable events are shown.
//
// Strand-bound; HeadCore owns it.  Calls may outlive it by a task, and are then
// answered UNAVAILABLE.
class EventService final {
 public:
  // Reads a page; `done` on the strand, never with the core gone.
  using Read = absl::AnyInvocable<void(EventQuery query, EventsRead done)>;

  // All outlive the service.
  EventService(StateHost& host, Read read, Executor& strand);
  ~EventService();

  EventService(const EventService&) = delete;
  EventService& operator=(const EventService&) = delete;

  void RegisterOn(rpc::Router& router);

  // The state has perhaps more events than before: those that wait look.
  void EventsAdded();

  // The state is gone: waiting calls are answered with `why` and ask again.
  void DropWaiting(const absl::Status& why);

 private:
  using Context = std::shared_ptr<rpc::CallContext>;
  using Reply = rpc::Reply<v1::ListEventsResponse>;

  // A call that has not been answered.
  struct Pending {
    EventQuery query;
    bool wait = false;
    bool parked = false;  // until there is more
    rpc::Principal principal;
    Reply reply;
  };

  void List(const Context& context, const v1::ListEventsRequest& request,
            Reply reply);
  // Reads on, answers, or parks the call.
  void Proceed(uint64_t number);
  void OnPage(uint64_t number, absl::StatusOr<EventPage> page);
  void Answer(uint64_t number, absl::StatusOr<v1::ListEventsResponse> response);

  StateHost& host_;
  Read read_;
  Executor& strand_;

  std::map<uint64_t, Pending> pending_;
  uint64_t next_ = 1;
  size_t parked_ = 0;

  // Shared: this and its calls, which find it empty once this is gone.
  const std::shared_ptr<EventService*> self_;
};

}  // namespace cohort::head

#pragma once

#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "client/node.h"
#include "cohort/v1/cluster.pb.h"

namespace cohort::client {

// Reads the events of a cluster page by page: each once and in order, over
// restarts of the head, and over a restore of its store.
//
//   EF-1: a restored store has one history with the old one up to its backup,
//         and another from its event "store_restored" on, under numbers that
//         the old one may have used too.  Who follows goes on there: it loses
//         nothing of the new history, and sees nothing of the common one again.
//
// That event is given whatever is asked for, with EventPlace::history_replaced;
// if
// it is not kept any more, the first one after it has that.
//
// One use.  Thread-compatible.  What is passed by reference outlives it.
class EventFollower {
 public:
  using Sink = absl::FunctionRef<absl::Status(const Event& event,
                                              const EventPlace& place)>;
  // Asks the head; blocks.
  using Ask = absl::FunctionRef<absl::StatusOr<v1::ListEventsResponse>(
      const v1::ListEventsRequest& request)>;

  // `request`: what is wanted, and after which number.
  EventFollower(Ask ask, v1::ListEventsRequest request, bool follows,
                Sink sink);

  // Until all is shown, for one that follows until an error of `ask` or the
  // sink.
  absl::Status Run();

 private:
  absl::Status Show(const v1::ListEventsResponse& page);
  absl::Status Give(const Event& event, bool more);
  // The store was restored: looks where its history left the one that was read.
  absl::Status Rejoin();

  Ask ask_;
  v1::ListEventsRequest request_;
  const bool follows_;
  Sink sink_;
  uint64_t skipped_ = 0;
  // The restore, while there are events before it to show.
  std::optional<Event> restore_;
  bool replaced_ = false;  // the next event is of another history
};

}  // namespace cohort::client

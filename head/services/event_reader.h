#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/job_id.h"
#include "common/strong_id.h"
#include "head/store/records.h"
#include "head/store/store.h"

namespace cohort::head {

// Which events are wanted.
struct EventFilter {
  absl::Time since = absl::InfinitePast();
  // An array's names its elements too.
  std::optional<JobId> job;
  // On one of these, or of an attempt on one; empty: any, and none.
  std::set<NodeId> nodes;
  std::string kind;  // empty: any
};

bool Matches(const EventFilter& filter, const EventRecord& event);

struct EventQuery {
  uint64_t after = 0;  // numbers above it
  uint64_t last = 0;   // up to this one, which is durable
  EventFilter filter;
  size_t events_max = 1'000;
  // Rows looked at, 2 ms of the store's time: its syncs wait meanwhile.
  size_t rows_max = 2'000;
};

struct EventPage {
  std::vector<EventRecord> events;  // in the order of their numbers
  // The last number that was looked at: where to go on.
  uint64_t next = 0;
  // Numbers right after EventQuery::after that history has trimmed.
  uint64_t skipped = 0;
};

using EventsRead = absl::AnyInvocable<void(absl::StatusOr<EventPage> page) &&>;

// Reads a page of events; on the store's executor.
//
//   EV-1: events have numbers without holes, so who goes on with `next` sees
//         each once, whatever was trimmed, stored or restarted meanwhile.
//
// Errors of the store; DataLoss for a row that cannot be read.
absl::StatusOr<EventPage> ReadEvents(Store& store, const EventQuery& query);

}  // namespace cohort::head

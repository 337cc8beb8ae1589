#include "head/services/event_reader.h"

#include <algorithm>
#include <utility>

#include "common/status_macros.h"
#include "head/store/records_codec.h"

namespace cohort::head {

bool Matches(const EventFilter& filter, const EventRecord& event) {
  if (event.at < filter.since) return false;
  if (!filter.kind.empty() && event.kind != filter.kind) return false;
  if (filter.job.has_value() && event.job != *filter.job &&
      (event.job.IsNil() || event.job.array() != *filter.job)) {
    return false;
  }
  return filter.nodes.empty() || filter.nodes.contains(event.node) ||
         std::any_of(
             event.nodes.begin(), event.nodes.end(),
             [&](const NodeId& node) { return filter.nodes.contains(node); });
}

absl::StatusOr<EventPage> ReadEvents(Store& store, const EventQuery& query) {
  EventPage page;
  page.next = query.after;
  if (query.last <= query.after) return page;
  COHORT_ASSIGN_OR_RETURN(
      const auto rows,
      store.LoadRange(Table::kEvents, RowKey(query.after + 1), query.rows_max));
  // What is not there was trimmed: from the oldest on.
  page.skipped = query.last - query.after;
  bool first = true;
  for (const auto& [key, value] : rows) {
    COHORT_ASSIGN_OR_RETURN(EventRecord event,
                            FromRow<EventRecord>(key, value));
    if (first && event.number <= query.last) {
      page.skipped = event.number - query.after - 1;
    }
    first = false;
    if (event.number > query.last) {
      page.next = query.last;
      return page;
    }
    if (page.events.size() >= query.events_max) return page;
    page.next = event.number;
    if (Matches(query.filter, event)) page.events.push_back(std::move(event));
  }
  if (rows.size() < query.rows_max) page.next = query.last;
  return page;
}

}  // namespace cohort::head

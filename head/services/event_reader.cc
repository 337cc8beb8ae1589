#include "head/services/event_reader.h"

#include <algorithm>
#include <utility>

#include "common/status_macros.h"
#include "head/store/records_codec.h"
#include "rpc/wire_values.h"

namespace cohort::head {

bool Matches(const EventFilter& filter, const EventRecord& event) {
  if (rpc::FromWire(event.at()) < filter.since) return false;
  if (!filter.kind.empty() && event.kind() != filter.kind) return false;
  const JobId job = IdOf<JobId>(event.job_id());
  if (filter.job.has_value() && job != *filter.job &&
      (job.IsNil() || job.array() != *filter.job)) {
    return false;
  }
  const auto is_wanted = [&](const std::string& node) {
    return filter.nodes.contains(IdOf<NodeId>(node));
  };
  return filter.nodes.empty() || is_wanted(event.node_id()) ||
         std::any_of(event.node_ids().begin(), event.node_ids().end(),
                     is_wanted);
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
    if (first && event.number() <= query.last) {
      page.skipped = event.number() - query.after - 1;
    }
    first = false;
    if (event.number() > query.last) {
      page.next = query.last;
      return page;
    }
    if (page.events.size() >= query.events_max) return page;
    page.next = event.number();
    if (Matches(query.filter, event)) page.events.push_back(std::move(event));
  }
  if (rows.size() < query.rows_max) page.next = query.last;
  return page;
}

}  // namespace cohort::head

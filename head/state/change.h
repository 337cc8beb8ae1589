#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "common/job_id.h"
#include "common/strong_id.h"
#include "head/state/attempt_table.h"
#include "head/state/desired.h"
#include "head/state/driver_table.h"
#include "head/state/job_table.h"
#include "head/state/node_links.h"
#include "head/state/node_table.h"
#include "head/state/observed.h"
#include "head/store/records.h"
#include "head/store/transition.h"

namespace cohort::head {

// What an event is about; nil: nothing of the kind.
struct EventSubject {
  JobId job = {};
  AttemptId attempt = {};
  NodeId node = {};
  uint64_t cause = 0;  // number of the event that led to it; 0: none
};
EventRecord EventOf(const char* kind, std::string text,
                    const EventSubject& subject = {});

// What one decision of ClusterState has touched so far: each row is stored once
// at its end, whatever happened to it in between, and each message is computed
// from the final state.  A value of one decision.
struct Change {
  struct Disconnect {
    NodeId node;
    uint64_t incarnation = 0;
    absl::Status reason;
  };

  // Rows to store, as the tables have them at the end.
  bool cluster = false;
  std::set<NodeId> nodes;
  std::set<JobId> jobs;
  std::set<JobId> arrays;
  std::set<DriverId> drivers;
  std::set<AttemptId> attempts;
  std::map<AttemptId, std::set<int>> slots;  // that changed in them
  // New ones, of which others are told how large they are.
  std::vector<EventRecord> events;
  std::vector<RequestRecord> requests;
  // Of every other table, as they are now; and rows that go, after all others.
  Batch rows;
  Batch gone;

  template <typename Record>
  void Put(const Record& record) {
    rows.push_back(ToWrite(record));
  }
  template <typename Record, typename... Part>
  void Delete(const Part&... key) {
    gone.push_back(ToDelete<Record>(key...));
  }

  // Messages: what is wanted of these attempts, and that these processes, which
  // are theirs no more, are to be forgotten.
  std::map<NodeId, std::map<AttemptId, Incarnations>> desired;
  // Attempts that the head does not know, or not on that node.
  std::map<NodeId, std::map<AttemptId, JobId>> forget;
  std::map<NodeId, std::vector<SharedExchange>> exchanges;
  std::map<NodeId, std::vector<Acknowledged>> acknowledged;
  std::vector<Disconnect> disconnects;
  std::set<JobId> watched;
  // This node gets its full set with the answer to its registration.
  NodeId registering;

  // One event told what happens to all elements of an array: their moves have
  // none of their own.
  bool quietly = false;
  // Rows of each kind that history may forget with it, besides twice those that
  // it adds.
  size_t may_forget = 0;
  // The event that led to what follows; 0: none.
  uint64_t cause = 0;
  // The last one that made room: why those who waited for it are placed.
  uint64_t freed_by = 0;
  // By whom, and with which request; empty: the head's own decision.
  std::string principal;
  std::string request_id;

  // Rows to store.
  size_t row_count() const {
    size_t slot_rows = 0;
    for (const auto& [attempt, each] : slots) slot_rows += each.size();
    return nodes.size() + jobs.size() + attempts.size() + slot_rows +
           events.size() + arrays.size() + drivers.size() + requests.size() +
           rows.size();
  }
};

// The tables as the decision left them.  Lives within one call.
struct TableView {
  absl::Time now;
  const ClusterRecord& cluster;
  const NodeTable& nodes;
  const JobTable& jobs;
  const AttemptTable& attempts;
  const DriverTable& drivers;
};

// How large rows are whose table has no other way to know.
struct StoredSizes {
  std::vector<size_t> requests;
  std::vector<size_t> events;
};

// Puts every row that `change` touched into `transition`, but the cluster's and
// those that go.
StoredSizes PutRows(Change& change, const TableView& tables,
                    Transition& transition);

// What `node` is told: its place of every attempt that `change` touched.
std::vector<v1::DesiredPlace> DesiredOf(const NodeId& node,
                                        const Change& change,
                                        const TableView& tables);

// Adds the messages and wake-ups of `change` to `transition`; they hold values
// only.  `links` and `watchers` outlive them.
void AddEffects(Change change, const TableView& tables, NodeLinks& links,
                JobWatchers& watchers, Transition& transition);

}  // namespace cohort::head

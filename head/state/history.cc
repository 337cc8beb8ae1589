#include "head/state/history.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "head/store/records_codec.h"

namespace cohort::head {
namespace {

// Rows of an array that a person removes, in one transition.
constexpr size_t kForgetAtOnce = 1'000;

template <typename Record>
int64_t Bytes(const Record& record) {
  return static_cast<int64_t>(StoredBytes(record));
}

// A drain outlives its node.
bool MayGo(const NodeRecord& node) {
  return node.state == v1::NODE_STATE_DEAD && !node.node.has_drain();
}

template <typename Key>
void SortByTime(std::vector<typename HistoryLine<Key>::Loaded>& entries) {
  using Loaded = typename HistoryLine<Key>::Loaded;
  std::stable_sort(
      entries.begin(), entries.end(),
      [](const Loaded& a, const Loaded& b) { return a.at < b.at; });
}

}  // namespace

History::History(const HistoryLimits& limits, const Clock& clock,
                 JobTable& jobs, AttemptTable& attempts, NodeTable& nodes,
                 MetricsTable& metrics)
    : limits_(limits),
      jobs_(jobs),
      attempts_(attempts),
      nodes_(nodes),
      metrics_(metrics),
      job_line_(limits.jobs, clock),
      executor_line_(limits.executors, clock),
      event_line_(limits.events, clock),
      node_line_(limits.nodes, clock) {}

// ---- what there is ----

void History::Load(const std::vector<StoredEvent>& events) {
  LoadJobs();
  std::vector<HistoryLine<NodeId>::Loaded> nodes;
  for (const auto& [id, node] : nodes_.records()) {
    if (MayGo(node)) nodes.push_back({id, nodes_.ShownSince(id), Bytes(node)});
  }
  SortByTime<NodeId>(nodes);
  node_line_.Load(nodes);
  std::vector<HistoryLine<uint64_t>::Loaded> loaded;
  for (const StoredEvent& event : events) {
    loaded.push_back({event.number, event.at, event.bytes});
  }
  event_line_.Load(loaded);
}

void History::LoadJobs() {
  for (const auto& [sequence, id] : jobs_.by_sequence()) {
    const JobRecord& job = *jobs_.Find(id);
    if (HasEnded(job.row.state())) jobs_.SetBytes(id, BytesOf(job));
  }
  std::vector<HistoryLine<JobId>::Loaded> units;
  std::vector<HistoryLine<JobId>::Loaded> executors;
  for (const JobId& id : jobs_.TakeTouched()) {
    const std::optional<JobTable::Unit> unit = jobs_.EndedUnit(id);
    if (!unit.has_value()) continue;
    (&LineOf(id) == &job_line_ ? units : executors)
        .push_back({id, unit->ended_at, unit->bytes});
    CountElements(id, unit->jobs);
  }
  SortByTime<JobId>(units);
  job_line_.Load(units);
  SortByTime<JobId>(executors);
  executor_line_.Load(executors);
  for (const auto& [id, array] : jobs_.arrays().all()) {
    if (array.HasEnded() && array.size < array.elements) {
      jobs_.BeginToForget(id);
    }
  }
}

HistoryLine<JobId>& History::LineOf(const JobId& unit) {
  const JobRecord* const job = jobs_.Find(unit);
  return job != nullptr && job->spec->actor().executor() ? executor_line_
                                                         : job_line_;
}

int64_t History::BytesOf(const JobRecord& job) const {
  int64_t bytes = Bytes(job);
  if (!job.id.IsElement()) {
    bytes += Bytes(SpecRecord{.id = job.id, .spec = job.spec});
  }
  for (const AttemptId& attempt : attempts_.AllOf(job.id)) {
    bytes += Bytes(*attempts_.Find(attempt));
  }
  const MetricsRecord* const metrics = metrics_.Find(job.id);
  if (metrics != nullptr) bytes += Bytes(*metrics);
  return bytes;
}

size_t History::RowsOf(const JobId& job) const {
  return (job.IsElement() ? 1 : 2) + attempts_.AllOf(job).size() +
         (metrics_.Find(job) != nullptr ? 1 : 0);
}

// ---- what is new ----

void History::Note(const Change& change,
                   const std::vector<size_t>& event_bytes) {
  for (const JobId& id : change.jobs) NoteJob(id);
  for (const AttemptId& id : change.attempts) {
    const JobId& job = attempts_.Find(id)->job;
    if (!change.jobs.contains(job)) NoteJob(job);
  }
  NoteUnits();
  for (size_t i = 0; i < change.events.size(); ++i) {
    event_line_.Put(change.events[i].number(),
                    static_cast<int64_t>(event_bytes[i]));
  }
  new_events_ += change.events.size();
  for (const NodeId& id : change.nodes) {
    const NodeRecord* node = nodes_.Find(id);
    if (node != nullptr && MayGo(*node)) {
      node_line_.Put(id, Bytes(*node));
      ++new_nodes_;
    } else {
      node_line_.Remove(id);
    }
  }
}

void History::NoteJob(const JobId& id) {
  const JobRecord* job = jobs_.Find(id);
  if (job == nullptr || !HasEnded(job->row.state())) return;
  jobs_.SetBytes(id, BytesOf(*job));
  new_job_rows_ += RowsOf(id);
}

void History::NoteUnits() {
  std::vector<HistoryLine<JobId>::Loaded> ended;
  for (const JobId& id : jobs_.TakeTouched()) {
    const std::optional<JobTable::Unit> unit = jobs_.EndedUnit(id);
    CountElements(id, unit.has_value() ? unit->jobs : 0);
    if (unit.has_value()) {
      ended.push_back({id, unit->ended_at, unit->bytes});
    } else {
      job_line_.Remove(id);
      executor_line_.Remove(id);
    }
  }
  // Who others waited for until now ended before them.
  SortByTime<JobId>(ended);
  for (const auto& unit : ended) LineOf(unit.key).Put(unit.key, unit.bytes);
}

void History::CountElements(const JobId& unit, int64_t jobs) {
  const auto known = elements_.find(unit);
  if (known != elements_.end()) {
    element_count_ -= known->second;
    elements_.erase(known);
  }
  element_count_ += jobs;
  if (jobs > 0) elements_.emplace(unit, jobs);
}

// ---- what goes ----

void History::Trim(size_t more, Change& change) {
  TrimJobs(2 * std::exchange(new_job_rows_, 0) + more, change);
  TrimEvents(2 * std::exchange(new_events_, 0) + more, change);
  TrimNodes(2 * std::exchange(new_nodes_, 0) + more, change);
}

void History::TrimAttempts(const JobId& job, Change& change) {
  const std::vector<AttemptId> all = attempts_.AllOf(job);
  for (size_t i = 0; i + limits_.attempts_per_job_max < all.size(); ++i) {
    ForgetAttempt(all[i], change);
  }
}

std::optional<JobId> History::NextToGo() const {
  // One that others wait for meanwhile goes on later.
  const std::optional<JobId> going = jobs_.arrays().Going();
  if (going.has_value() && job_line_.Contains(*going)) return going;
  if (element_count_ > limits_.elements_max) return job_line_.Oldest();
  const std::optional<JobId> executor = executor_line_.Due();
  return executor.has_value() ? executor : job_line_.Due();
}

void History::TrimJobs(size_t rows, Change& change) {
  size_t gone = 0;
  while (gone < rows) {
    const std::optional<JobId> next = NextToGo();
    if (!next.has_value()) return;
    const bool is_array = jobs_.arrays().all().contains(*next);
    gone += is_array ? ForgetArray(*next, rows - gone, change)
                     : ForgetJob(*next, change);
    NoteUnits();
  }
}

void History::Forget(const JobId& unit, Change& change) {
  if (jobs_.arrays().all().contains(unit)) {
    ForgetArray(unit, kForgetAtOnce, change);
  } else {
    ForgetJob(unit, change);
  }
  NoteUnits();
}

size_t History::ForgetArray(const JobId& id, size_t rows, Change& change) {
  jobs_.BeginToForget(id);
  const ArrayTable::Entry& array = jobs_.arrays().all().at(id);
  size_t gone = 0;
  while (array.size > 0 && gone < rows) {
    const uint64_t last =
        array.first_sequence + static_cast<uint64_t>(array.size) - 1;
    gone += ForgetJob(JobId(jobs_.by_sequence().at(last)), change);
  }
  if (array.size > 0) return gone;
  jobs_.RemoveArray(id);
  job_line_.Trim(id);
  change.Delete<ArrayRecord>(id);
  change.Delete<SpecRecord>(id);
  return gone + 2;
}

size_t History::ForgetJob(const JobId& job, Change& change) {
  const size_t rows = RowsOf(job);
  for (const AttemptId& attempt : attempts_.AllOf(job)) {
    ForgetAttempt(attempt, change);
  }
  if (!job.IsElement()) {
    LineOf(job).Trim(job);
    change.Delete<SpecRecord>(job);
  }
  if (metrics_.Remove(job)) change.Delete<MetricsRecord>(IdBytes(job));
  jobs_.Remove(job);
  change.jobs.erase(job);
  change.Delete<JobRecord>(job);
  change.cluster = true;
  return rows;
}

void History::ForgetAttempt(const AttemptId& attempt, Change& change) {
  attempts_.Remove(attempt);
  change.attempts.erase(attempt);
  change.slots.erase(attempt);
  change.Delete<AttemptRecord>(attempt);
}

void History::TrimEvents(size_t rows, Change& change) {
  for (size_t i = 0; i < rows; ++i) {
    const std::optional<uint64_t> number = event_line_.Due();
    if (!number.has_value()) return;
    event_line_.Trim(*number);
    change.Delete<EventRecord>(*number);
  }
}

void History::TrimNodes(size_t rows, Change& change) {
  for (size_t i = 0; i < rows; ++i) {
    const std::optional<NodeId> node = node_line_.Due();
    if (!node.has_value()) return;
    // Of an attempt that goes on elsewhere, or that is an orphan.
    if (!nodes_.HeldOn(*node).empty() || !attempts_.OnNode(*node).empty()) {
      node_line_.Renew(*node);
      continue;
    }
    nodes_.Remove(*node);
    node_line_.Trim(*node);
    change.nodes.erase(*node);
    change.Delete<NodeRecord>(*node);
    change.cluster = true;
  }
}

std::vector<HistoryLevel> History::Levels() const {
  return {job_line_.Level("jobs"), executor_line_.Level("executors"),
          event_line_.Level("events"), node_line_.Level("nodes")};
}

}  // namespace cohort::head

#include "head/explain/wait_history.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/hash.h"
#include "head/store/records_codec.h"

namespace cohort::head {
namespace {

constexpr size_t kTextBytesMax = 1024;
constexpr size_t kFailuresMax = 12;
constexpr size_t kHoldersMax = 6;
constexpr size_t kTrimmedAtOnce = 1'000;

std::string Cut(std::string text) {
  if (text.size() > kTextBytesMax) text.resize(kTextBytesMax);
  return text;
}

WaitReasonRecord RecordOf(const Diagnosis& diagnosis) {
  WaitReasonRecord record;
  record.shape_key = ShapeKeyOf(diagnosis.request);
  record.shape = Cut(Describe(diagnosis.request));
  record.text = Cut(diagnosis.reason);
  record.num_workers = diagnosis.request.num_workers;
  const Census& census = diagnosis.census;
  record.nodes = census.nodes;
  record.nodes_that_fit = census.nodes_that_fit;
  record.workers_that_fit = census.workers_that_fit;
  record.never_fits = diagnosis.never_fits;
  for (const NodeFailure& failure : census.failures) {
    if (record.failures.size() == kFailuresMax) break;
    record.failures.push_back({.by = MisfitName(failure.by),
                               .what = failure.what,
                               .nodes = failure.nodes,
                               .nodes_in_all = failure.nodes_in_all,
                               .short_least = failure.short_least,
                               .short_median = failure.short_median,
                               .closest = failure.closest});
  }
  for (const Holder& holder : diagnosis.holders) {
    if (record.holders.size() == kHoldersMax) break;
    record.holders.push_back({.resource = holder.resource,
                              .job = holder.job,
                              .amount = holder.amount,
                              .nodes = holder.nodes});
  }
  return record;
}

// Whether they say the same, but for by how much and for who holds it.
bool SameReason(const WaitReasonRecord& a, const WaitReasonRecord& b) {
  const auto same = [](const WaitReasonRecord::Failure& x,
                       const WaitReasonRecord::Failure& y) {
    return x.by == y.by && x.what == y.what && x.nodes == y.nodes;
  };
  return a.never_fits == b.never_fits && a.nodes == b.nodes &&
         a.workers_that_fit == b.workers_that_fit &&
         std::equal(a.failures.begin(), a.failures.end(), b.failures.begin(),
                    b.failures.end(), same);
}

bool Holds(const WaitReasonRecord& record) {
  return record.until == absl::InfinitePast();
}

int64_t BytesOf(const WaitReasonRecord& record) {
  return static_cast<int64_t>(StoredBytes(record));
}

}  // namespace

std::string ShapeKeyOf(const GangRequest& request) {
  std::string text = absl::StrCat(Describe(request), "\n", request.fault, "\n",
                                  request.topology.level, "\n");
  for (const Toleration& toleration : request.tolerations) {
    absl::StrAppend(&text, toleration.ToString(), "\n");
  }
  return std::string(Sha256::Of(text).bytes().substr(0, 16));
}

WaitHistory::WaitHistory(Limits limits, HistoryCaps caps, const Clock& clock,
                         std::vector<WaitReasonRecord> records)
    : limits_(limits), clock_(clock), kept_(caps, clock) {
  std::vector<HistoryLine<uint64_t>::Loaded> kept;
  for (WaitReasonRecord& record : records) {
    if (Holds(record)) unmet_.insert(record.number);
    kept.push_back({record.number, Holds(record) ? clock_.Wall() : record.until,
                    BytesOf(record)});
    Insert(std::move(record));
  }
  std::stable_sort(kept.begin(), kept.end(),
                   [](const auto& a, const auto& b) { return a.at < b.at; });
  kept_.Load(kept);
}

void WaitHistory::Insert(WaitReasonRecord record) {
  next_number_ = std::max(next_number_, record.number + 1);
  by_shape_[record.shape_key].insert(record.number);
  records_.emplace(record.number, std::move(record));
}

void WaitHistory::Drop(uint64_t number) {
  const auto found = records_.find(number);
  const auto shape = by_shape_.find(found->second.shape_key);
  shape->second.erase(number);
  if (shape->second.empty()) by_shape_.erase(shape);
  kept_.Trim(number);
  unmet_.erase(number);
  records_.erase(found);
}

void WaitHistory::Look(const WaitingLine& line, const NodeTable& nodes,
                       const AttemptTable& attempts, Transition& transition) {
  CloseThoseGone(line, transition);
  int diagnoses = 0;
  for (int step = 0; step < limits_.steps_per_look; ++step) {
    const GangRequest* const next =
        line.NextRefused(at_.has_value() ? &*at_ : nullptr);
    if (next == nullptr) {
      at_.reset();
      // Round: what nobody waits for any more was over before the restart.
      while (!unmet_.empty() && !line.Next().has_value()) {
        Close(*unmet_.begin(), transition);
      }
      break;
    }
    if (!LookAt(*next, nodes, attempts, diagnoses, transition)) break;
    at_ = *next;
  }
  Trim(transition);
}

bool WaitHistory::LookAt(const GangRequest& request, const NodeTable& nodes,
                         const AttemptTable& attempts, int& diagnoses,
                         Transition& transition) {
  const absl::Duration now = clock_.Monotonic();
  const auto [place, fresh] = open_.try_emplace(request);
  Open& open = place->second;
  const uint64_t version = nodes.index().version();
  if (!fresh &&
      (open.version == version || now - open.looked_at < limits_.pace)) {
    return true;
  }
  if (diagnoses == limits_.diagnoses_per_look) {
    if (fresh) open_.erase(place);
    return false;
  }
  ++diagnoses;
  open.version = version;
  open.looked_at = now;
  DiagnosisLimits limits;
  limits.holders_max = kHoldersMax;
  limits.leases_max = limits_.leases_max;
  const Diagnosis diagnosis = Diagnose(nodes, attempts, request, limits);
  if (!diagnosis.fits) Note(request, diagnosis, open, transition);
  return true;
}

void WaitHistory::Note(const GangRequest& request, const Diagnosis& diagnosis,
                       Open& open, Transition& transition) {
  WaitReasonRecord record = RecordOf(diagnosis);
  if (open.number == 0) {
    // It may have waited before a restart too.
    const auto known = by_shape_.find(ShapeKeyOf(request));
    if (known != by_shape_.end()) {
      const uint64_t last = *known->second.rbegin();
      if (unmet_.erase(last) > 0) open.number = last;
    }
  }
  const auto last = records_.find(open.number);
  if (last != records_.end() && Holds(last->second)) {
    if (SameReason(last->second, record)) return;
    Close(open.number, transition);
  }
  // As people are shown it, so that they can ask for it.
  record.since = absl::FromUnixMillis(absl::ToUnixMillis(clock_.Wall()));
  record.number = next_number_++;
  open.number = record.number;
  transition.Put(record);
  kept_.Put(record.number, BytesOf(record));
  Insert(std::move(record));
}

void WaitHistory::CloseThoseGone(const WaitingLine& line,
                                 Transition& transition) {
  auto at =
      closing_at_.has_value() ? open_.upper_bound(*closing_at_) : open_.begin();
  for (int step = 0; step < limits_.steps_per_look && at != open_.end();
       ++step) {
    if (line.Waits(at->first)) {
      ++at;
    } else {
      Close(at->second.number, transition);
      at = open_.erase(at);
    }
  }
  closing_at_.reset();
  if (at != open_.end() && at != open_.begin()) {
    closing_at_ = std::prev(at)->first;
  }
}

void WaitHistory::Close(uint64_t number, Transition& transition) {
  unmet_.erase(number);
  const auto found = records_.find(number);
  if (found == records_.end() || !Holds(found->second)) return;
  found->second.until = clock_.Wall();
  transition.Put(found->second);
  kept_.Put(number, BytesOf(found->second));
  kept_.Renew(number);
}

void WaitHistory::Trim(Transition& transition) {
  for (size_t i = 0; i < kTrimmedAtOnce; ++i) {
    const std::optional<uint64_t> number = kept_.Due();
    if (!number.has_value()) return;
    if (Holds(records_.at(*number)) && kept_.IsOld(*number)) {
      kept_.Renew(*number);
      continue;
    }
    transition.Delete<WaitReasonRecord>(*number);
    Drop(*number);
  }
}

const WaitReasonRecord* WaitHistory::At(const std::string& shape_key,
                                        absl::Time at) const {
  const std::vector<const WaitReasonRecord*> held =
      Between(shape_key, at, at, 1);
  return held.empty() ? nullptr : held.front();
}

std::vector<const WaitReasonRecord*> WaitHistory::Between(
    const std::string& shape_key, absl::Time from, absl::Time to,
    size_t most) const {
  std::vector<const WaitReasonRecord*> held;
  const auto shape = by_shape_.find(shape_key);
  if (shape == by_shape_.end()) return held;
  for (auto number = shape->second.rbegin();
       number != shape->second.rend() && held.size() < most; ++number) {
    const WaitReasonRecord& record = records_.at(*number);
    if (record.since > to) continue;
    if (!Holds(record) && record.until < from) break;
    held.push_back(&record);
  }
  std::reverse(held.begin(), held.end());
  return held;
}

}  // namespace cohort::head

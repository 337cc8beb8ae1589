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
constexpr int kFailuresMax = 12;
constexpr size_t kHoldersMax = 6;
constexpr size_t kTrimmedAtOnce = 1'000;

// As much of it as is kept.
void Cut(v1::Blocker& blocker) {
  for (std::string* const text :
       {blocker.mutable_text(), blocker.mutable_shape()}) {
    if (text->size() > kTextBytesMax) text->resize(kTextBytesMax);
  }
  const auto cut = [](auto* all, int most) {
    if (all->size() > most) all->DeleteSubrange(most, all->size() - most);
  };
  cut(blocker.mutable_failures(), kFailuresMax);
  cut(blocker.mutable_holders(), static_cast<int>(kHoldersMax));
}

// Whether they say the same, but for by how much and for who holds it.
bool SameReason(const v1::Blocker& a, const v1::Blocker& b) {
  const auto same = [](const v1::NodeFailure& x, const v1::NodeFailure& y) {
    return x.by() == y.by() && x.what() == y.what() && x.nodes() == y.nodes();
  };
  return a.never_fits() == b.never_fits() && a.nodes() == b.nodes() &&
         a.workers_that_fit() == b.workers_that_fit() &&
         std::equal(a.failures().begin(), a.failures().end(),
                    b.failures().begin(), b.failures().end(), same);
}

bool Holds(const WaitReasonRecord& record) {
  return record.reason.until_us() == 0;
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
    const absl::Time at = Holds(record)
                              ? clock_.Wall()
                              : absl::FromUnixMicros(record.reason.until_us());
    kept.push_back({record.number, at, BytesOf(record)});
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
  limits.find_remedies = false;
  Diagnosis diagnosis = Diagnose(nodes, attempts, request, limits);
  if (!diagnosis.fits) {
    Note(request, std::move(diagnosis.blocker), open, transition);
  }
  return true;
}

void WaitHistory::Note(const GangRequest& request, v1::Blocker blocker,
                       Open& open, Transition& transition) {
  Cut(blocker);
  WaitReasonRecord record{.shape_key = ShapeKeyOf(request), .reason = {}};
  if (open.number == 0) {
    // It may have waited before a restart too.
    const auto known = by_shape_.find(record.shape_key);
    if (known != by_shape_.end()) {
      const uint64_t last = *known->second.rbegin();
      if (unmet_.erase(last) > 0) open.number = last;
    }
  }
  const auto last = records_.find(open.number);
  if (last != records_.end() && Holds(last->second)) {
    if (SameReason(last->second.reason.blocker(), blocker)) return;
    Close(open.number, transition);
  }
  // As people are shown it, so that they can ask for it.
  record.reason.set_since_us(1'000 * absl::ToUnixMillis(clock_.Wall()));
  *record.reason.mutable_blocker() = std::move(blocker);
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
  found->second.reason.set_until_us(absl::ToUnixMicros(clock_.Wall()));
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

std::vector<const v1::WaitReason*> WaitHistory::Between(
    const std::string& shape_key, absl::Time from, absl::Time to) const {
  std::vector<const v1::WaitReason*> held;
  const auto shape = by_shape_.find(shape_key);
  if (shape == by_shape_.end()) return held;
  for (auto number = shape->second.rbegin(); number != shape->second.rend();
       ++number) {
    const WaitReasonRecord& record = records_.at(*number);
    if (record.reason.since_us() > absl::ToUnixMicros(to)) continue;
    if (!Holds(record) && record.reason.until_us() < absl::ToUnixMicros(from)) {
      break;
    }
    held.push_back(&record.reason);
  }
  std::reverse(held.begin(), held.end());
  return held;
}

}  // namespace cohort::head

#include "head/explain/wait_history.h"

#include <algorithm>
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
  return record.reason().until_us() == 0;
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
  // Older rows have keys without it.
  if (request.ranks_per_node_max != kRanksPerNodeMax) {
    absl::StrAppend(&text, request.ranks_per_node_max, "\n");
  }
  return std::string(Sha256::Of(text).bytes().substr(0, 16));
}

WaitHistory::WaitHistory(Limits limits, HistoryCaps caps, const Clock& clock,
                         std::vector<WaitReasonRecord> records)
    : limits_(limits), clock_(clock), kept_(caps, clock) {
  std::vector<HistoryLine<Key>::Loaded> kept;
  for (WaitReasonRecord& record : records) {
    const bool holds = Holds(record);
    if (holds) open_.try_emplace(record.shape_key());
    kept.push_back({{record.shape_key(), record.number()},
                    holds ? clock_.Wall()
                          : absl::FromUnixMicros(record.reason().until_us()),
                    BytesOf(record)});
    next_number_ = std::max(next_number_, record.number() + 1);
    shapes_[record.shape_key()].emplace(record.number(), std::move(record));
  }
  std::stable_sort(kept.begin(), kept.end(),
                   [](const auto& a, const auto& b) { return a.at < b.at; });
  kept_.Load(kept);
}

void WaitHistory::Look(const WaitingLine& line, const NodeTable& nodes,
                       const AttemptTable& attempts, Transition& transition) {
  int diagnoses_left = limits_.diagnoses_per_look;
  for (int step = 0; step < limits_.steps_per_look; ++step) {
    const GangRequest* const next =
        line.NextRefused(at_.has_value() ? &*at_ : nullptr);
    if (next == nullptr) {
      at_.reset();
      went_round_ = true;
      break;
    }
    if (!LookAt(*next, nodes, attempts, diagnoses_left, transition)) break;
    at_ = *next;
  }
  CloseThoseGone(line, transition);
  Trim(transition);
}

bool WaitHistory::LookAt(const GangRequest& request, const NodeTable& nodes,
                         const AttemptTable& attempts, int& diagnoses_left,
                         Transition& transition) {
  const std::string key = ShapeKeyOf(request);
  const absl::Duration now = clock_.Monotonic();
  const uint64_t version = nodes.index().version();
  const auto known = open_.find(key);
  if (known != open_.end() && known->second.request.has_value() &&
      (known->second.version == version ||
       now - known->second.looked_at < limits_.pace)) {
    return true;
  }
  if (diagnoses_left-- == 0) return false;
  open_[key] = {.request = request, .version = version, .looked_at = now};
  DiagnosisLimits limits;
  limits.holders_max = kHoldersMax;
  limits.leases_max = limits_.leases_max;
  Diagnosis diagnosis = Diagnose(nodes, attempts, request, limits, nullptr);
  if (!diagnosis.fits) Note(key, std::move(diagnosis.blocker), transition);
  return true;
}

void WaitHistory::Note(const std::string& shape_key, v1::Blocker blocker,
                       Transition& transition) {
  Cut(blocker);
  if (WaitReasonRecord* const last = Holding(shape_key)) {
    if (SameReason(last->reason().blocker(), blocker)) return;
    Close(*last, transition);
  }
  WaitReasonRecord record;
  record.set_number(next_number_++);
  record.set_shape_key(shape_key);
  // As people are shown it, so that they can ask for it.
  record.mutable_reason()->set_since_us(1'000 *
                                        absl::ToUnixMillis(clock_.Wall()));
  *record.mutable_reason()->mutable_blocker() = std::move(blocker);
  transition.Put(record);
  kept_.Put({shape_key, record.number()}, BytesOf(record));
  shapes_[shape_key].emplace(record.number(), std::move(record));
}

void WaitHistory::CloseThoseGone(const WaitingLine& line,
                                 Transition& transition) {
  auto at = open_.upper_bound(closing_at_);
  for (int step = 0; step < limits_.steps_per_look && at != open_.end();
       ++step) {
    closing_at_ = at->first;
    const std::optional<GangRequest>& request = at->second.request;
    // What was not met in a whole round was over before the restart.
    const bool waits = request.has_value()
                           ? line.Waits(*request)
                           : !went_round_ || line.Next().has_value();
    if (waits) {
      ++at;
      continue;
    }
    WaitReasonRecord* const last = Holding(at->first);
    if (last != nullptr) Close(*last, transition);
    at = open_.erase(at);
  }
  if (at == open_.end()) closing_at_.clear();
}

WaitReasonRecord* WaitHistory::Holding(const std::string& shape_key) {
  const auto shape = shapes_.find(shape_key);
  if (shape == shapes_.end()) return nullptr;
  WaitReasonRecord& last = shape->second.rbegin()->second;
  return Holds(last) ? &last : nullptr;
}

void WaitHistory::Close(WaitReasonRecord& record, Transition& transition) {
  record.mutable_reason()->set_until_us(absl::ToUnixMicros(clock_.Wall()));
  transition.Put(record);
  const Key key(record.shape_key(), record.number());
  kept_.Put(key, BytesOf(record));
  kept_.Renew(key);
}

void WaitHistory::Trim(Transition& transition) {
  for (size_t i = 0; i < kTrimmedAtOnce; ++i) {
    const std::optional<Key> key = kept_.Due();
    if (!key.has_value()) return;
    const auto shape = shapes_.find(key->first);
    if (Holds(shape->second.at(key->second)) && kept_.IsOld(*key)) {
      kept_.Renew(*key);
      continue;
    }
    transition.Delete<WaitReasonRecord>(key->second);
    kept_.Trim(*key);
    shape->second.erase(key->second);
    if (shape->second.empty()) shapes_.erase(shape);
  }
}

std::vector<const v1::WaitReason*> WaitHistory::Between(
    const std::string& shape_key, absl::Time from, absl::Time to) const {
  std::vector<const v1::WaitReason*> held;
  const auto shape = shapes_.find(shape_key);
  if (shape == shapes_.end()) return held;
  for (const auto& [number, record] : shape->second) {
    if (record.reason().since_us() > absl::ToUnixMicros(to)) continue;
    if (!Holds(record) &&
        record.reason().until_us() < absl::ToUnixMicros(from)) {
      continue;
    }
    held.push_back(&record.reason());
  }
  return held;
}

}  // namespace cohort::head

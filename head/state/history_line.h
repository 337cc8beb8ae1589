#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"

#include "common/clock.h"
#include "head/state/history_limits.h"

namespace cohort::head {

// How much of a kind is remembered, for metrics.
struct HistoryLevel {
  const char* kind = "";
  int64_t count = 0;
  int64_t bytes = 0;
  uint64_t trimmed = 0;  // since the state was loaded
  HistoryCaps caps;
};

// What is remembered of one kind, oldest first, against its caps (HI-1).
//
// Age is counted on the monotonic clock, so no step of the wall clock changes
// it while the head runs.  Of what was there before it is counted by wall
// times, but of the time between two neighbours at most a thirtieth of age_max:
// a wall clock that was wrong then, or is now, makes nothing old by itself.
// Keys only: the rows are the owner's, who removes what is due.
// Thread-compatible.
template <typename Key>
class HistoryLine {
 public:
  struct Loaded {
    Key key;
    absl::Time at;
    int64_t bytes = 0;
  };

  HistoryLine(HistoryCaps caps, const Clock& clock)
      : caps_(caps), clock_(clock) {}

  // What was stored before this start, the oldest first.  Once, before Put.
  void Load(const std::vector<Loaded>& entries) {
    absl::Duration since = clock_.Monotonic();
    absl::Time later = clock_.Wall();
    const absl::Duration gap_max =
        caps_.age_begins_anew ? absl::ZeroDuration() : caps_.age_max / 30;
    next_ = entries.size();
    uint64_t place = next_;
    for (auto it = entries.rbegin(); it != entries.rend(); ++it) {
      since -= std::clamp(later - it->at, absl::ZeroDuration(), gap_max);
      later = it->at;
      Insert(--place, it->key, since, it->bytes);
    }
  }

  // The newest; one that is there keeps its place and has `bytes` now.
  void Put(const Key& key, int64_t bytes) {
    const auto known = places_.find(key);
    if (known == places_.end()) {
      return Insert(next_++, key, clock_.Monotonic(), bytes);
    }
    Entry& entry = entries_.at(known->second);
    bytes_ += bytes - entry.bytes;
    entry.bytes = bytes;
  }

  // It is not history (any more); nothing when it is not here.
  void Remove(const Key& key) {
    const auto known = places_.find(key);
    if (known == places_.end()) return;
    const auto entry = entries_.find(known->second);
    bytes_ -= entry->second.bytes;
    entries_.erase(entry);
    places_.erase(known);
  }
  // Its owner forgets it.
  void Trim(const Key& key) {
    Remove(key);
    ++trimmed_;
  }
  // From now on the newest.  REQUIRES: it is here.
  void Renew(const Key& key) {
    const int64_t bytes = entries_.at(places_.at(key)).bytes;
    Remove(key);
    Put(key, bytes);
  }

  bool Contains(const Key& key) const { return places_.contains(key); }
  // The oldest one, when a cap says that it goes.
  std::optional<Key> Due() const {
    if (entries_.empty()) return std::nullopt;
    const Entry& oldest = entries_.begin()->second;
    const absl::Duration age = clock_.Monotonic() - oldest.since;
    if (age < caps_.age_min) return std::nullopt;
    if (count() <= caps_.count_max && bytes_ <= caps_.bytes_max &&
        age < caps_.age_max) {
      return std::nullopt;
    }
    return oldest.key;
  }
  // Whether its age alone says so.
  bool IsOld(const Key& key) const {
    return clock_.Monotonic() - entries_.at(places_.at(key)).since >=
           caps_.age_max;
  }
  std::optional<Key> Oldest() const {
    if (entries_.empty()) return std::nullopt;
    return entries_.begin()->second.key;
  }

  int64_t count() const { return static_cast<int64_t>(entries_.size()); }
  int64_t bytes() const { return bytes_; }
  HistoryLevel Level(const char* kind) const {
    return {.kind = kind,
            .count = count(),
            .bytes = bytes_,
            .trimmed = trimmed_,
            .caps = caps_};
  }

 private:
  struct Entry {
    Key key;
    absl::Duration since;
    int64_t bytes = 0;
  };

  void Insert(uint64_t place, const Key& key, absl::Duration since,
              int64_t bytes) {
    entries_.emplace(place, Entry{key, since, bytes});
    places_.emplace(key, place);
    bytes_ += bytes;
  }

  const HistoryCaps caps_;
  const Clock& clock_;
  std::map<uint64_t, Entry> entries_;
  absl::flat_hash_map<Key, uint64_t> places_;
  uint64_t next_ = 0;
  int64_t bytes_ = 0;
  uint64_t trimmed_ = 0;
};

}  // namespace cohort::head

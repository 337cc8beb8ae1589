#pragma once

#include <cstddef>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace cohort::head {

// What is due when, each key once: on the monotonic clock, or by wall time.
// Thread-compatible.
template <typename Key, typename Time = absl::Duration>
class DeadlineQueue {
 public:
  // Replaces an earlier time.
  void Set(const Key& key, Time due) {
    Erase(key);
    due_.emplace(key, due);
    order_.emplace(due, key);
  }
  // Nothing when it is not here.
  void Erase(const Key& key) {
    const auto found = due_.find(key);
    if (found == due_.end()) return;
    order_.erase({found->second, key});
    due_.erase(found);
  }
  // Takes out what is due by `now`, at most `most`, in the order of times.
  std::vector<Key> TakeDue(Time now,
                           size_t most = std::numeric_limits<size_t>::max()) {
    std::vector<Key> due;
    while (!order_.empty() && order_.begin()->first <= now &&
           due.size() < most) {
      due.push_back(order_.begin()->second);
      Erase(due.back());
    }
    return due;
  }

  bool contains(const Key& key) const { return due_.contains(key); }
  size_t size() const { return due_.size(); }
  const std::map<Key, Time>& all() const { return due_; }

 private:
  std::map<Key, Time> due_;
  std::set<std::pair<Time, Key>> order_;
};

}  // namespace cohort::head

#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace cohort::rpc {

// First in, first out, and next to nothing while it is empty: a std::deque has
// half a KiB then, which thousands of idle streams have twice each.
// Thread-compatible.
template <typename T>
class Fifo {
 public:
  bool empty() const { return taken_ == items_.size(); }
  size_t size() const { return items_.size() - taken_; }

  void Push(T item) { items_.push_back(std::move(item)); }

  // REQUIRES: !empty().
  T Pop() {
    T item = std::move(items_[taken_++]);
    if (empty()) {
      Clear();
    } else if (taken_ >= kCompactMin && taken_ > items_.size() / 2) {
      // Each item is moved once for at least one that was taken.
      items_.erase(items_.begin(),
                   items_.begin() + static_cast<std::ptrdiff_t>(taken_));
      taken_ = 0;
    }
    return item;
  }

  void Clear() {
    taken_ = 0;
    // What one burst needed is not kept for the next.
    if (items_.capacity() > kCompactMin) {
      items_ = std::vector<T>();
    } else {
      items_.clear();
    }
  }

 private:
  static constexpr size_t kCompactMin = 16;

  std::vector<T> items_;
  size_t taken_ = 0;  // of items_, at its beginning
};

}  // namespace cohort::rpc

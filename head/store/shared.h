#pragma once

#include <memory>
#include <utility>

namespace cohort::head {

// A message that many records hold as one: the elements of an array share their
// spec, so that 100,000 of them cost one.
//
// Reads as a pointer to const and compares by value.  Thread-compatible, and so
// are all that share with it, together.
template <typename T>
class Shared {
 public:
  Shared() = default;
  Shared(T value)  // NOLINT(google-explicit-constructor): it is one
      : value_(std::make_shared<T>(std::move(value))) {}

  const T& operator*() const { return value_ == nullptr ? kEmpty : *value_; }
  const T* operator->() const { return &**this; }

  // To be changed: a copy first, when others hold it too.
  T& Own() {
    if (value_ == nullptr || value_.use_count() != 1) {
      value_ = std::make_shared<T>(**this);
    }
    return *value_;
  }
  // Whether both hold the very same value.
  bool IsSharedWith(const Shared& other) const { return &**this == &*other; }

  friend bool operator==(const Shared& a, const Shared& b) {
    return a.IsSharedWith(b) || *a == *b;
  }

 private:
  static inline const T kEmpty{};

  std::shared_ptr<T> value_;  // null: kEmpty
};

}  // namespace cohort::head

#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace cohort::trainer::cuda {

// Told what is about to be called, a literal: a call of a driver may never come
// back, and then the thread's watcher says which it was.
using BeforeCall = absl::FunctionRef<void(const char* call)>;
// For who does not watch.
inline void Unwatched(const char*) {}

// How to come by a library's functions: they were found before, or whoever
// needs them looks when it is ready to hang in what that calls (dlopen runs a
// library's own code, cuInit wakes every GPU).  Immutable, copied freely.
template <typename Functions>
class Lookup {
 public:
  using Answer = absl::StatusOr<std::shared_ptr<const Functions>>;

  // What was found, or why nothing was.
  template <std::convertible_to<Answer> Found>
  // NOLINTNEXTLINE(google-explicit-constructor): an answer is a lookup.
  Lookup(Found found)
      : find_([answer = Answer(std::move(found))](BeforeCall) {
          return answer;
        }) {}
  // Looks by `find`, each time that it is asked.
  static Lookup By(std::function<Answer(BeforeCall)> find) {
    Lookup lookup(Answer(nullptr));
    lookup.find_ = std::move(find);
    return lookup;
  }

  Answer Find(BeforeCall before) const { return find_(before); }

 private:
  std::function<Answer(BeforeCall)> find_;
};

}  // namespace cohort::trainer::cuda

#pragma once

#include <functional>
#include <initializer_list>
#include <string>

#include "absl/status/statusor.h"

namespace cohort {

// A library that is opened at run time, such as a driver's, so that a program
// is built and runs without it.  Never closed: drivers keep threads and
// handlers in the process.
class DynamicLibrary {
 public:
  // NOT_FOUND in the loader's words.  Runs the library's own code.
  static absl::StatusOr<DynamicLibrary> Open(const std::string& path);

  // Sets `function` to the first of `symbols` that is there: newer names first.
  // False when none is; `function` is null then.
  template <typename R, typename... Args>
  bool Bind(std::initializer_list<const char*> symbols,
            R (*&function)(Args...)) const {
    for (const char* const symbol : symbols) {
      function = reinterpret_cast<R (*)(Args...)>(Find(symbol));
      if (function != nullptr) return true;
    }
    return false;
  }
  template <typename R, typename... Args>
  bool Bind(const char* symbol, std::function<R(Args...)>& function) const {
    R (*found)(Args...) = nullptr;
    if (!Bind({symbol}, found)) return false;
    function = found;
    return true;
  }

 private:
  explicit DynamicLibrary(void* handle) : handle_(handle) {}
  // Null when it is not there.
  void* Find(const char* symbol) const;

  void* handle_;
};

}  // namespace cohort

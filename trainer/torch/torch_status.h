#pragma once

#include <exception>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cohort::torch_adapter {

// Runs `body`, which returns a Status and may throw as LibTorch does: what it
// throws becomes INTERNAL with the first line of its text (the rest is a
// backtrace).
template <typename Body>
absl::Status CatchTorch(Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const std::exception& thrown) {
    const std::string text = thrown.what();
    return absl::InternalError(
        absl::StrCat("LibTorch: ", text.substr(0, text.find('\n'))));
  }
}

}  // namespace cohort::torch_adapter

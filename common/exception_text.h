#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

// What a rank raised, as ExitStatus.detail has it: a line for reasons,
//
//   RuntimeError: boom (raised at 2026-11-26T18:20:31.123456Z)
//
// with the time where it is known, and then the traceback, if any.
namespace cohort {

// "" or " (raised at ...)"
std::string RaisedText(std::optional<absl::Time> at);

// What the first line says; none when it says nothing of it.
std::optional<absl::Time> RaisedAt(absl::string_view detail);

// Without the line break.
absl::string_view FirstLine(absl::string_view text);

}  // namespace cohort

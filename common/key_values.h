#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort {

// Reads "k=v,k2=v2", as flags take resources and labels.  A value may be empty
// and may hold "="; spaces around keys and values go.  Empty text is an empty
// map.  InvalidArgument, naming the part, for one without "=", without a key,
// or with a key seen before.
absl::StatusOr<std::map<std::string, std::string>> ParseKeyValues(
    absl::string_view text);

}  // namespace cohort

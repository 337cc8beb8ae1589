#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace cohort::head {

// What programs of providers write, which nobody has checked.
using Json = nlohmann::json;

inline constexpr size_t kProviderIdBytesMax = 256;

// An object; what is none, and what is not JSON at all, is refused.
absl::StatusOr<Json> ParseJsonObject(const std::string& text);
// A text of an object, on one line; empty: it has none.
absl::StatusOr<std::string> TextOf(const Json& object, const char* key,
                                   size_t bytes_max);
// `reason`, cut and on one line; empty: it says none.
std::string ReasonOf(const Json& object);
// Seconds from now, a year at most; nothing: the value is not possible.
std::optional<absl::Duration> NoticeOf(const Json& object, const char* key);

}  // namespace cohort::head

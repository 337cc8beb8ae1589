#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// Sizes in bytes as people write them.
namespace cohort {

// Reads "64GiB", "512MB", "1.5G", "1k" or a plain number of bytes.  k, M, G, T,
// P count in thousands, Ki, Mi, Gi, Ti, Pi in 1024s, in either case, with or
// without B.  InvalidArgument, naming the text and what is accepted, otherwise
// and beyond int64.
absl::StatusOr<int64_t> ParseSize(absl::string_view text);

enum class SizeRounding : uint8_t {
  kNearest,
  kDown,  // "at most so much is there"
  kUp,    // "so much is enough"
  kNone,  // ParseSize reads the same again
};

// "64GiB", "1.5GiB", "512B": the largest binary unit, at most one decimal;
// unrounded the largest in which that is exact.  REQUIRES: bytes >= 0.
std::string SizeToText(int64_t bytes,
                       SizeRounding rounding = SizeRounding::kNearest);

}  // namespace cohort

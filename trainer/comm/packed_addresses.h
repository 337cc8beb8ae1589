#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort::trainer {

// What a rank tells all others of a large gang: an address for each, 136 bytes
// in Gloo, of which only a number differs.  Packed, one of 1,000 ranks tells
// 3 KB instead of 136 KB, so that all together stay within what a gang may
// exchange (6 MiB).
//
// Records of `data` are alike: `count` of equal size, or it is packed as one.
std::string PackAddresses(const std::vector<char>& data, size_t count);
// INVALID_ARGUMENT when nothing was packed to that.
absl::StatusOr<std::vector<char>> UnpackAddresses(absl::string_view packed);

}  // namespace cohort::trainer

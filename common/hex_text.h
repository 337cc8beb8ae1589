#pragma once

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"

namespace cohort {

// The bytes that an even number of hex digits, in either case, stands for.
// (Abseil's HexStringToBytes has no form that Debian 12 and 13 both have and
// neither deprecates.)  REQUIRES: nothing but hex digits.
inline std::string HexToBytes(absl::string_view hex) {
  const auto digit = [](char c) {
    return absl::ascii_isdigit(c) ? c - '0' : absl::ascii_tolower(c) - 'a' + 10;
  };
  std::string bytes;
  bytes.reserve(hex.size() / 2);
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1])));
  }
  return bytes;
}

}  // namespace cohort

#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace cohort {

// The tmpfs directory of the node with that id, in hex, on its machine: short,
// because unix sockets live below it.
inline std::string NodeRuntimePath(absl::string_view node_hex) {
  constexpr size_t kDigits = 12;
  return absl::StrCat("/dev/shm/cohort-", node_hex.substr(0, kDigits));
}

}  // namespace cohort

#include "common/link_target.h"

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace cohort {

bool StaysInTree(absl::string_view target, size_t depth) {
  if (target.empty() || absl::StartsWith(target, "/")) return false;
  bool is_start = true;
  for (const absl::string_view part : absl::StrSplit(target, '/')) {
    if (part.empty() || part == ".") continue;
    if (part != "..") {
      is_start = false;
    } else if (!is_start || depth-- == 0) {
      return false;
    }
  }
  return true;
}

}  // namespace cohort

#pragma once

#include <compare>
#include <cstdint>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"

#include "common/strong_id.h"

namespace cohort {

// Names a process: an incarnation of a slot of an attempt.  Incarnations come
// from a counter of the job and are begun at most once.  A value.
struct ProcessId {
  AttemptId attempt;
  int slot = 0;
  uint64_t incarnation = 0;

  // "<attempt>.<slot>.<incarnation>".
  std::string ToText() const {
    return absl::StrCat(attempt.ToHex(), ".", slot, ".", incarnation);
  }

  friend auto operator<=>(const ProcessId&, const ProcessId&) = default;
  friend std::ostream& operator<<(std::ostream& out, const ProcessId& id) {
    return out << id.ToText();
  }
};

}  // namespace cohort

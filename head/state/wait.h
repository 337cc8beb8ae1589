#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"

#include "head/store/records.h"

namespace cohort::head {

// A change that would let a job start, in words.
struct NamedChange {
  std::string kind;         // "FEWER_WORKERS"
  bool of_request = false;  // false: of the cluster
  std::string text;         // "6 workers instead of 8"
  std::string how;          // "--num-workers 6", "cohort undrain n2", or empty

  friend bool operator==(const NamedChange&, const NamedChange&) = default;
};

// What a PENDING job waits for, but room: the one thing that phases, reasons,
// explanations and events tell of.  Since when is in its phases.
struct Wait {
  WaitKind kind = v1::WAIT_KIND_WAITS;
  std::string text;
  // When it ends by itself.
  absl::Time until = absl::InfiniteFuture();
  // Each lifts it by itself; none: no change that is known does.
  std::vector<NamedChange> lifted_by;
};

// "a", "a and b", "a, b and c", "a, b, c and 2 more".
std::string NamesText(const std::vector<std::string>& names);
// "rank 3", "ranks 1 to 4", "ranks 1 and 4".  REQUIRES: some, ascending.
std::string RanksText(const std::vector<int>& ranks);

}  // namespace cohort::head

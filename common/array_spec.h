#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort {

// Which elements an array of jobs has, and how many may run at once.
//
//   0-99        from 0 to 99
//   0-99:10     every tenth of them: 0, 10, ... 90
//   0,3,7-9     these
//   0-99%8      at most 8 at once
//
// as Slurm writes it.  A value.
struct ArraySpec {
  static constexpr size_t kElementsMax = 100'000;

  std::vector<uint32_t> indices;  // ascending, no two equal, at least one
  std::optional<int> at_once;     // none: any number

  // InvalidArgument, with the column and what was expected there, or more than
  // kElementsMax elements.
  static absl::StatusOr<ArraySpec> Parse(absl::string_view text);

  friend bool operator==(const ArraySpec&, const ArraySpec&) = default;
};

}  // namespace cohort

#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort {

// Values that placement compares and orders; rpc/wire_values.h makes messages
// of them and back.

// What keeps jobs off a node unless they tolerate it: K or K=V.
struct Taint {
  std::string key;
  std::string value;  // empty: none

  static constexpr size_t kKeyBytesMax = 64;
  static constexpr size_t kValueBytesMax = 256;

  // Reads "K" or "K=V".  InvalidArgument, with the column and what was
  // expected there.
  static absl::StatusOr<Taint> Parse(absl::string_view text);
  // As Parse reads it.
  std::string ToString() const;

  friend bool operator==(const Taint&, const Taint&) = default;
  friend auto operator<=>(const Taint&, const Taint&) = default;
};

// K tolerates taints of that key, whatever their value; K=V only that one.
struct Toleration {
  std::string key;
  std::optional<std::string> value;

  // Reads "K" or "K=V"; errors as Taint::Parse.
  static absl::StatusOr<Toleration> Parse(absl::string_view text);
  bool Tolerates(const Taint& taint) const;
  // As Parse reads it.
  std::string ToString() const;

  friend bool operator==(const Toleration&, const Toleration&) = default;
  friend auto operator<=>(const Toleration&, const Toleration&) = default;
};

inline constexpr size_t kTaintsMax = 64;       // of a node
inline constexpr size_t kTolerationsMax = 64;  // of a job

// InvalidArgument, naming the text that is wrong, or more than kTaintsMax of
// them; ascending and without doubles.
absl::StatusOr<std::vector<Taint>> ParseTaints(
    const std::vector<std::string>& texts);

// The first taint that nothing here tolerates; null when all are.
const Taint* FirstUntolerated(const std::vector<Taint>& taints,
                              const std::vector<Toleration>& tolerations);

}  // namespace cohort

#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort {

// What a job asks of a node's labels: several requirements, all of which must
// hold.
//
//   K=V           the label K is V
//   K!=V          it is not: another value, or no label K
//   K in (A,B)    one of these
//   K !in (A,B)   none of these, or no label K
//   K exists      there is a label K (also: exists K)
//
// joined by commas; none: every node.  A word with a space or one of ,()=!
// stands in quotes.  The label `host` exists by itself: it is the node's name.
// A value: equal selectors compare equal however they were written.
class LabelSelector {
 public:
  enum class Operator { kIn, kNotIn, kExists };

  struct Requirement {
    std::string key;
    Operator op = Operator::kExists;
    std::vector<std::string> values;  // ascending, no two equal

    // `value`: null when the node has no such label.
    bool HoldsFor(const std::string* value) const;
    // As Parse reads it.
    std::string ToString() const;

    friend bool operator==(const Requirement&, const Requirement&) = default;
    friend auto operator<=>(const Requirement&, const Requirement&) = default;
  };

  static constexpr size_t kRequirementsMax = 64;
  static constexpr size_t kValuesMax = 256;
  static constexpr size_t kKeyBytesMax = 64;
  static constexpr size_t kValueBytesMax = 256;

  // InvalidArgument, with the column and what was expected there.
  static absl::StatusOr<LabelSelector> Parse(absl::string_view text);
  // All must hold.  InvalidArgument, naming the text that is wrong.
  static absl::StatusOr<LabelSelector> ParseAll(
      const std::vector<std::string>& texts);

  // The value of a label of a node; null when it has none.
  using Lookup = absl::FunctionRef<const std::string*(const std::string& key)>;
  // The first requirement that does not hold; null when all do.
  const Requirement* FirstFailing(Lookup label) const;
  bool Matches(Lookup label) const { return FirstFailing(label) == nullptr; }
  bool Matches(const std::map<std::string, std::string>& labels) const;

  bool empty() const { return requirements_.empty(); }
  // Ascending, no two equal.
  const std::vector<Requirement>& requirements() const { return requirements_; }
  // As Parse reads it.
  std::string ToString() const;

  friend bool operator==(const LabelSelector&, const LabelSelector&) = default;
  friend auto operator<=>(const LabelSelector&, const LabelSelector&) = default;

  // One more; nothing when it is there.
  void Add(Requirement requirement);

 private:
  std::vector<Requirement> requirements_;
};

}  // namespace cohort

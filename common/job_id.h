#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/random.h"
#include "common/strong_id.h"

namespace cohort {

// Names a job, an array of jobs, or an element of an array.
//
// An array and its elements share sixteen random bytes, so that a program with
// an element's id can name it as its user does, without asking anybody.  People
// see and type 32 lower-case hex digits, and for an element `.INDEX` after
// them; messages and records carry 16 bytes, or 20 with the index big-endian.
// Ordered by array, then the array itself, then its elements by index.
// A value; thread-compatible.
class JobId {
 public:
  static constexpr size_t kBytes = 16;
  static constexpr size_t kElementBytes = 20;
  // The largest index of an element.
  static constexpr uint32_t kIndexMax = 999'999'999;

  // The nil id, which names nothing.
  JobId() = default;

  // A new id of a single job or of an array, never nil.
  static JobId New(Random& random);

  // InvalidArgument unless there are 16 bytes, or 20 with a possible index.
  static absl::StatusOr<JobId> FromBytes(absl::string_view bytes);

  // InvalidArgument unless `text` is 32 hex digits, in either case, and after
  // them nothing or a full stop and an index without leading zeros.
  static absl::StatusOr<JobId> FromText(absl::string_view text);

  // Element `index` of the array that this names.  REQUIRES: this is not an
  // element, index <= kIndexMax.
  JobId Element(uint32_t index) const;

  bool IsElement() const { return index_.has_value(); }
  // REQUIRES: IsElement().
  uint32_t index() const { return *index_; }
  // The array of an element; itself otherwise.
  JobId array() const;

  bool IsNil() const { return root_.IsNil(); }
  std::string bytes() const;
  std::string ToText() const;

  friend auto operator<=>(const JobId&, const JobId&) = default;
  friend bool operator==(const JobId&, const JobId&) = default;

  template <typename H>
  friend H AbslHashValue(H h, const JobId& id) {
    return H::combine(std::move(h), id.root_, id.index_);
  }

  friend std::ostream& operator<<(std::ostream& out, const JobId& id) {
    return out << id.ToText();
  }

 private:
  struct Tag {
    static constexpr char kNoun[] = "job";
  };
  using Root = StrongId<Tag>;

  Root root_;
  std::optional<uint32_t> index_;
};

// ToText of the id that `bytes` are, for those who only pass it on; their hex
// digits when they are none.
std::string JobIdText(absl::string_view bytes);

}  // namespace cohort

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort {

// One direction in which the ranks of a group lie: {"hosts", 2}.
struct Dimension {
  std::string name;
  int size = 0;

  friend bool operator==(const Dimension&, const Dimension&) = default;
};

namespace actor {

// Places in dimensions, numbered with the last dimension fastest: rank 5 of
// {hosts: 2, gpus: 4} is gpu 1 of host 1.  And of these a box: all at first.
// A value.
class Grid {
 public:
  // Of one place.
  Grid() = default;
  // INVALID_ARGUMENT, naming it, when a name or a size cannot be; no dimension,
  // more than 8, or more than 10,000 places.
  static absl::StatusOr<Grid> Make(std::vector<Dimension> dimensions);

  const std::vector<Dimension>& dimensions() const { return dimensions_; }
  // Places of the whole grid.
  int size() const;

  // Of the box those with begin <= coordinate < end, counted in the box, in
  // that dimension.  INVALID_ARGUMENT: there is no such dimension, or nothing
  // in that range.
  absl::StatusOr<Grid> Slice(absl::string_view name, int begin, int end) const;
  // Of the box, ascending.
  std::vector<int> Ranks() const;

  // INVALID_ARGUMENT: there is no such dimension.
  absl::StatusOr<int> Coordinate(int rank, absl::string_view name) const;
  // The place so many steps on in that dimension, the last one followed by the
  // first.
  absl::StatusOr<int> Neighbour(int rank, absl::string_view name,
                                int steps) const;

 private:
  struct Range {
    int begin = 0;
    int end = 0;
  };

  absl::StatusOr<size_t> Find(absl::string_view name) const;
  // Between places that are neighbours in that dimension.
  int Stride(size_t dimension) const;

  std::vector<Dimension> dimensions_;
  std::vector<Range> box_;  // of each dimension
};

}  // namespace actor
}  // namespace cohort

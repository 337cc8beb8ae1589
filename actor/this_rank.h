#pragma once

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "actor/grid.h"

namespace cohort {

// Which of a group this actor is (Runtime::CreateGroup).  A value.
class GroupRank {
 public:
  // The only one.
  GroupRank() = default;
  GroupRank(int rank, actor::Grid grid) : rank_(rank), grid_(std::move(grid)) {}

  // 0 to size() - 1, with the last dimension fastest.
  int rank() const { return rank_; }
  int size() const { return grid_.size(); }
  const std::vector<Dimension>& dimensions() const {
    return grid_.dimensions();
  }

  // Where this rank lies in a dimension.  INVALID_ARGUMENT: there is no such
  // dimension.
  absl::StatusOr<int> Coordinate(absl::string_view dimension) const {
    return grid_.Coordinate(rank_, dimension);
  }
  // The rank so many steps on in a dimension, or back; the last one there is
  // followed by the first.  Errors as Coordinate.
  absl::StatusOr<int> Neighbour(absl::string_view dimension,
                                int steps = 1) const {
    return grid_.Neighbour(rank_, dimension, steps);
  }

 private:
  int rank_ = 0;
  actor::Grid grid_;
};

// This process's rank, as long as it lives; of an actor that is alone, and of a
// process that is not an actor, rank 0 of 1.  Where actors share a process
// (ActorOptions::processes), that of the one whose method or constructor this
// thread runs; of another thread that of the first.  Thread-safe.
const GroupRank& ThisRank();

namespace actor {

// Sets it.  REQUIRES: once, before ThisRank.
void SetThisRank(GroupRank rank);

// Sets that of the thread that makes it, as long as it lives; `rank` outlives
// it.
class RankHere {
 public:
  explicit RankHere(const GroupRank& rank);
  ~RankHere();
  RankHere(const RankHere&) = delete;
  RankHere& operator=(const RankHere&) = delete;

 private:
  const GroupRank* const before_;
};

}  // namespace actor
}  // namespace cohort

#include "actor/grid.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/status_macros.h"

namespace cohort::actor {
namespace {

// As the head has them (head/state/job_spec.cc).
constexpr size_t kDimensionsMax = 8;
constexpr size_t kNameBytesMax = 64;
constexpr int64_t kPlacesMax = 10'000;

bool IsName(absl::string_view name) {
  const bool is_long = name.size() > kNameBytesMax;
  return !name.empty() && !is_long &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return c > ' ' && c < 0x7f && c != '='; });
}

absl::Status CheckDimension(const std::vector<Dimension>& all, size_t index) {
  const Dimension& each = all[index];
  const auto same = [&](const Dimension& other) {
    return other.name == each.name;
  };
  if (!IsName(each.name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a dimension cannot be named \"", each.name,
                     "\" (a name is one word of at most ", kNameBytesMax,
                     " bytes, without =)"));
  }
  if (std::any_of(all.begin(), all.begin() + static_cast<ptrdiff_t>(index),
                  same)) {
    return absl::InvalidArgumentError(
        absl::StrCat("two dimensions are named \"", each.name, "\""));
  }
  if (each.size >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("dimension ", each.name,
                                                 " has size ", each.size,
                                                 " (it can be 1 or more)"));
}

}  // namespace

absl::StatusOr<Grid> Grid::Make(std::vector<Dimension> dimensions) {
  if (dimensions.empty() || dimensions.size() > kDimensionsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a group has 1 to ", kDimensionsMax, " dimensions, not ",
                     dimensions.size()));
  }
  int64_t places = 1;
  Grid grid;
  for (size_t i = 0; i < dimensions.size(); ++i) {
    COHORT_RETURN_IF_ERROR(CheckDimension(dimensions, i));
    places *= dimensions[i].size;
    if (places > kPlacesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("a group has at most ", kPlacesMax,
                       " ranks, and these dimensions "
                       "have more places"));
    }
    grid.box_.push_back({0, dimensions[i].size});
  }
  grid.dimensions_ = std::move(dimensions);
  return grid;
}

int Grid::Stride(size_t dimension) const {
  int stride = 1;
  for (size_t i = dimension + 1; i < dimensions_.size(); ++i) {
    stride *= dimensions_[i].size;
  }
  return stride;
}

int Grid::size() const {
  return dimensions_.empty() ? 1 : dimensions_.front().size * Stride(0);
}

absl::StatusOr<size_t> Grid::Find(absl::string_view name) const {
  for (size_t i = 0; i < dimensions_.size(); ++i) {
    if (dimensions_[i].name == name) return i;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no dimension is named \"", name, "\" (there are: ",
                   absl::StrJoin(dimensions_, ", ",
                                 [](std::string* out, const Dimension& each) {
                                   absl::StrAppend(out, each.name);
                                 }),
                   ")"));
}

absl::StatusOr<Grid> Grid::Slice(absl::string_view name, int begin,
                                 int end) const {
  COHORT_ASSIGN_OR_RETURN(const size_t index, Find(name));
  const Range range = box_[index];
  const int length = range.end - range.begin;
  if (begin < 0 || begin >= end || end > length) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no ranks are at ", begin, " to ", end - 1, " of dimension ", name,
        ", which here goes from 0 to ", length - 1));
  }
  Grid slice = *this;
  slice.box_[index] = {range.begin + begin, range.begin + end};
  return slice;
}

std::vector<int> Grid::Ranks() const {
  std::vector<int> ranks = {0};
  for (size_t i = 0; i < dimensions_.size(); ++i) {
    std::vector<int> longer;
    for (const int rank : ranks) {
      for (int at = box_[i].begin; at < box_[i].end; ++at) {
        longer.push_back(rank * dimensions_[i].size + at);
      }
    }
    ranks = std::move(longer);
  }
  return ranks;
}

absl::StatusOr<int> Grid::Coordinate(int rank, absl::string_view name) const {
  COHORT_ASSIGN_OR_RETURN(const size_t index, Find(name));
  return rank / Stride(index) % dimensions_[index].size;
}

absl::StatusOr<int> Grid::Neighbour(int rank, absl::string_view name,
                                    int steps) const {
  COHORT_ASSIGN_OR_RETURN(const size_t index, Find(name));
  const int size = dimensions_[index].size;
  const int stride = Stride(index);
  const int at = rank / stride % size;
  const int there = ((at + steps % size) % size + size) % size;
  return rank + (there - at) * stride;
}

}  // namespace cohort::actor

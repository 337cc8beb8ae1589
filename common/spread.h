#pragma once

#include <cstdint>

namespace cohort {

// How the ranks of a group share its processes: evenly, in their order.  With
// as many processes as ranks each has its own.  A value.
class Spread {
 public:
  // REQUIRES: 1 <= processes <= ranks.
  Spread(int ranks, int processes) : ranks_(ranks), processes_(processes) {}

  int ranks() const { return ranks_; }
  int processes() const { return processes_; }

  bool is_shared() const { return ranks_ != processes_; }

  int ProcessOf(int rank) const {
    return static_cast<int>(((rank + int64_t{1}) * processes_ - 1) / ranks_);
  }
  // The rank of the first actor of a process, and how many it has.
  int FirstOf(int process) const {
    return static_cast<int>(int64_t{process} * ranks_ / processes_);
  }
  int CountOf(int process) const {
    return FirstOf(process + 1) - FirstOf(process);
  }
  // Which of its process's a rank is.
  uint32_t ActorOf(int rank) const {
    return static_cast<uint32_t>(rank - FirstOf(ProcessOf(rank)));
  }

 private:
  int ranks_;
  int processes_;
};

}  // namespace cohort

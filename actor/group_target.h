#pragma once

#include <memory>
#include <vector>

#include "actor/call_target.h"

namespace cohort::actor {

// Whom a group's handle calls: its ranks, whatever carries the calls
// (GroupCalls).  Thread-safe.
class GroupTarget {
 public:
  virtual ~GroupTarget() = default;

  virtual std::shared_ptr<CallTarget> Rank(int rank) = 0;

  // Several at once, as one: each of `ranks` is called, and the result is that
  // of all, as a std::vector<std::string> of theirs in that order; with
  // `reducer`, a name as in reducer.h, it is what that makes of them.  An error
  // is that of one rank, and names it.
  virtual std::shared_ptr<CallTarget> Slice(std::vector<int> ranks,
                                            const char* reducer) = 0;
};

}  // namespace cohort::actor

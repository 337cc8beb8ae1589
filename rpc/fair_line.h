#pragma once

#include <memory>
#include <string>

#include "common/executor.h"

namespace cohort::rpc {

// Callers' tasks before a strand: they take turns there, each caller's own in
// their order.
//
//   FL-1: a task waits for at most one task of each other caller, and its own
//         caller's earlier ones, however many anybody has posted.
//   FL-2: between two bursts of at most kBurst tasks, whatever else was posted
//         to the strand meanwhile (nodes' words, commits, ticks) has its turn.
//
// Unbounded by itself: Admission is the bound.  Thread-safe.  Tasks may outlive
// the line, not the strand; a strand that has stopped destroys them unrun.
class FairLine {
 public:
  static constexpr int kBurst = 8;

  explicit FairLine(Executor& strand);

  void Post(const std::string& caller, Task task);
  // The same, inside this call where the strand can (Executor::Dispatch).
  void Dispatch(const std::string& caller, Task task);

 private:
  class Lines;
  class Burst;

  // Shared: this and the burst that waits on the strand.
  const std::shared_ptr<Lines> lines_;
};

}  // namespace cohort::rpc

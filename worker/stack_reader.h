#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "cohort/v1/node.pb.h"
#include "worker/piece_reader.h"

namespace cohort::worker {

// A program that looks at a process.
struct StackTool {
  std::string title;    // "native stacks (eu-stack)"
  std::string program;  // absolute; empty: this node does not have it
  std::vector<std::string> arguments;
  std::string package;  // what brings it: "the package elfutils"
  // With which it ends when it could show a part only; 0: none.
  int partial_status = 0;
};

// Those for that process: elfutils' eu-stack, and of a Python py-spy, which may
// be in its environment rather than in the daemon's.
std::vector<StackTool> StackToolsFor(pid_t pid);

// Shows the stacks of one process of an attempt by what tools of this node
// write, one tool after the other, each for at most 20 s and 512 KiB; one that
// takes longer or writes more is killed.  They run as the daemon's user.
//
// The process stands still while a tool reads it, and goes on afterwards.
class StackReader final : public PieceReader {
 public:
  using FindTools = std::function<std::vector<StackTool>(pid_t pid)>;

  // Of the process `order`.stack_of_pid() when it is of `order`.attempt_id().
  explicit StackReader(v1::SendLog order, FindTools find = StackToolsFor);
  // Kills the tool that runs, which may take a second.
  ~StackReader() override;

  v1::LogPiece Read(int64_t offset, size_t bytes_max) override;

 private:
  class Run;

  // That the process is the attempt's now.
  absl::Status CheckProcess() const;
  absl::Status Begin();
  // Whether all tools have ended.
  absl::Status GoOn(bool& ended);
  void Add(const StackTool& tool, const std::string& what);

  const v1::SendLog order_;
  const FindTools find_;
  std::deque<StackTool> tools_;  // still to run, the first one runs
  std::unique_ptr<Run> run_;
  bool begun_ = false;
  bool any_worked_ = false;
  std::string text_;
};

}  // namespace cohort::worker

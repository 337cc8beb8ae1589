#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/executor.h"

namespace cohort::worker {

// Where attempts need to write, and how much must be free there.
struct NeededRoom {
  std::string directory;
  int64_t bytes = 0;
  // Made again when it is missing and its parent is not.
  bool make = false;
};

struct NodeReadinessOptions {
  // A node that is not ready needs twice as much, so that its
  // state does not flap.
  std::vector<NeededRoom> rooms;
  // Programs that attempts need: asked whether they may be executed.
  std::vector<std::string> programs;
  // Makes again, on `disk`, what more than a directory belongs to; whether
  // something was missing.  May be null.
  std::function<absl::StatusOr<bool>()> renew = nullptr;
};

// Whether an attempt could begin on this node, by trying what it needs.
//
//   FT-1: a fault that was noted counts before anything else that the strand
//         says of it, and until a later look found none.
//   FT-2: it counts until its cause is gone.  Where looks find the cause they
//         see that; where none does it counts for a time that doubles, from one
//         second to a minute, until an attempt begins well: a node that
//         fails in silence would take one job after the other.
//
// Strand-bound to the node strand; looks on `disk`.  Lives as long as Worker.
class NodeReadiness {
 public:
  // Gets why no attempt could begin here, and when that is looked at again;
  // empty: one could.
  using Listener = absl::AnyInvocable<void(const std::string& not_ready)>;
  using Answer = absl::AnyInvocable<void(absl::Status) &&>;
  // Tries what is too dear for each look, once a fault was noted; answers on
  // the strand.
  using Trial = absl::AnyInvocable<void(Answer)>;

  // All outlive it and what it posted.  `trial` may be null.  `on_change` is
  // called on the strand.
  NodeReadiness(NodeReadinessOptions options, Executor& strand, Executor& disk,
                Trial trial, Listener on_change);

  // Looks once, then `looked`, then each period.
  void Start(absl::AnyInvocable<void() &&> looked);
  // An attempt could not begin, and it was the node's fault.
  void NoteFault(const absl::Status& why);
  // An attempt began.
  void NoteBegun() { back_off_ = absl::ZeroDuration(); }

 private:
  // What one look came to.
  struct Found {
    absl::Status status;
    bool mended = false;  // something that was missing is there again
  };

  void Look(absl::AnyInvocable<void() &&> looked);
  Found LookAtDisk(int64_t times) const;
  void Try(uint64_t faults, Found found, absl::AnyInvocable<void() &&> looked);
  void Conclude(uint64_t faults, const Found& found);
  void Set(std::string not_ready);

  const NodeReadinessOptions options_;
  Executor& strand_;
  Executor& disk_;
  Trial trial_;
  Listener on_change_;
  std::string not_ready_;
  uint64_t faults_ = 0;  // noted so far
  // The fault that counts, as told; empty: none does.
  std::string fault_;
  bool cause_seen_ = false;  // a look has found what may be its cause
  absl::Duration back_off_;  // of the last fault; zero after a good begin
  absl::Duration left_;      // of it
};

// ResourceExhausted, naming the directory, unless so many bytes could be
// written there; other errors as writing a file has.  Blocks.
absl::Status CheckRoom(const std::string& directory, int64_t bytes);

}  // namespace cohort::worker

#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cohort/v1/node.pb.h"
#include "common/process_id.h"

namespace cohort::worker {

// How the ranks of one attempt learn each other's addresses: each gives a blob
// under a tag, the head gathers them from all nodes, and once the gang's are
// complete all who wait for that tag get them.
//
// Of one epoch: what the ranks gave is in the place's messages; this holds what
// the head gathered, and who waits for it.  Thread-compatible.
class Exchange {
 public:
  using Done =
      absl::AnyInvocable<void(absl::StatusOr<std::vector<std::string>>) &&>;

  // The head keeps no more of one attempt.
  static constexpr size_t kAttemptBytesMax = 6 << 20;

  // Puts the blob of `rank` where the head will see it; false when it is there
  // already.  AlreadyExists: another blob under this tag.  ResourceExhausted:
  // the rank used too many tags, or the ranks here gave too much.
  static absl::StatusOr<bool> Give(int rank, const std::string& tag,
                                   const std::string& blob,
                                   v1::ObservedPlace& observed);

  // `done` gets the tag's blobs in rank order, once they are complete, or
  // Abort's status.
  void Wait(const ProcessId& process, const std::string& tag, Done done);

  // The head has all blobs of a tag; the first word stands.  Its own bounds
  // are those of what is kept here.
  void Complete(const v1::Exchange& exchange);
  // What the process waits for does not come.
  void Abort(const ProcessId& process, const absl::Status& status);
  // The same of all; what was gathered is dropped.
  void Reset(const absl::Status& status);

 private:
  struct Waiter {
    ProcessId process;
    std::string tag;
    Done done;
  };
  // Takes those out for which `which` holds.
  template <typename Which>
  std::vector<Waiter> Take(Which which);

  std::vector<Waiter> waiters_;
  std::map<std::string, std::vector<std::string>> complete_;  // by tag
};

}  // namespace cohort::worker

#pragma once

#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cohort/v1/node.pb.h"

namespace cohort::worker {

// How the ranks of one attempt learn each other's addresses: each gives a blob
// under a tag, the head gathers them from all nodes, and once the gang's are
// complete all who wait for that tag get them.
//
// The blobs are in the attempt's messages; this holds who waits.
// Thread-compatible.
class Exchange {
 public:
  using Done =
      absl::AnyInvocable<void(absl::StatusOr<std::vector<std::string>>) &&>;

  // Puts the blob of `rank` where the head will see it; false when it is there
  // already.  AlreadyExists: another blob under this tag.  ResourceExhausted:
  // the rank used too many tags.
  static absl::StatusOr<bool> Give(int rank, const std::string& tag,
                                   const std::string& blob,
                                   v1::ObservedAttempt& observed);

  // `done` gets the tag's blobs in rank order with Answer, or Abort's status.
  void Wait(std::string tag, Done done);

  // Calls those for whose tags `desired` has all blobs.
  void Answer(const v1::DesiredAttempt& desired);
  void Abort(const absl::Status& status);

 private:
  struct Waiter {
    std::string tag;
    Done done;
  };
  std::vector<Waiter> waiters_;
};

}  // namespace cohort::worker

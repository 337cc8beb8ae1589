#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "actor/call_limits.h"
#include "actor/call_target.h"

namespace cohort::actor {

// A call that has ended.  Its `done` is to be called without a lock.
struct EndedCall {
  CallTarget::Done done;
  absl::StatusOr<std::string> result;
};

// The calls to one actor that have no end yet, in the order in which they were
// made: where each is and what becomes of it.
//
//   Add --> waiting --Take--> sent --Finish--> gone
//              ^                |Break
//              +----Settle---- lost ---Settle--> gone, "may have run"
//
// Numbers are those of Add and grow; sequences are those of one stream: 1, 2,
// ... since the last Break.  Thread-compatible.
class CallQueue {
 public:
  struct Call {
    uint64_t number = 0;
    CalledMethod method = nullptr;
    std::string arguments;
    // How often it may be sent again; negative: until it has run.
    int retries_left = 0;
    CallTarget::Done done;  // null: it has an end, and holds a place only
    size_t bytes = 0;       // of the arguments, which may be gone
    bool was_lost = false;
    bool finished = false;  // its result has come
  };
  struct Sent {
    uint64_t sequence = 0;
    CalledMethod method = nullptr;
    std::string arguments;
  };
  struct Cancelled {
    CallTarget::Done done;
    std::optional<uint64_t> sequence;  // set: it was sent
  };

  explicit CallQueue(size_t window_bytes = kWindowBytes)
      : window_bytes_(window_bytes) {}

  // REQUIRES: call.number is larger than those before.
  void Add(Call call);

  // Calls without an end.
  size_t pending() const { return pending_; }
  bool HasWaiting() const { return waiting_live_ > 0; }
  bool HasSent() const { return unfinished_ > 0; }
  bool HasLost() const { return !lost_.empty(); }

  // Whether a call waits and its actor may have another.
  bool MayTake() const;
  // The first that waits, as sent now.  REQUIRES: MayTake().
  Sent Take();

  // The result of a call that was sent has come.  Null when nobody waits for
  // it: it was cancelled, or there is no such call.
  CallTarget::Done Finish(uint64_t sequence);

  // Null when the call has an end.
  Cancelled Cancel(uint64_t number);

  // The stream is over: what was sent is lost.  REQUIRES: !HasLost() or
  // !HasSent().
  void Break();

  // What was lost waits again, before all else, where it may be sent again; the
  // rest has ended as `may_have_run`.
  void Settle(const absl::Status& may_have_run, std::vector<EndedCall>& ended);

  // Everything that waits has ended: as `not_started`, but what has been lost
  // once as `may_have_run`.
  void EndWaiting(const absl::Status& not_started,
                  const absl::Status& may_have_run,
                  std::vector<EndedCall>& ended);

  // Everything has ended with `status`.
  void EndAll(const absl::Status& status, std::vector<EndedCall>& ended);

 private:
  void End(Call& call, const absl::Status& status,
           std::vector<EndedCall>& ended);
  // In front of waiting_ none has an end.
  void DropEndedWaiting();
  void DropFinishedSent();
  // Its result has come.
  CallTarget::Done TakeDone(Call& call);

  const size_t window_bytes_;
  std::deque<Call> waiting_;
  // The first has sequence first_sequence_.
  std::deque<Call> sent_;
  // Sent before these, by sequence, and not finished: calls that take long,
  // which later ones of other groups have overtaken.
  std::map<uint64_t, Call> overtaken_;
  size_t unfinished_ = 0;  // of both
  std::deque<Call> lost_;
  uint64_t first_sequence_ = 1;
  size_t sent_bytes_ = 0;
  size_t waiting_live_ = 0;  // of waiting_, without an end
  size_t pending_ = 0;
};

}  // namespace cohort::actor

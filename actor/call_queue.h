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
//              ^                |  ^
//              |           Break|  |Resume, Take: under the same sequence
//              |                v  |
//              +---Settle------ lost ---Settle, GiveUp--> gone, "may have run"
//
// Numbers are those of Add and grow; sequences are those of one incarnation: 1,
// 2, ... since Settle or StartAnew.  Thread-compatible.
class CallQueue {
 public:
  struct Call {
    uint64_t number = 0;
    CalledMethod method = nullptr;
    std::string arguments;
    // In how many incarnations more it may run; negative: until it has run.
    int retries_left = 0;
    CallTarget::Done done;  // null: it has an end, and holds a place only
    bool is_own = false;    // ours (kOwnGroups): not counted as pending
    // Said to the actor's process on each stream that the call goes out on.
    bool is_cancelled = false;
    bool is_withdrawn = false;
    bool was_lost = false;
    bool finished = false;  // its result has come
  };
  struct Sent {
    uint64_t sequence = 0;
    CalledMethod method = nullptr;
    std::string arguments;
    bool is_cancelled = false;  // its process is to be told it again
    bool is_withdrawn = false;
  };
  struct Cancelled {
    CallTarget::Done done;
    std::optional<uint64_t> sequence;  // set: it is where it was sent
  };

  explicit CallQueue(size_t window_bytes = kWindowBytes)
      : window_bytes_(window_bytes) {}

  // REQUIRES: call.number is larger than those before.
  void Add(Call call);

  // Calls without an end, but for ours.
  size_t pending() const { return pending_; }
  bool HasWaiting() const { return waiting_live_ > 0; }
  bool HasSent() const { return !is_lost_ && unfinished_ > 0; }
  bool HasLost() const { return is_lost_ && unfinished_ > 0; }
  // Of all that was taken; 0: none was.
  uint64_t last_sequence() const { return first_sequence_ + sent_.size() - 1; }

  // Whether a call waits and its actor may have another, or one is to be sent
  // again.
  bool MayTake() const;
  // The first that is to be sent again, else the first that waits, as sent now.
  // REQUIRES: MayTake().
  Sent Take();

  // The result of a call that was sent has come.  Null when nobody waits for
  // it: it was cancelled, or there is no such call.
  CallTarget::Done Finish(uint64_t sequence);

  // Null when the call has an end.
  Cancelled Cancel(uint64_t number);
  // Cancels it if it waits; else it goes on, and `done` is null.  Its process
  // gets the notice, also again on a later stream (Take).
  Cancelled CancelWaiting(uint64_t number, CallNotice notice);

  // The stream is over: what was sent is lost.
  void Break();

  // There is another stream to the same incarnation: what was lost is to be
  // sent again, before all else.
  // Gives those that were cancelled and are not sent again, but may run there.
  std::vector<uint64_t> Resume();

  // That incarnation has ended.  What was lost waits again, before all else,
  // where it may run in another; the rest has ended as `may_have_run`.
  // REQUIRES: !HasSent().
  void Settle(const absl::Status& may_have_run, std::vector<EndedCall>& ended);

  // What was lost ends as `may_have_run`, unless it has a retry: that waits for
  // Resume or Settle, or with `retries_too` ends as well.
  void GiveUp(const absl::Status& may_have_run, bool retries_too,
              std::vector<EndedCall>& ended);

  // Sequences begin with 1 again.  REQUIRES: nothing is sent or lost.
  void StartAnew();

  // Everything that waits has ended: as `not_started`, but what has been lost
  // once as `may_have_run`.
  void EndWaiting(const absl::Status& not_started,
                  const absl::Status& may_have_run,
                  std::vector<EndedCall>& ended);

  // Everything has ended with `status`.
  void EndAll(const absl::Status& status, std::vector<EndedCall>& ended);

 private:
  // Null: none was sent with that sequence that is not over.
  Call* FindSent(uint64_t sequence);
  // Those without a result for which `predicate` holds are over.
  template <typename Predicate>
  void DropSentIf(Predicate predicate);
  void SkipFinishedAgain();
  void End(Call& call, const absl::Status& status,
           std::vector<EndedCall>& ended);
  CallTarget::Done CountEnd(Call& call);
  // The sequence of one that was sent and has no end; 0: there is none.
  uint64_t SentAs(uint64_t number) const;
  // In front of waiting_ none has an end.
  void DropEndedWaiting();
  // In front of sent_ none is finished.
  void DropFinishedSent();
  // Its result has come, or nobody waits for one.
  CallTarget::Done TakeDone(Call& call);

  const size_t window_bytes_;
  std::deque<Call> waiting_;
  // The first has sequence first_sequence_.
  std::deque<Call> sent_;
  // Sent before these, by sequence, and not finished: calls that take long,
  // which later ones of other groups have overtaken.
  std::map<uint64_t, Call> overtaken_;
  size_t unfinished_ = 0;  // of both
  uint64_t first_sequence_ = 1;
  size_t sent_bytes_ = 0;
  bool is_lost_ = false;  // what was sent
  // Cancelled since the stream broke, or before and not sent again.
  std::vector<uint64_t> cancelled_;
  // Sent ones of this sequence and later are to be sent again; 0: none.
  uint64_t again_from_ = 0;
  size_t waiting_live_ = 0;  // of waiting_, without an end
  size_t pending_ = 0;
};

}  // namespace cohort::actor

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cohort/v1/actor.pb.h"

namespace cohort::actor {

// What an actor's process remembers of one caller, over its streams: which
// calls have begun, and results that the caller may not have.  So a call that
// is sent again does not run again (AS-5).  Thread-compatible.
//
//   new --NoteBegun--> begun --NoteSent--> sent --NoteTaken--> gone
//                        |                  | NoteStreamOver
//                        +-----Keep-----> kept --TakeKept--> begun
//
// CR-1: calls of one lane begin in the order of their sequence, so that one
//       number a lane tells which have begun.
// CR-2: results that are sent or kept take kResultsKeptBytes at most; beyond,
// the
//       oldest are forgotten.
class CallerRecord {
 public:
  using Results = std::shared_ptr<v1::ActorResults>;

  // Calls up to the sequence `unknown` may have begun before there was a
  // record.
  explicit CallerRecord(uint64_t unknown) : unknown_(unknown) {}

  // Takes 8 bytes for each lane up to that one.
  void NoteBegun(size_t lane, uint64_t sequence) {
    if (lane >= begun_.size()) begun_.resize(lane + 1);
    begun_[lane] = sequence;
  }
  bool HasBegun(size_t lane, uint64_t sequence) const {
    return sequence <= unknown_ ||
           (lane < begun_.size() && sequence <= begun_[lane]);
  }

  // Results go to the caller now.
  void NoteSent(Results results, size_t bytes);
  // An empty message: one whose results have come, if there is one, since
  // memory that another thread frees costs more than the rest of a short call.
  Results NewMessage();
  // So many messages of the present stream have come; those are moved to
  // `gone`, to be destroyed elsewhere.  False: there were not so many.
  bool NoteTaken(uint64_t messages, std::vector<Results>& gone);
  // What was sent and not taken is kept.
  void NoteStreamOver();

  // The caller has no stream, or did not get that.
  void Keep(v1::ActorResults::Result result);
  // The result that was kept, if any.  The caller does not ask for those before
  // it any more: they are forgotten.
  std::optional<v1::ActorResults::Result> TakeKept(uint64_t sequence);
  void DropKept();

  size_t bytes() const { return sent_bytes_ + kept_bytes_; }

 private:
  using Kept = std::map<uint64_t, v1::ActorResults::Result>;

  Kept::iterator Drop(Kept::iterator kept);

  const uint64_t unknown_;
  std::vector<uint64_t> begun_;  // the last, by lane
  // Of the present stream, with their bytes; the last is number sent_count_.
  std::deque<std::pair<Results, size_t>> sent_;
  uint64_t sent_count_ = 0;
  size_t sent_bytes_ = 0;
  Results spare_;
  Kept kept_;
  size_t kept_bytes_ = 0;
};

// What it takes, roughly: those without a value are bounded, too.
size_t BytesOf(const v1::ActorResults::Result& result);

}  // namespace cohort::actor

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "actor/caller_record.h"
#include "cohort/v1/actor.pb.h"

namespace cohort::actor {

struct CallStream;  // call_stream.h

// One caller, over its streams.
struct CallerSession {
  CallerSession(std::string caller, uint64_t unknown)
      : id(std::move(caller)), record(unknown) {}

  const std::string id;  // empty: it has this stream only
  CallerRecord record;
  std::shared_ptr<CallStream> stream;  // null: it broke
  // Calls that went on elsewhere and have no result yet.
  absl::flat_hash_set<uint64_t> relayed;
  // Counts the broken streams of the table, when its own broke; 0: it has one.
  uint64_t breakage = 0;
};

// The callers of an actor, by id: those with a stream, and of those whose
// streams broke the last ones (call_limits.h).  Thread-compatible.
class CallerTable {
 public:
  using Session = std::shared_ptr<CallerSession>;

  // The session of that caller, which has a stream from now on; a new one, with
  // CallerRecord's argument, where none is remembered.
  Session Open(const std::string& id, uint64_t unknown);

  // Its stream broke.  A number for ForgetUntil, which is to come after
  // kRememberCaller; 0: nothing is to.
  uint64_t Break(const Session& session);
  // It will not come back.
  void Forget(const CallerSession& session);
  // Those whose streams broke until then, unless they came back.
  void ForgetUntil(uint64_t breakage);

  // A result for one without a stream.
  void Keep(v1::ActorResults::Result result, CallerSession& session);

  const absl::flat_hash_map<std::string, Session>& sessions() const {
    return sessions_;
  }

 private:
  bool Has(const CallerSession& session) const;
  void Trim();
  void ForgetFirst();

  absl::flat_hash_map<std::string, Session> sessions_;
  // In the order in which their streams broke; some are back.
  std::deque<std::pair<uint64_t, Session>> broken_;
  uint64_t last_breakage_ = 0;
  size_t broken_bytes_ = 0;  // of the records of those that are not
};

}  // namespace cohort::actor

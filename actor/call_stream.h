#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "actor/actor_service.h"
#include "actor/caller_record.h"
#include "actor/caller_table.h"
#include "actor/ring_way.h"
#include "cohort/v1/actor.pb.h"
#include "rpc/stream.h"

// What waits at an actor, by lane and by stream: ActorService's own.
namespace cohort::actor {

using ResultWriter = rpc::StreamWriter<v1::ActorResults>;

// A lane at work.
struct Lane {
  CallLane options;
  size_t number = 0;
  // Whose call is next, once for each call that waits or waited.
  std::deque<std::shared_ptr<CallStream>> line;
  int runners = 0;    // that were posted and have not ended
  int given_way = 0;  // of these, in a call that waits for a future
};

// As a caller has named it.
struct Method {
  std::string name;
  std::string group;
  // Of the first actor; null: there is no such group.
  Lane* lane = nullptr;
  std::optional<uint32_t> note;  // its number in CallNotes; none for ours
};

// One that has come and not begun.
struct WaitingCall {
  uint64_t sequence = 0;
  const Method* method = nullptr;  // of its caller's
  uint32_t actor = 0;
  std::string arguments;
  int64_t queued_us = 0;
};

// One stream.
struct CallStream {
  explicit CallStream(std::unique_ptr<ResultWriter> w) : writer(std::move(w)) {}

  const std::unique_ptr<ResultWriter> writer;  // thread-safe

  // Its stream's events.
  bool is_open = false;
  uint64_t last_sequence = 0;
  uint64_t sent_before = 0;  // up to here calls may have come before
  bool is_refused = false;   // what comes yet is ignored
  bool is_settled = false;   // whether its ring is shared is known
  // By number; they stay where they are.
  std::deque<Method> methods;

  // Null: it has none.  Set before it has a session.
  std::unique_ptr<RingWay<const v1::ActorCalls>> ring;
  // RingWatch's: a thread looks at it, which kicks its caller if need be.
  std::atomic<bool> is_watched{false};
  std::atomic<bool> owes_kick{false};

  // The core's mutex.
  std::shared_ptr<CallerSession> session;  // set once it is open
  bool is_over = false;                    // nothing of it begins any more
  bool is_writing = false;
  bool is_to_kick = false;  // by a message on the stream
  absl::flat_hash_map<Lane*, std::deque<WaitingCall>> waiting;
  size_t waiting_calls = 0;
  size_t waiting_bytes = 0;
  CallerRecord::Results held = std::make_shared<v1::ActorResults>();
  size_t held_bytes = 0;
  // Turns that came while too many results were held.
  std::vector<Lane*> missed_turns;

  // In its stream's events: INVALID_ARGUMENT, what of the next message breaks
  // the protocol, apart from its limits in all.
  absl::Status CheckMethod(const v1::ActorCalls::Method& method) const;
  absl::Status CheckCalls(const v1::ActorCalls& message);
};

absl::Status Garbage(absl::string_view what);

}  // namespace cohort::actor

#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"

#include "common/clock.h"
#include "common/strong_id.h"
#include "head/state/waiting_line.h"

namespace cohort::head {

// What falls due, and by which clock.
enum class DueKind {
  // The silence of a node, while this head runs (LS-1).
  kSuspect,
  kDead,
  kDriver,  // a program that owns actors; the same clock
  // On the monotonic clock.
  kDrain,    // what still runs on a drained node is moved
  kBackOff,  // the next attempt of a job, or slots, that nothing else keeps
  kMetrics,  // newer metrics of a job are stored
  // By wall time.
  kStartTime,  // of a job that nothing before it keeps
};
inline constexpr size_t kDueKinds =
    static_cast<size_t>(DueKind::kStartTime) + 1;

struct Due {
  DueKind kind;
  std::variant<AskId, NodeId, DriverId> what;

  const AskId& ask() const { return std::get<AskId>(what); }
  const NodeId& node() const { return std::get<NodeId>(what); }
  const DriverId& driver() const { return std::get<DriverId>(what); }
  friend auto operator<=>(const Due&, const Due&) = default;
  friend bool operator==(const Due&, const Due&) = default;
};

// What is due when, each once.
//
//   LS-1: silence counts only while the head itself ran: a gap between ticks,
//         or before the first, longer than 2 tick periods does not; and a node
//         is suspect, or dead, only when a tick found it silent for that long
//         and the next one does too, so that renewals which were received by
//         then are handled before.
//
// Nothing else is put off by a pause of the head: who waited for a time has
// waited.  Thread-compatible; belongs to ClusterState.
class Deadlines {
 public:
  // The clock outlives it.
  Deadlines(absl::Duration tick_period, const Clock& clock);

  // Due in `left`, in place of an earlier time; InfiniteDuration: never.
  void Set(const Due& due, absl::Duration left);
  void Erase(const Due& due);
  bool Contains(const Due& due) const { return Of(due.kind).contains(due); }
  // Nothing when it is not here.
  std::optional<absl::Duration> LeftOf(const Due& due) const;
  // All of a kind.
  const std::map<Due, absl::Duration>& Of(DueKind kind) const {
    return lines_[static_cast<size_t>(kind)].times;
  }

  // Every tick period, before TakeDue.
  void Tick();
  // Takes out what is due of a kind, at most `most`, in the order of times.
  std::vector<Due> TakeDue(DueKind kind,
                           size_t most = std::numeric_limits<size_t>::max());

 private:
  struct Line {
    std::map<Due, absl::Duration> times;
    std::set<std::pair<absl::Duration, Due>> order;
  };
  Line& LineOf(DueKind kind) { return lines_[static_cast<size_t>(kind)]; }
  // By the clock of the kind.
  absl::Duration Now(DueKind kind) const;

  const absl::Duration tick_period_;
  const Clock& clock_;
  std::array<Line, kDueKinds> lines_;
  absl::Duration last_tick_;  // or the construction
  absl::Duration paused_;     // the head, all in all
  absl::Duration silent_by_;  // of silence what was due at the tick before
};

}  // namespace cohort::head

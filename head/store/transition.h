#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"

#include "head/store/records.h"
#include "head/store/records_codec.h"
#include "head/store/store.h"

namespace cohort::head {

// What leaves the head when a transition is durable: a reply, a message to a
// worker, a local wake-up.  Called exactly once: with OK after the sync, or
// with Unavailable when the outcome is unknown.  Captures values, never
// pointers into the state.
using Effect = absl::AnyInvocable<void(const absl::Status&) &&>;

// Everything that one decision changes: rows for the store, in one batch
// (CM-2), and effects that leave after it is durable (CM-1).
//
// Thread-compatible; lives on the head strand for one decision, then moves into
// Commit::Submit.
class Transition {
 public:
  void Put(const ClusterRecord& record) { cluster_ = record; }
  // Gives how many bytes are stored.
  template <typename Record>
  size_t Put(const Record& record) {
    batch_.push_back(ToWrite(record));
    return BytesOf(batch_.back());
  }
  // `key`: the members of the record that make its key.
  template <typename Record, typename... Part>
  void Delete(const Part&... key) {
    batch_.push_back(ToDelete<Record>(key...));
  }
  void Add(Batch rows);

  void Then(Effect effect) { effects_.push_back(std::move(effect)); }

  // But for the cluster's row.
  const Batch& batch() const { return batch_; }
  size_t row_count() const { return batch_.size(); }
  // Nothing changed and nothing is to leave.
  bool empty() const {
    return batch_.empty() && !cluster_.has_value() && effects_.empty();
  }

  // What is taken is not there any more; more may be added.

  // Every row.
  Batch TakeBatch();
  // The row of the cluster by itself, for those who store many transitions at
  // once: nearly each has one, of which the last says it all.
  std::optional<ClusterRecord> TakeCluster() {
    return std::exchange(cluster_, std::nullopt);
  }
  std::vector<Effect> TakeEffects() { return std::exchange(effects_, {}); }

 private:
  Batch batch_;
  std::optional<ClusterRecord> cluster_;
  std::vector<Effect> effects_;
};

}  // namespace cohort::head

#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/container/node_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/clock.h"
#include "head/state/history_limits.h"
#include "head/state/history_line.h"
#include "head/store/records.h"

namespace cohort::head {

// What each mutating request was answered.
//
//   RQ-1: one request id of one principal, one outcome, whatever the client
//         saw; another body under it is ALREADY_EXISTS.
//
// Remembered within the caps of history, by time of the head's own life: a
// restart only lengthens it.  Thread-compatible; belongs to ClusterState.
class RequestTable {
 public:
  RequestTable(HistoryCaps caps, const Clock& clock);

  // In any order; age starts now.
  void Load(std::vector<RequestRecord> records);

  // The record of an earlier call, or null when this is the first.
  // AlreadyExists when that one had another body; InvalidArgument for an id
  // that is empty or longer than 128 bytes.
  absl::StatusOr<const RequestRecord*> Find(absl::string_view principal,
                                            absl::string_view request_id,
                                            absl::string_view body_hash) const;

  // `bytes`: of its row.  REQUIRES: Find gave null.
  void Add(RequestRecord record, size_t bytes);

  // Forgets the oldest ones beyond a cap, at most `n`, and gives them.
  std::vector<RequestRecord> Trim(size_t n);

  size_t size() const { return records_.size(); }
  HistoryLevel Level() const { return line_.Level("requests"); }

 private:
  // Of principal and request id, which a record holds already.
  using Key = std::pair<absl::string_view, absl::string_view>;
  static Key KeyOf(const RequestRecord& record) {
    return {record.principal(), record.request_id()};
  }
  struct Hash {
    using is_transparent = void;
    size_t operator()(const Key& key) const { return absl::HashOf(key); }
    size_t operator()(const RequestRecord& record) const {
      return absl::HashOf(KeyOf(record));
    }
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(const RequestRecord& record, const Key& key) const {
      return KeyOf(record) == key;
    }
    bool operator()(const RequestRecord& a, const RequestRecord& b) const {
      return KeyOf(a) == KeyOf(b);
    }
  };

  // Records stay where they are: the line has their addresses.
  absl::node_hash_set<RequestRecord, Hash, Equal> records_;
  HistoryLine<const RequestRecord*> line_;
};

}  // namespace cohort::head

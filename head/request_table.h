#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/clock.h"
#include "head/records.h"

namespace cohort::head {

// What each mutating request was answered.
//
//   RQ-1: one request id of one principal, one outcome, whatever the client
//         saw; another body under it is ALREADY_EXISTS.
//
// A request is remembered for `kept` of the head's own life after it was made
// or loaded (wall clocks may step, so a restart only lengthens it), and at most
// `count_max` are: the oldest go first.  Thread-compatible; belongs to
// ClusterState.
class RequestTable {
 public:
  struct Limits {
    absl::Duration kept = absl::Hours(24);
    size_t count_max = 1'000'000;
  };

  RequestTable(Limits limits, const Clock& clock);

  // In any order; age starts now.
  void Load(std::vector<RequestRecord> records);

  // The record of an earlier call, or null when this is the first.
  // AlreadyExists when that one had another body; InvalidArgument for an id
  // that is empty or longer than 128 bytes.
  absl::StatusOr<const RequestRecord*> Find(absl::string_view principal,
                                            absl::string_view request_id,
                                            absl::string_view body_hash) const;

  // REQUIRES: Find gave null.
  void Add(RequestRecord record);

  // Forgets those past age or count, at most `n`, and gives them.
  std::vector<RequestRecord> Trim(size_t n);

  size_t size() const { return records_.size(); }

 private:
  using Key = std::pair<std::string, std::string>;  // principal, request id

  const Limits limits_;
  const Clock& clock_;
  std::map<Key, RequestRecord> records_;
  std::deque<std::pair<absl::Duration, Key>> by_age_;  // oldest first
};

}  // namespace cohort::head

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "common/clock.h"
#include "head/attempt_table.h"
#include "head/change.h"
#include "head/diagnosis.h"
#include "head/gang_request.h"
#include "head/node_table.h"
#include "head/records.h"
#include "head/waiting_line.h"

namespace cohort::head {

// Names a request in rows: equal ones have equal keys, in every head.
std::string ShapeKeyOf(const GangRequest& request);

// Why jobs waited, noted down for later: once for all that ask for the same,
// and again only when what keeps them has changed.
//
//   EX-3: of each shape at most one reason holds, and none once no job of it
//         waits; never more than the limits are kept, the newest.
//
// Costs a submit and a plan nothing: Look goes round the line, a few shapes
// each tick.  Thread-compatible; belongs to ClusterState.
class WaitHistory {
 public:
  struct Limits {
    size_t count_max = 10'000;
    size_t bytes_max = 16 << 20;
    absl::Duration age_max = absl::Hours(7 * 24);
    // Of one shape, while nodes change.
    absl::Duration pace = absl::Seconds(5);
    // Requests that are diagnosed in one look, and leases looked at for each:
    // together about a millisecond on 1,000 nodes.
    int diagnoses_per_look = 2;
    int64_t leases_max = 1'000;
    // Shapes passed over in one look.
    int steps_per_look = 64;
  };

  WaitHistory(Limits limits, const Clock& clock)
      : limits_(limits), clock_(clock) {}

  void Load(std::vector<WaitReasonRecord> records);

  // Goes on with its round: puts what is new or over into `change`.
  void Look(const WaitingLine& line, const NodeTable& nodes,
            const AttemptTable& attempts, Change& change);

  // Why jobs of this shape waited at `at`; null when nothing is noted.  Valid
  // until the next Look.
  const WaitReasonRecord* At(const std::string& shape_key, absl::Time at) const;
  // Those that held between the two times, oldest first, the `most` newest.
  std::vector<const WaitReasonRecord*> Between(const std::string& shape_key,
                                               absl::Time from, absl::Time to,
                                               size_t most) const;

  size_t size() const { return records_.size(); }
  size_t bytes() const { return bytes_; }

 private:
  // A shape that waits.
  struct Open {
    uint64_t number = 0;   // of the reason that holds
    uint64_t version = 0;  // of the index when it was looked at
    absl::Duration looked_at;
  };

  // False when this look may diagnose no more.
  bool LookAt(const GangRequest& request, const NodeTable& nodes,
              const AttemptTable& attempts, int& diagnoses, Change& change);
  void Note(const GangRequest& request, const Diagnosis& diagnosis, Open& open,
            Change& change);
  void CloseThoseGone(const WaitingLine& line, Change& change);
  void Close(uint64_t number, Change& change);
  void Add(WaitReasonRecord record);
  void Drop(uint64_t number);
  void Trim(Change& change);

  const Limits limits_;
  const Clock& clock_;
  std::map<uint64_t, WaitReasonRecord> records_;
  std::map<std::string, std::set<uint64_t>> by_shape_;
  size_t bytes_ = 0;
  uint64_t next_number_ = 1;
  std::map<GangRequest, Open> open_;
  // Held when they were loaded, and not met in line since.
  std::set<uint64_t> unmet_;
  // Where the rounds are: through the line, and through those that wait.
  std::optional<GangRequest> at_;
  std::optional<GangRequest> closing_at_;
};

}  // namespace cohort::head

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

#include "common/clock.h"
#include "head/explain/diagnosis.h"
#include "head/placement/gang_request.h"
#include "head/state/attempt_table.h"
#include "head/state/change.h"
#include "head/state/history_limits.h"
#include "head/state/history_line.h"
#include "head/state/node_table.h"
#include "head/state/waiting_line.h"
#include "head/store/records.h"

namespace cohort::head {

// Names a request in rows: equal ones have equal keys, in every head.
std::string ShapeKeyOf(const GangRequest& request);

// Why jobs waited, noted down for later: once for all that ask for the same,
// and again only when what keeps them has changed.
//
//   EX-3: of each shape at most one reason holds, and none once no job of it
//         waits; never more than history's caps are kept, the newest.
//
// Costs a submit and a plan nothing: Look goes round the line, a few shapes
// each tick.  Thread-compatible; belongs to Explainer.
class WaitHistory {
 public:
  struct Limits {
    // Of one shape, while nodes change.
    absl::Duration pace = absl::Seconds(5);
    // Requests that are diagnosed in one look, and leases looked at for each:
    // together about a millisecond on 1,000 nodes.
    int diagnoses_per_look = 2;
    int64_t leases_max = 1'000;
    // Shapes passed over in one look.
    int steps_per_look = 64;
  };

  WaitHistory(Limits limits, HistoryCaps caps, const Clock& clock,
              std::vector<WaitReasonRecord> records);

  // Goes on with its round: puts what is new or over into `transition`.
  void Look(const WaitingLine& line, const NodeTable& nodes,
            const AttemptTable& attempts, Transition& transition);

  // Why jobs of this shape waited between the two times, oldest first.  Valid
  // until the next Look.
  std::vector<const v1::WaitReason*> Between(const std::string& shape_key,
                                             absl::Time from,
                                             absl::Time to) const;

  int64_t size() const { return kept_.count(); }
  HistoryLevel Level() const { return kept_.Level("wait_reasons"); }

 private:
  // A shape that waits, or of which a reason held when it was loaded.
  struct Open {
    std::optional<GangRequest> request;  // nothing: not met in line since
    uint64_t version = 0;                // of the index when it was looked at
    absl::Duration looked_at;
  };
  using Key = std::pair<std::string, uint64_t>;  // shape and number

  // False when this look may diagnose no more.
  bool LookAt(const GangRequest& request, const NodeTable& nodes,
              const AttemptTable& attempts, int& diagnoses_left,
              Transition& transition);
  void Note(const std::string& shape_key, v1::Blocker blocker,
            Transition& transition);
  void CloseThoseGone(const WaitingLine& line, Transition& transition);
  // The reason that holds; null: none.
  WaitReasonRecord* Holding(const std::string& shape_key);
  void Close(WaitReasonRecord& record, Transition& transition);
  void Trim(Transition& transition);

  const Limits limits_;
  const Clock& clock_;
  std::map<std::string, std::map<uint64_t, WaitReasonRecord>> shapes_;
  // By when they were over; those that hold have just begun, or been renewed.
  HistoryLine<Key> kept_;
  uint64_t next_number_ = 1;
  std::map<std::string, Open> open_;
  // Where the rounds are: through the line, and through those that wait.
  std::optional<GangRequest> at_;
  bool went_round_ = false;
  std::string closing_at_;
};

}  // namespace cohort::head

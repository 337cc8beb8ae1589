#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "common/job_id.h"
#include "head/cluster_state.h"
#include "head/diagnosis.h"
#include "head/records.h"
#include "head/waiting_line.h"

// Why a job waits, and what would let it start; of one that does not wait, what
// became of it.
namespace cohort::head {

// What keeps a job that is not the want of room.
struct OtherBlocker {
  enum class Kind : uint8_t {
    kHeld = 1,
    kAfter = 2,     // another job has not ended
    kArray = 7,     // its array runs as many elements as it may
    kBackOff = 8,   // its next attempt is not due yet
    kPackage = 3,   // the head has lost its package
    kReadOnly = 4,  // the head cannot write
    kNotTried = 5,  // its turn has not come since something changed
    kOther = 6,     // the job's reason says what
  };
  Kind kind = Kind::kOther;
  std::string text;

  friend bool operator==(const OtherBlocker&, const OtherBlocker&) = default;
};

// "held", "after", "package", "read_only", "not_tried", "waits".
const char* BlockerName(OtherBlocker::Kind kind);

// A change that would let it start, in words too.
struct NamedRemedy {
  Remedy remedy;
  std::string text;  // "6 workers instead of 8"
  std::string how;   // "--num-workers 6", "cohort undrain n2"; may be empty
};

struct Explanation {
  JobId job;
  std::string name;
  JobState state = JobState::kPending;
  // One line: what it waits for, that it runs, why it ended.
  std::string summary;
  std::vector<OtherBlocker> others;
  // Set when there is no room for it now.
  std::optional<Diagnosis> diagnosis;
  std::vector<NamedRemedy> changes;  // smallest first
  bool changes_complete = true;
  Ahead ahead;
  // What was asked for of the past, oldest first.
  std::vector<WaitReasonRecord> history;
};

// Of which time.
struct ExplainWhen {
  std::optional<absl::Time> at;  // nothing: now
  bool history = false;          // all that is remembered beside it
};

// `read_only`: the head's store refuses writes.
Explanation Explain(const ClusterState& state, const JobRecord& job,
                    bool read_only, const ExplainWhen& when = {});

}  // namespace cohort::head

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/job_id.h"
#include "head/state/deadlines.h"
#include "head/state/wait.h"
#include "head/store/records.h"

namespace cohort::head {

// One thing that may keep a PENDING job from the waiting line.  A new one is a
// file pair and a line in JobGates.  Computed from rows, so that it is the same
// after a restart.  Thread-compatible.
class JobGate {
 public:
  virtual ~JobGate() = default;

  virtual WaitKind kind() const = 0;

  // `job` is in the table and has not ended; once, before all else.
  virtual void Added(const JobRecord& /*job*/) {}
  // Whether `job`, which is PENDING, may pass; asked again and again.  When it
  // may not, it is asked again once TakeOpened names it, when it falls due, or
  // by the call that opens the gate.
  virtual bool Pass(const JobRecord& job) = 0;
  // `job` no longer waits at this gate; it may come back.
  virtual void Leave(const JobRecord& /*job*/) {}
  // A gate before keeps it, also when it had passed here: what it has here is
  // for others.
  virtual void KeptBefore(const JobRecord& job) { Leave(job); }
  virtual void Ended(const JobRecord& /*job*/) {}

  // Who may ask again because of what became of others, in order.
  virtual std::vector<JobId> TakeOpened() { return {}; }

  // Whether this is what `job` is in the phase of, when no gate before does.
  virtual bool Keeps(const JobRecord& job) const = 0;
  // What it keeps `job` for, also when a gate before does; nothing: it is open.
  virtual std::optional<Wait> WaitOf(const JobRecord& job) const = 0;
  // The PENDING elements of an array that wait here; `rest` wait at none
  // before.
  struct Elements {
    int64_t count = 0;
    std::optional<JobId> first;  // where it is known
  };
  virtual Elements ElementsOf(const JobId& /*array*/, int64_t /*rest*/) const {
    return {};
  }

 protected:
  // Those of an array among the jobs that wait for a time.
  static Elements ElementsIn(const Deadlines& deadlines, DueKind kind,
                             const JobId& array) {
    Elements elements;
    const auto& all = deadlines.Of(kind);
    for (auto at = all.lower_bound({kind, AskId{array}});
         at != all.end() && at->first.ask().job.array() == array; ++at) {
      if (!at->first.ask().IsJob()) continue;
      if (++elements.count == 1) elements.first = at->first.ask().job;
    }
    return elements;
  }
};

}  // namespace cohort::head

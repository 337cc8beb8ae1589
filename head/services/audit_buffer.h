#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/clock.h"
#include "common/mutex.h"
#include "head/store/records.h"
#include "rpc/principal.h"

namespace cohort::head {

// Calls of the audit log that changed nothing, so that no change brings their
// rows to the store: refused ones.
//
//   AB-1: however many there are, they make at most 61 rows in ten minutes: the
//         first of each kind at once, how many followed at the end; what is
//         beyond 60 kinds is one more.  Callers that nobody knows fill a
//         third of them at most.
//
// Equal are calls of one principal from one host, of one method, with the same
// result, about the same thing.  Thread-safe.
class AuditBuffer {
 public:
  static constexpr absl::Duration kPeriod = absl::Minutes(10);
  static constexpr size_t kKindsMax = 60;

  // `clock` outlives it.
  explicit AuditBuffer(const Clock& clock)
      : clock_(clock), began_(clock.Monotonic()) {}

  // What the log has of a call from `peer`; `who` is null: nobody known.
  AuditRecord CallOf(absl::string_view path, const std::string& peer,
                     const rpc::Principal* who) const;

  // A call that ended so.  Unavailable: nothing, it is to be made again.
  void Note(AuditRecord call, const absl::Status& result);

  // What is to be stored now.
  std::vector<AuditRecord> Take();

 private:
  struct Kind {
    AuditRecord last;
    bool told = false;
  };

  const Clock& clock_;
  Mutex mutex_;
  // Of the present period.
  absl::Duration began_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Kind> kinds_ ABSL_GUARDED_BY(mutex_);
  bool has_new_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort::head

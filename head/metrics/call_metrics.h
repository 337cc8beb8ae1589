#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/mutex.h"
#include "head/metrics/metric_family.h"
#include "rpc/router.h"

namespace cohort::head {

// Counts what the head's Router answered, by method and code.  Thread-safe.
class CallMetrics final : public rpc::CallObserver {
 public:
  // CallObserver.
  void OnAnswered(absl::string_view path, bool is_stream, absl::StatusCode code,
                  absl::Duration took) override;

  std::vector<MetricFamily> Families() const;

 private:
  struct Method {
    std::map<absl::StatusCode, uint64_t> answers;
    Histogram took;
    bool is_stream = false;
  };

  mutable Mutex mutex_;
  // By path: as many as there are methods, and "unknown".
  std::map<std::string, Method, std::less<>> methods_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::head

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/clock.h"
#include "common/mutex.h"
#include "head/metrics/metric_family.h"
#include "head/store/store.h"

namespace cohort::head {

// What a head's stores wrote, one after another.  Thread-safe.
class StoreMeter {
 public:
  void OnAppended(const Batch& batch, const absl::Status& status,
                  absl::Duration took);

  std::vector<MetricFamily> Families() const;

 private:
  mutable Mutex mutex_;
  uint64_t failures_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t rows_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  Histogram took_ ABSL_GUARDED_BY(mutex_);
};

// A store that says what it wrote and how long that took.  As thread-safe as
// the one within.
class MeteredStore final : public Store {
 public:
  // `meter` and `clock` outlive the store.
  MeteredStore(std::unique_ptr<Store> store, StoreMeter& meter,
               const Clock& clock)
      : store_(std::move(store)), meter_(meter), clock_(clock) {}

  // Store.
  absl::Status Append(uint64_t term, const Batch& batch) override;
  absl::Status Scan(Table table, const std::string& first, size_t limit,
                    RowVisitor each) override {
    return store_->Scan(table, first, limit, each);
  }
  absl::Status Checkpoint(const std::string& directory) override {
    return store_->Checkpoint(directory);
  }

 private:
  const std::unique_ptr<Store> store_;
  StoreMeter& meter_;
  const Clock& clock_;
};

}  // namespace cohort::head

#include "head/metrics/metered_store.h"

namespace cohort::head {

void StoreMeter::OnAppended(const Batch& batch, const absl::Status& status,
                            absl::Duration took) {
  MutexLock lock(mutex_);
  took_.Add(took);
  if (!status.ok()) {
    ++failures_;
    return;
  }
  rows_ += batch.size();
  bytes_ += BytesOf(batch);
}

std::vector<MetricFamily> StoreMeter::Families() const {
  MutexLock lock(mutex_);
  std::vector<MetricFamily> families;
  families.push_back(Counter("cohort_store_rows_written_total",
                             "Rows put or deleted, durably.",
                             static_cast<double>(rows_)));
  families.push_back(Counter("cohort_store_written_bytes_total",
                             "Keys and values put or deleted, durably.",
                             static_cast<double>(bytes_)));
  families.push_back(Counter("cohort_store_append_failures_total",
                             "Batches that the disk refused.",
                             static_cast<double>(failures_)));
  MetricFamily took;
  took.name = "cohort_store_append_duration_seconds";
  took.help = "One batch of changes, until it is synced.";
  took.type = MetricType::kHistogram;
  took.samples.push_back({.labels = {}, .value = 0, .histogram = took_});
  families.push_back(std::move(took));
  return families;
}

absl::Status MeteredStore::Append(uint64_t term, const Batch& batch) {
  const absl::Duration began = clock_.Monotonic();
  absl::Status status = store_->Append(term, batch);
  meter_.OnAppended(batch, status, clock_.Monotonic() - began);
  return status;
}

}  // namespace cohort::head

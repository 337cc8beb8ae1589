#include "trainer/torch/backward_pass.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/status_macros.h"

namespace cohort::torch_adapter {

BackwardPass::BackwardPass(std::span<const trainer::Bucket> buckets,
                           size_t gradients, std::unique_ptr<DeviceMarks> marks)
    : count_(buckets.size()),
      bucket_of_(gradients),
      marks_(std::move(marks)),
      buckets_(buckets.size()),
      is_told_(gradients) {
  for (size_t i = 0; i < buckets.size(); ++i) {
    buckets_[i].gradients = buckets[i].slices.size();
    for (const trainer::BucketSlice& slice : buckets[i].slices) {
      bucket_of_[slice.gradient] = i;
    }
  }
}

void BackwardPass::Begin() {
  MutexLock lock(mutex_);
  for (Progress& bucket : buckets_) {
    bucket = {.gradients = bucket.gradients, .missing = bucket.gradients};
  }
  is_told_.assign(is_told_.size(), false);
  is_open_ = true;
}

void BackwardPass::OnGradient(size_t gradient) {
  MutexLock lock(mutex_);
  if (!is_open_) return;
  const size_t index = bucket_of_[gradient];
  Progress& bucket = buckets_[index];
  const int64_t stream = marks_->CurrentStream();
  if (bucket.missing == bucket.gradients) bucket.stream = stream;
  if (bucket.stream != stream) bucket.is_mixed = true;
  if (!is_told_[gradient]) {
    is_told_[gradient] = true;
    --bucket.missing;
  }
  // Also when one is told again, as checkpointed layers do.
  bucket.is_marked = bucket.missing == 0 && !bucket.is_mixed;
  if (bucket.is_marked) marks_->Set(index);
}

void BackwardPass::OnLateWrite(size_t gradient, const torch::Tensor& from) {
  if (from.defined()) marks_->Keep(from);
  MutexLock lock(mutex_);
  buckets_[bucket_of_[gradient]].is_marked = false;
}

void BackwardPass::End() {
  MutexLock lock(mutex_);
  is_open_ = false;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    if (!buckets_[i].is_marked) marks_->Set(i);
  }
}

void BackwardPass::Abandon() {
  MutexLock lock(mutex_);
  is_open_ = false;
}

absl::Status BackwardPass::Await(size_t bucket, const DeviceWait& wait) const {
  return AwaitMark(
      *marks_, bucket,
      absl::StrCat("the backward pass, bucket ", bucket, " of ", count_), wait);
}

absl::Status BackwardPass::Settle(const DeviceWait& wait) {
  return AwaitBegun(*marks_, /*mark=*/count_, "what was begun before", wait);
}

absl::Status BackwardPass::Drain(const DeviceWait& wait) {
  COHORT_RETURN_IF_ERROR(Settle(wait));
  for (size_t bucket = 0; bucket < count_; ++bucket) {
    COHORT_RETURN_IF_ERROR(Await(bucket, wait));
  }
  return absl::OkStatus();
}

}  // namespace cohort::torch_adapter

#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/mutex.h"
#include "trainer/dataset.h"
#include "trainer/sampler.h"

namespace cohort::trainer {

struct LoaderOptions {
  int64_t batch_size = 64;
  // Batches read ahead.  Two cover one step's jitter; more only cost memory.
  int prefetch = 2;
};

// One step's samples of this rank.
struct Batch {
  std::vector<int64_t> ids;
  std::vector<float> inputs;
  std::vector<int64_t> labels;
  // The sampler behind this batch, not behind what was read ahead.
  int64_t cursor = 0;
  uint64_t hash = 0;
  bool last = false;  // of the epoch

  int64_t size() const { return static_cast<int64_t>(ids.size()); }
};

// Reads batches ahead of the training thread, in the sampler's order.
//
//   LD-1: the batches from a cursor on are those of an undisturbed epoch when
//         the cursor stood at the end of a batch.
//   LD-2: at most `prefetch` batches and the one being read are in memory.
//
// One background thread an epoch.  Thread-compatible: the training thread owns
// it; `dataset` must outlive it.
class Loader {
 public:
  // InvalidArgument when a number is not positive.
  static absl::StatusOr<std::unique_ptr<Loader>> Create(
      const Dataset& dataset, const SamplerOptions& sampler,
      LoaderOptions options);
  ~Loader();

  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Begins reading pass `epoch` behind its first `cursor` samples; drops what
  // was read ahead.  Errors as DistributedSampler::StartEpoch.
  absl::Status StartEpoch(int64_t epoch, int64_t cursor = 0);

  // The next batch; none at the epoch's end.  The dataset's error ends the
  // epoch and is repeated.  REQUIRES: StartEpoch.
  absl::StatusOr<std::optional<Batch>> Next();

  // Gives a batch's memory back for another.
  void Recycle(Batch batch);

  // What the gang consumes in the epoch that runs, padding included.
  int64_t epoch_size() const { return epoch_size_; }

 private:
  Loader(const Dataset& dataset, DistributedSampler sampler,
         LoaderOptions options);

  void Stop();
  void ReadAhead();
  bool WaitForRoom();
  Batch TakeSpare();
  absl::Status Fill(Batch& batch);

  const Dataset& dataset_;
  const LoaderOptions options_;
  int64_t epoch_size_ = 0;

  // The reading thread while it runs, else the owner.
  DistributedSampler sampler_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<Batch> ready_ ABSL_GUARDED_BY(mutex_);
  std::vector<Batch> spare_ ABSL_GUARDED_BY(mutex_);
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  bool done_ ABSL_GUARDED_BY(mutex_) = true;  // nothing more will be read
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace cohort::trainer

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/mutex.h"
#include "trainer/batch_memory.h"
#include "trainer/dataset.h"
#include "trainer/sampler.h"

namespace cohort::trainer {

struct LoaderOptions {
  int64_t batch_size = 64;
  // Batches read ahead.  Two cover one step's jitter; more only cost memory.
  int prefetch = 2;
  // Threads that read, each a batch at a time: more where a dataset decodes or
  // waits for a disk.
  int workers = 1;
  // Where batches lie; null: the process's own memory.  Must outlive the loader
  // and its batches.
  BatchMemory* memory = nullptr;
};

// One step's samples of this rank.  Ends, or goes to Recycle, only after all
// that reads them: a copy to a GPU that was begun is such a reader until its
// event has come.
struct Batch {
  std::vector<int64_t> ids;
  std::span<float> inputs;    // size() * Dataset::input_size(), 64-byte aligned
  std::span<int64_t> labels;  // size(), 64-byte aligned
  // The sampler behind this batch, not behind what was read ahead.
  int64_t cursor = 0;
  uint64_t hash = 0;
  bool last = false;  // of the epoch
  BatchBlock block;   // what inputs and labels are parts of

  int64_t size() const { return static_cast<int64_t>(ids.size()); }
};

// Reads batches ahead of the training thread, in the sampler's order.
//
//   LD-1: the batches from a cursor on are those of an undisturbed epoch when
//         the cursor stood at the end of a batch.
//   LD-2: at most `prefetch` batches, and one more for each worker but the
//         first, those being read among them, are ahead of the training thread;
//         memory is taken for these and for as many as
//         that thread held at once, and filled again.
//   LD-3: a batch's memory is written to again only after Recycle, and given
//         back only after the batch.
//
// Whatever the number of workers, batches are the same and come in the same
// order.  Its threads live for an epoch.  Thread-compatible: the training
// thread owns it; `dataset` must outlive it.
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

  // The next batch; none at the epoch's end.  An error of the dataset or of the
  // memory ends the epoch and is repeated.  REQUIRES: StartEpoch.
  absl::StatusOr<std::optional<Batch>> Next();

  // Gives a batch's memory back for another.  Nothing may read it any more
  // (LD-3).
  void Recycle(Batch batch);

  // What the gang consumes in the epoch that runs, padding included.
  int64_t epoch_size() const { return epoch_size_; }

 private:
  Loader(const Dataset& dataset, DistributedSampler sampler,
         LoaderOptions options);

  // A batch that a worker reads.
  struct Task {
    int64_t number = 0;  // of the epoch's, from where it was begun
    Batch batch;
  };

  void Stop();
  void ReadAhead();
  // None: nothing is left to be read.
  std::optional<Task> AwaitTask();
  bool MayTake() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Fill(Batch& batch);
  absl::Status Place(Batch& batch, size_t samples);

  const Dataset& dataset_;
  const LoaderOptions options_;
  BatchMemory& memory_;
  int64_t epoch_size_ = 0;

  Mutex mutex_;
  CondVar changed_;
  DistributedSampler sampler_ ABSL_GUARDED_BY(mutex_);
  int64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;  // from the sampler
  int64_t given_ ABSL_GUARDED_BY(mutex_) = 0;  // to the training thread
  std::map<int64_t, Batch> ready_ ABSL_GUARDED_BY(mutex_);  // by number
  std::vector<Batch> spare_ ABSL_GUARDED_BY(mutex_);
  // Of the first batch that could not be read.
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  int64_t failed_number_ ABSL_GUARDED_BY(mutex_) = -1;
  bool stop_ ABSL_GUARDED_BY(mutex_) = true;

  std::vector<std::thread> threads_;
};

}  // namespace cohort::trainer

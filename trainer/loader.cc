#include "trainer/loader.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/round_up.h"
#include "common/status_macros.h"

namespace cohort::trainer {
namespace {

// More threads than that do not make one rank's data come faster.
constexpr int kWorkersMax = 256;

}  // namespace

absl::StatusOr<std::unique_ptr<Loader>> Loader::Create(
    const Dataset& dataset, const SamplerOptions& sampler,
    LoaderOptions options) {
  if (options.batch_size < 1 || options.prefetch < 1 || options.workers < 1 ||
      options.workers > kWorkersMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("batches of ", options.batch_size, ", ", options.prefetch,
                     " of them ahead, read by ", options.workers,
                     " workers: all must be positive, and the workers at most ",
                     kWorkersMax));
  }
  COHORT_ASSIGN_OR_RETURN(DistributedSampler made,
                          DistributedSampler::Create(sampler));
  // No rank has more of an epoch: a batch takes no memory for what never comes.
  options.batch_size = std::min(options.batch_size, sampler.dataset_size);
  return std::unique_ptr<Loader>(new Loader(dataset, std::move(made), options));
}

Loader::Loader(const Dataset& dataset, DistributedSampler sampler,
               LoaderOptions options)
    : dataset_(dataset),
      options_(options),
      memory_(options.memory != nullptr ? *options.memory
                                        : PlainMemory::OfProcess()),
      sampler_(std::move(sampler)) {}

Loader::~Loader() { Stop(); }

absl::Status Loader::StartEpoch(int64_t epoch, int64_t cursor) {
  Stop();
  {
    MutexLock lock(mutex_);
    COHORT_RETURN_IF_ERROR(sampler_.StartEpoch(epoch, cursor));
    epoch_size_ = sampler_.epoch_size();
    taken_ = given_ = 0;
    failed_ = absl::OkStatus();
    failed_number_ = -1;
    stop_ = false;
  }
  for (int i = 0; i < options_.workers; ++i) {
    threads_.emplace_back([this] { ReadAhead(); });
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Batch>> Loader::Next() {
  MutexLock lock(mutex_);
  for (;;) {
    const auto next = ready_.find(given_);
    if (next != ready_.end()) {
      Batch batch = std::move(next->second);
      ready_.erase(next);
      ++given_;
      changed_.SignalAll();
      return batch;
    }
    if (failed_number_ == given_) return failed_;
    const bool is_over = stop_ || sampler_.remaining() == 0;
    if (is_over && given_ == taken_) return std::nullopt;
    changed_.Wait(mutex_);
  }
}

void Loader::Recycle(Batch batch) {
  MutexLock lock(mutex_);
  spare_.push_back(std::move(batch));
}

void Loader::Stop() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  MutexLock lock(mutex_);
  for (auto& [number, batch] : ready_) spare_.push_back(std::move(batch));
  ready_.clear();
  taken_ = given_;
}

void Loader::ReadAhead() {
  while (std::optional<Task> task = AwaitTask()) {
    absl::Status status = Fill(task->batch);
    MutexLock lock(mutex_);
    if (status.ok()) {
      ready_[task->number] = std::move(task->batch);
    } else if (failed_number_ < 0 || task->number < failed_number_) {
      failed_number_ = task->number;
      failed_ = std::move(status);
    }
    changed_.SignalAll();
  }
}

bool Loader::MayTake() const {
  return taken_ - given_ < options_.prefetch + options_.workers - 1;
}

std::optional<Loader::Task> Loader::AwaitTask() {
  MutexLock lock(mutex_);
  const auto is_over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stop_ || failed_number_ >= 0 || sampler_.remaining() == 0;
  };
  while (!is_over() && !MayTake()) changed_.Wait(mutex_);
  if (is_over()) return std::nullopt;
  Task task{.number = taken_++};
  if (!spare_.empty()) {
    task.batch = std::move(spare_.back());
    spare_.pop_back();
  }
  Batch& batch = task.batch;
  const std::span<const int64_t> ids = sampler_.Take(options_.batch_size);
  batch.ids.assign(ids.begin(), ids.end());
  batch.cursor = sampler_.cursor();
  batch.hash = sampler_.hash();
  batch.last = sampler_.remaining() == 0;
  return task;
}

absl::Status Loader::Fill(Batch& batch) {
  COHORT_RETURN_IF_ERROR(Place(batch, batch.ids.size()));
  try {
    return dataset_.Read(batch.ids, batch.inputs, batch.labels);
  } catch (const std::exception& thrown) {
    return absl::InternalError(
        absl::StrCat("the dataset threw: ", thrown.what()));
  } catch (...) {
    return absl::InternalError(
        "the dataset threw something other than a std::exception");
  }
}

// Every block has room for a full batch: the last one of an epoch is filled
// again, too.
absl::Status Loader::Place(Batch& batch, size_t samples) {
  const auto width = static_cast<size_t>(dataset_.input_size());
  const auto most = static_cast<size_t>(options_.batch_size);
  // Labels begin on a cache line of their own.
  constexpr size_t kCacheLine = 64;
  const size_t labels = RoundUp(most * width * sizeof(float), kCacheLine);
  if (batch.block == nullptr) {
    COHORT_ASSIGN_OR_RETURN(std::byte* const memory,
                            memory_.Allocate(labels + most * sizeof(int64_t)));
    batch.block = BatchBlock(memory, {&memory_});
  }
  std::byte* const begin = batch.block.get();
  batch.inputs = {reinterpret_cast<float*>(begin), samples * width};
  batch.labels = {reinterpret_cast<int64_t*>(begin + labels), samples};
  return absl::OkStatus();
}

}  // namespace cohort::trainer

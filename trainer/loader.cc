#include "trainer/loader.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/round_up.h"
#include "common/status_macros.h"

namespace cohort::trainer {

absl::StatusOr<std::unique_ptr<Loader>> Loader::Create(
    const Dataset& dataset, const SamplerOptions& sampler,
    LoaderOptions options) {
  if (options.batch_size < 1 || options.prefetch < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("batches of ", options.batch_size, ", ", options.prefetch,
                     " of them ahead: both must be positive"));
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
  COHORT_RETURN_IF_ERROR(sampler_.StartEpoch(epoch, cursor));
  epoch_size_ = sampler_.epoch_size();
  {
    MutexLock lock(mutex_);
    failed_ = absl::OkStatus();
    done_ = false;
    stop_ = false;
  }
  thread_ = std::thread([this] { ReadAhead(); });
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Batch>> Loader::Next() {
  MutexLock lock(mutex_);
  while (ready_.empty() && !done_) changed_.Wait(mutex_);
  if (ready_.empty()) {
    if (!failed_.ok()) return failed_;
    return std::nullopt;
  }
  Batch batch = std::move(ready_.front());
  ready_.pop_front();
  changed_.SignalAll();
  return batch;
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
  if (thread_.joinable()) thread_.join();
  MutexLock lock(mutex_);
  for (Batch& batch : ready_) spare_.push_back(std::move(batch));
  ready_.clear();
  done_ = true;
}

void Loader::ReadAhead() {
  absl::Status status;
  while (sampler_.remaining() > 0 && WaitForRoom()) {
    Batch batch = TakeSpare();
    status = Fill(batch);
    if (!status.ok()) break;
    MutexLock lock(mutex_);
    ready_.push_back(std::move(batch));
    changed_.SignalAll();
  }
  MutexLock lock(mutex_);
  failed_ = std::move(status);
  done_ = true;
  changed_.SignalAll();
}

bool Loader::WaitForRoom() {
  MutexLock lock(mutex_);
  while (!stop_ && ready_.size() >= static_cast<size_t>(options_.prefetch)) {
    changed_.Wait(mutex_);
  }
  return !stop_;
}

Batch Loader::TakeSpare() {
  MutexLock lock(mutex_);
  if (spare_.empty()) return {};
  Batch batch = std::move(spare_.back());
  spare_.pop_back();
  return batch;
}

absl::Status Loader::Fill(Batch& batch) {
  const std::span<const int64_t> ids = sampler_.Take(options_.batch_size);
  batch.ids.assign(ids.begin(), ids.end());
  COHORT_RETURN_IF_ERROR(Place(batch, ids.size()));
  batch.cursor = sampler_.cursor();
  batch.hash = sampler_.hash();
  batch.last = sampler_.remaining() == 0;
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

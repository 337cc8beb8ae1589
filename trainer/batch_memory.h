#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "common/round_up.h"

namespace cohort::trainer {

// Where the batches of a loader lie: the process's own memory, or such as a GPU
// reads by itself.
//
// Thread-safe: a loader allocates on its own thread, and a batch is given back
// wherever it ends.
class BatchMemory {
 public:
  virtual ~BatchMemory() = default;

  // 64-byte aligned, not zeroed.  RESOURCE_EXHAUSTED when there is not that
  // much; else what the source says.
  virtual absl::StatusOr<std::byte*> Allocate(size_t bytes) = 0;
  // Takes back what Allocate gave.  A source whose memory others read later
  // than the thread that told them to waits for them here.
  virtual void Free(std::byte* memory) = 0;
};

// The process's own.
class PlainMemory final : public BatchMemory {
 public:
  // The one of the process, never destroyed: batches may outlive their loader.
  static PlainMemory& OfProcess() {
    static auto& memory = *new PlainMemory;
    return memory;
  }

  absl::StatusOr<std::byte*> Allocate(size_t bytes) override {
    auto* const memory = static_cast<std::byte*>(
        std::aligned_alloc(kAlignment, RoundUp(bytes, kAlignment)));
    if (memory != nullptr) return memory;
    return absl::ResourceExhaustedError(
        absl::StrCat("no ", bytes, " bytes of memory for a batch"));
  }
  void Free(std::byte* memory) override { std::free(memory); }

 private:
  static constexpr size_t kAlignment = 64;
};

// Gives a block back to where it came from.
struct FreeBatchMemory {
  BatchMemory* source = nullptr;

  void operator()(std::byte* memory) const { source->Free(memory); }
};
using BatchBlock = std::unique_ptr<std::byte, FreeBatchMemory>;

}  // namespace cohort::trainer

#include "trainer/pinned_memory.h"

#include "common/log.h"
#include "common/status_macros.h"

namespace cohort::trainer {

absl::StatusOr<std::byte*> PinnedMemory::Allocate(size_t bytes) {
  COHORT_RETURN_IF_ERROR(device_.Enter());
  const absl::StatusOr<std::byte*> pinned = device_.AllocatePinned(bytes);
  if (pinned.ok()) {
    MutexLock lock(mutex_);
    pinned_.insert(*pinned);
    return pinned;
  }
  if (!absl::IsResourceExhausted(pinned.status())) return pinned;
  if (!has_warned_.exchange(true)) {
    COHORT_LOG(kWarning, "batches_not_pinned", {"why", pinned.status()},
               {"so", "they go up to the GPU more slowly"});
  }
  return PlainMemory::OfProcess().Allocate(bytes);
}

bool PinnedMemory::Forget(std::byte* memory) {
  MutexLock lock(mutex_);
  return pinned_.erase(memory) > 0;
}

void PinnedMemory::Free(std::byte* memory) {
  const bool was_pinned = Forget(memory);
  if (!device_.Enter().ok() || !await_copies_().ok()) return;
  if (was_pinned) {
    device_.FreePinned(memory);
  } else {
    PlainMemory::OfProcess().Free(memory);
  }
}

}  // namespace cohort::trainer

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "head/store/memory_store.h"
#include "head/store/store.h"

namespace cohort::sim {

// The cap of history's events, which go by nothing else in so short a time.
inline constexpr uint64_t kEventsKept = 100;

// What a head's store does wrong on purpose, for tests of the invariants.
enum class StoreFlaw : uint8_t {
  kNone,
  kLosesEvents,    // one row of one table, now and then
  kSplitsBatches,  // into two, each of which is durable by itself
};

// A head's store on a memory disk, which looks at what is written:
//
//   CM-2: what belongs together is in one batch: events and the row that
//         numbers them.
//   EV-1: events have numbers without holes.
//   HI-2: the newest kEventsKept are not trimmed.
//
// Thread-compatible.
class SimStore final : public head::Store {
 public:
  using Violate = std::function<void(const std::string&)>;

  // `disk` outlives it.
  SimStore(head::MemoryDisk& disk, StoreFlaw flaw, Violate violate)
      : disk_(disk), store_(disk), flaw_(flaw), violate_(std::move(violate)) {}

  absl::Status Append(uint64_t term, const head::Batch& batch) override;
  absl::Status Scan(head::Table table, const std::string& first, size_t limit,
                    head::RowVisitor each) override {
    return store_.Scan(table, first, limit, each);
  }
  absl::Status Checkpoint(const std::string& directory) override {
    return store_.Checkpoint(directory);
  }

  // Whether history may have trimmed the event of that number, and has.
  static bool IsTrimmed(const head::MemoryDisk& disk, uint64_t number);

 private:
  absl::Status AppendChecked(uint64_t term, const head::Batch& batch);
  // The violation in `batch`, which is about to be written; empty: none.
  std::string Check(const head::Batch& batch) const;

  head::MemoryDisk& disk_;
  head::MemoryStore store_;
  const StoreFlaw flaw_;
  const Violate violate_;
};

}  // namespace cohort::sim

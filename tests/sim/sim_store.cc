#include "tests/sim/sim_store.h"

#include <optional>

#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "head/store/records_codec.h"

namespace cohort::sim {
namespace {

using head::Batch;
using head::ClusterRecord;
using head::EventRecord;
using head::Table;
using head::Write;

// One batch in so many loses its first event when it is to lose some.
constexpr int kLosesOneIn = 16;

std::optional<ClusterRecord> ClusterOf(const std::optional<std::string>& row) {
  if (!row.has_value()) return std::nullopt;
  auto record = head::FromRow<ClusterRecord>(head::RowKey(), *row);
  if (!record.ok()) return std::nullopt;
  return *std::move(record);
}

std::optional<ClusterRecord> AfterBatch(std::optional<ClusterRecord> cluster,
                                        const Batch& batch) {
  for (const Write& write : batch) {
    if (write.table == Table::kCluster) cluster = ClusterOf(write.value);
  }
  return cluster;
}

}  // namespace

absl::Status SimStore::Append(uint64_t term, const Batch& batch) {
  if (flaw_ == StoreFlaw::kLosesEvents &&
      disk_.appends() % kLosesOneIn == kLosesOneIn - 1) {
    // Unseen here: the followers of the events are to notice.
    Batch rest;
    bool lost = false;
    for (const Write& write : batch) {
      const bool loses =
          !lost && write.table == Table::kEvents && write.value.has_value();
      lost = lost || loses;
      if (!loses) rest.push_back(write);
    }
    return store_.Append(term, rest);
  }
  if (flaw_ == StoreFlaw::kSplitsBatches && batch.size() > 1 && term > 0) {
    // Only where the fence lets the second half pass.
    const auto now = ClusterOf(disk_.Find(Table::kCluster, head::RowKey()));
    const auto then = AfterBatch(now, batch);
    if (now.has_value() && then.has_value() && now->term() == then->term()) {
      const Batch first(batch.begin(), batch.end() - 1);
      COHORT_RETURN_IF_ERROR(AppendChecked(term, first));
      return AppendChecked(term, {batch.back()});
    }
  }
  return AppendChecked(term, batch);
}

absl::Status SimStore::AppendChecked(uint64_t term, const Batch& batch) {
  const std::string violation = Check(batch);
  if (!violation.empty()) violate_(violation);
  return store_.Append(term, batch);
}

bool SimStore::IsTrimmed(const head::MemoryDisk& disk, uint64_t number) {
  const auto cluster = ClusterOf(disk.Find(Table::kCluster, head::RowKey()));
  return cluster.has_value() && number + kEventsKept < cluster->next_event() &&
         !disk.Find(Table::kEvents, head::RowKey(number)).has_value();
}

std::string SimStore::Check(const Batch& batch) const {
  const std::optional<ClusterRecord> before =
      ClusterOf(disk_.Find(Table::kCluster, head::RowKey()));
  const uint64_t first = before.value_or(head::NewCluster()).next_event();
  uint64_t next = first;
  for (const Write& write : batch) {
    if (write.table != Table::kEvents || !write.value.has_value()) continue;
    const auto event = head::FromRow<EventRecord>(write.key, *write.value);
    if (!event.ok()) return "ST-1: " + event.status().ToString();
    if (event->number() != next) {
      return absl::StrCat("EV-1: event ", event->number(), " is written where ",
                          next, " is due");
    }
    ++next;
  }
  const uint64_t says =
      AfterBatch(before, batch).value_or(head::NewCluster()).next_event();
  for (const Write& write : batch) {
    if (write.table == Table::kEvents && !write.value.has_value() &&
        says > kEventsKept && write.key >= head::RowKey(says - kEventsKept)) {
      return absl::StrCat("HI-2: one of the newest ", kEventsKept,
                          " events is trimmed");
    }
  }
  if (says == next) return "";
  return absl::StrCat("CM-2: ", next - first, " events from ", first,
                      " on are written, and the row with them says ", says);
}

}  // namespace cohort::sim

#include "tests/sim/sim_restore.h"

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "head/archive/restore.h"
#include "head/state/attempt_table.h"
#include "head/state/rows.h"
#include "head/store/records_codec.h"

namespace cohort::sim {
namespace {

using head::AttemptRecord;
using head::AttemptState;
using head::Batch;
using head::Table;

Batch RowsOf(head::MemoryDisk& disk) {
  Batch rows;
  head::MemoryStore store(disk);
  for (const Table table : head::kAllTables) {
    const auto all = store.LoadAll(table);
    COHORT_CHECK(all.ok()) << all.status();
    for (const auto& [key, value] : *all) rows.push_back({table, key, value});
  }
  return rows;
}

bool IsWanted(const AttemptRecord& attempt) {
  return attempt.state == v1::ATTEMPT_STATE_PREPARING ||
         attempt.state == v1::ATTEMPT_STATE_RUNNING;
}

head::ClusterRecord ClusterOf(const head::MemoryDisk& disk) {
  const auto row = disk.Find(Table::kCluster, head::RowKey());
  COHORT_CHECK(row.has_value());
  auto record = head::FromRow<head::ClusterRecord>(head::RowKey(), *row);
  COHORT_CHECK(record.ok()) << record.status();
  return *std::move(record);
}

}  // namespace

void Restores::TakeBackup() { backup_ = RowsOf(disk_); }

void Restores::Replace() {
  ++count_;
  const Batch there = RowsOf(disk_);
  Batch batch;
  for (const head::Write& row : there) {
    batch.push_back({row.table, row.key, std::nullopt});
    if (row.table != Table::kAttempts) continue;
    const auto attempt = head::FromRow<AttemptRecord>(row.key, *row.value);
    COHORT_CHECK(attempt.ok()) << attempt.status();
    before_.insert(attempt->id);
    if (IsWanted(*attempt)) wanted_.insert(attempt->id);
  }
  batch.insert(batch.end(), backup_->begin(), backup_->end());
  const absl::Status back =
      head::MemoryStore(disk_).Append(ClusterOf(disk_).term(), batch);
  COHORT_CHECK(back.ok()) << back;
}

Batch Restores::PutBack(bool is_followed) {
  const head::ClusterRecord there = ClusterOf(disk_);
  Replace();
  if (is_followed) {
    head::ClusterRecord cluster = ClusterOf(disk_);
    const uint64_t term = cluster.term();
    cluster.set_term(there.term());
    *cluster.mutable_lives() = there.lives();
    const absl::Status changed =
        head::MemoryStore(disk_).Append(term, {head::ToWrite(cluster)});
    COHORT_CHECK(changed.ok()) << changed;
  }
  return RowsOf(disk_);
}

Batch Restores::Restore(absl::Time now, Random& random, bool keep_generation) {
  const auto lives = ClusterOf(disk_).lives();
  Replace();
  head::MemoryStore store(disk_);
  absl::StatusOr<head::Rows> rows = head::LoadRows(store);
  COHORT_CHECK(rows.ok()) << rows.status();
  const uint64_t term = rows->cluster->term();
  const std::string generation = rows->cluster->generation();
  Batch changes = head::ChangeGeneration(*rows, "user/sim", now, random);
  if (keep_generation) {
    rows->cluster->set_generation(generation);
    rows->cluster->set_settling(false);
    *rows->cluster->mutable_lives() = lives;
    changes.push_back(head::ToWrite(*rows->cluster));
  }
  const absl::Status changed = store.Append(term, changes);
  COHORT_CHECK(changed.ok()) << changed;
  return RowsOf(disk_);
}

std::string Restores::MayEnd(const NodeId& node,
                             const ProcessId& process) const {
  const AttemptId& attempt = process.attempt;
  // The head before may have ordered it.
  const bool may_be_older =
      before_.contains(attempt) && !wanted_.contains(attempt);
  if (may_be_older) return "";
  const auto row = disk_.FindSynced(Table::kAttempts, head::RowKey(attempt));
  if (!row.has_value()) {
    if (!before_.contains(attempt) || spoken_for_.contains(attempt)) return "";
    return absl::StrCat("OR-1: attempt ", attempt.ToHex(),
                        ", which began after the backup, is ended unasked");
  }
  const auto record = head::FromRow<AttemptRecord>(head::RowKey(attempt), *row);
  if (!record.ok()) return "ST-1: " + record.status().ToString();
  if (record->orphaned()) {
    return absl::StrCat("OR-1: attempt ", attempt.ToHex(),
                        " is ended while it is an orphan");
  }
  if (!IsWanted(*record)) return "";
  const std::string key =
      head::RowKey(attempt, static_cast<uint64_t>(process.slot));
  const auto own = disk_.FindSynced(Table::kProcesses, key);
  std::optional<head::Process> wanted;
  if (own.has_value()) {
    const auto read = head::FromRow<head::ProcessRecord>(key, *own);
    if (!read.ok()) return "ST-1: " + read.status().ToString();
    wanted = read->process;
  } else if (static_cast<size_t>(process.slot) < record->processes.size()) {
    wanted = record->processes[static_cast<size_t>(process.slot)];
  }
  if (!wanted.has_value() || wanted->incarnation != process.incarnation ||
      wanted->node != node || wanted->over() || wanted->leaving ||
      wanted->retired) {
    return "";
  }
  return absl::StrCat("RC-1: process ", process.ToText(),
                      " is ended, which the head wants to run");
}

}  // namespace cohort::sim

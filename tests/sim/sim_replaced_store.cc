// Backups and copies of the head's store in a SimCluster, and who speaks for
// the earlier attempts.
#include <string>

#include "absl/strings/str_cat.h"

#include "head/store/records_codec.h"
#include "rpc/methods.h"
#include "tests/sim/sim_cluster.h"

namespace cohort::sim {

void SimCluster::TakeBackup(bool of_a_head_that_ends) {
  if (!faulty_ && options_.faulty) return;
  if (head_ == nullptr || head_->state() == nullptr || head_->read_only() ||
      !head_->settled()) {
    executor_.PostAfter(absl::Milliseconds(20), [this, of_a_head_that_ends] {
      TakeBackup(of_a_head_that_ends);
    });
    return;
  }
  Fired("backup_taken");
  disk_.Sync();
  restores_.TakeBackup();
  // A copy that is made while its head goes on is not told from the store
  // (docs/design/0003-head.md).
  if (of_a_head_that_ends) KillHead();
}

void SimCluster::RestoreBackup() {
  if (!restores_.has_backup()) return;
  Fired("backup_restored");
  EndHeadForGood();
  restoring_ = true;
  const head::Batch rows =
      restores_.Restore(clock_.Wall(), random_,
                        options_.broken == Break::kRestoreKeepsGeneration);
  restoring_ = false;
  OnReplaced(rows, /*as_a_copy=*/false);
  executor_.PostAfter(absl::Seconds(3), [this] { UndrainAll(); });
  executor_.PostAfter(absl::Seconds(2), [this] { SpeakForOrphans(); });
}

void SimCluster::PutCopyBack() {
  if (!restores_.has_backup()) return;
  Fired("copy_put_back");
  EndHeadForGood();
  restoring_ = true;
  const head::Batch rows =
      restores_.PutBack(options_.broken == Break::kCopyIsFollowed);
  restoring_ = false;
  OnReplaced(rows, /*as_a_copy=*/true);
  executor_.PostAfter(absl::Milliseconds(2000 + random_.Below(9000)), [this] {
    EndHeadForGood();
    disk_.Sync();
    restores_.TakeBackup();
    RestoreBackup();
  });
}

void SimCluster::EndHeadForGood() {
  KillHead();
  crashing_.reset();
  crash_at_next_write_.reset();
  disk_.Heal();
}

void SimCluster::OnReplaced(const head::Batch& rows, bool as_a_copy) {
  const std::string violation = history_.OnRestored(rows, as_a_copy);
  if (!violation.empty()) Violate(violation);
  const auto holds = [this](const JobId& job) {
    const std::string key = head::RowKey(job);
    return disk_.Find(head::Table::kJobs, key).has_value() ||
           disk_.Find(head::Table::kArrays, key).has_value();
  };
  for (const auto& client : clients_) client->Restored(holds);
  for (const auto& program : programs_) program->Restored(holds);
  shown_.clear();
  // The backup may be of a time when one of them was given up.
  for (Node& node : nodes_) {
    node.disturbed_at = executor_.Monotonic();
    node.was_dead = false;
  }
  for (const auto& follower : followers_) follower->StartAnew();
}

// Nobody remembers who was drained when the backup was taken.
void SimCluster::UndrainAll() {
  for (Node& node : nodes_) {
    node.drain_asked = true;
    Undrain(node);
  }
}

void SimCluster::SpeakForOrphans() {
  executor_.PostAfter(absl::Seconds(2), [this] { SpeakForOrphans(); });
  if (head_ == nullptr || head_->state() == nullptr) return;
  for (const auto& [id, entry] : head_->state()->orphans().all()) {
    if (faulty_ && random_.Below(3) != 0) continue;
    SpeakFor(entry);
  }
}

void SimCluster::SpeakFor(const head::OrphanTable::Entry& entry) {
  Client& person = *clients_[random_.Below(clients_.size())];
  const std::string id = absl::StrCat("word-", words_++);
  spoken_jobs_.insert(entry.job);
  if (random_.Below(2) == 0) {
    v1::AdoptAttemptRequest request;
    request.set_request_id(id);
    request.set_attempt_id(std::string(entry.attempt.bytes()));
    person.Insist(
        rpc::kAdoptAttempt, request, [this](const absl::Status& status) {
          counters_.Count(status.ok() ? "orphan_adopted" : "adopt_refused");
        });
    return;
  }
  restores_.SpokenFor(entry.attempt, entry.job);
  v1::EndAttemptRequest request;
  request.set_request_id(id);
  request.set_attempt_id(std::string(entry.attempt.bytes()));
  person.Insist(rpc::kEndAttempt, request, [this](const absl::Status& status) {
    counters_.Count(status.ok() ? "orphan_ended" : "end_refused");
  });
}

std::string SimCluster::MayStart(const v1::DesiredPlace& starting) const {
  const AttemptId id = *AttemptId::FromBytes(starting.attempt_id());
  if (restores_.count() == 0 || restores_.WasWanted(id) || head_ == nullptr ||
      head_->state() == nullptr) {
    return "";
  }
  for (const auto& [other, entry] : head_->state()->orphans().all()) {
    if (other == id || entry.job.bytes() != starting.job_id()) continue;
    for (const Node& node : nodes_) {
      // A dead node's lease has run out, whatever goes on there.
      if (node.was_dead || !node.machine->Live().contains(other)) continue;
      return absl::StrCat("OR-2: attempt ", id.ToHex(),
                          " begins while attempt ", other.ToHex(),
                          " of its job ", entry.job.ToText(),
                          " is an orphan on ", node.machine->name());
    }
  }
  for (const auto& [other, job] : restores_.spoken_for()) {
    if (other == id || job.bytes() != starting.job_id()) continue;
    // With a row it is one as any other (JB-3).
    if (head_->state()->attempts().Find(other) != nullptr) continue;
    for (const Node& node : nodes_) {
      if (node.was_dead || !node.machine->Live().contains(other)) continue;
      return absl::StrCat("OR-2: attempt ", id.ToHex(),
                          " begins while another of its job, which a person "
                          "ended, still runs");
    }
  }
  return "";
}

}  // namespace cohort::sim

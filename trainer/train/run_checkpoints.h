#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/clock.h"
#include "trainer/checkpoint.h"
#include "trainer/checkpoint_writer.h"
#include "trainer/session.h"
#include "trainer/train/backend.h"
#include "trainer/train/history.h"
#include "trainer/train/metrics.h"
#include "trainer/train/part.h"

namespace cohort::train {

// When a run is saved.  It always is when the loop over Epochs has ended, and
// when a rank gets a deadline by which it must leave.
struct CheckpointPolicy {
  int64_t steps = 0;  // every so many; 0: not by steps
  absl::Duration interval = absl::InfiniteDuration();
  bool epoch_ends = true;
  // When Evaluate finds a better value of the score attribute
  // (RunConfig::checkpoint_config) than this run has had.
  bool on_improvement = false;
};

// What of a run was saved and is to be: the checkpoint that it goes on from,
// when the next one is due, what is in it, and the writing of it.
//
// Run calls it; it calls no collective but those of the CheckpointWriter, whose
// rules hold: every rank makes the same calls.  Thread-compatible.
class RunCheckpoints {
 public:
  struct Options {
    // The metric by which checkpoints are scored; empty: they are not.
    std::string score_attribute;
    bool score_is_loss = false;  // the lower, the better
    // For the manifests (trainer/checkpoint_manifest.h).
    std::string package;
    std::string spec;
  };
  // Where a run stands between two steps.
  struct Place {
    int64_t step = 0;
    int64_t epoch = 0;
    int64_t cursor = 0;
  };
  using Encode = std::function<absl::StatusOr<std::string>()>;

  // All outlive it; `backend` may be null.
  RunCheckpoints(trainer::Session& session, Backend* backend,
                 const Clock& clock, Options options);

  // ---- what the run goes on from ----

  // Reads it, and its history into `history`; where the run stands then.
  // Errors of ReadCheckpoint, NotFound with what to do; DataLoss.
  absl::StatusOr<Place> Restore(const std::string& path, History& history);
  // What it has of a part; null: the run is new.
  absl::StatusOr<const trainer::SafetensorsFile*> Saved(
      const std::string& name) const;
  // What it has of a State; NotFound: the run is new, or it has none.
  absl::StatusOr<std::string> SavedState(const std::string& name) const;
  // This rank's generators as they were, once; nothing where the ranks were
  // others, or the program had no such backend.
  absl::Status RestoreRandom();
  // What the run trains on, for the manifests.  InvalidArgument when the
  // checkpoint is of something else.
  absl::Status SetData(uint64_t seed, std::map<std::string, std::string> facts);

  // ---- when one is due ----

  void SetPolicy(const CheckpointPolicy& policy) { policy_ = policy; }
  bool IsIntervalOver() const {
    return clock_.Monotonic() - saved_at_ >= policy_.interval;
  }
  // A step has ended, with what the ranks agreed on.
  void NoteStep(int64_t step, bool interval_over, bool is_leaving);
  void NoteEpochEnd() { is_due_ = is_due_ || policy_.epoch_ends; }
  // Whether the score of this step is the best so far, and that is to be saved.
  bool NoteScore(const History& history, int64_t step);
  void MakeDue() { is_due_ = true; }
  bool is_due() const { return is_due_; }
  // None is due any more.  Whether that step is still to be saved.
  bool TakeTurn(int64_t step);

  // ---- what is saved, and how ----

  // Names of files that are no part's.
  static bool IsOwnName(const std::string& name);
  void SetState(const std::string& name, Encode encode) {
    states_[name] = std::move(encode);
  }
  // REQUIRES: !is_writing().
  absl::Status Begin(const Place& place,
                     const std::vector<std::shared_ptr<Part>>& parts,
                     const History& history, const Metrics& metrics);
  bool is_writing() const { return writer_.is_writing(); }
  // This rank has come to the end of a stage.
  bool IsReady() const { return writer_.IsReady(); }
  // With all ranks: one stage more, or all of them.  Whether it is there now.
  absl::StatusOr<bool> GoOn(bool to_the_end, absl::Duration timeout);
  // The last one that this attempt committed, or began from.
  const std::optional<trainer::CheckpointRecord>& last() const { return last_; }

 private:
  // The higher the better; none yet, or not asked for.
  std::optional<double> ScoreOf(const Metrics& metrics) const;
  std::optional<double> ScoreAt(const History& history, int64_t step) const;
  // Their bytes are in `encoded`.
  absl::StatusOr<trainer::CheckpointFile> StateFile(
      std::map<std::string, std::string>& encoded) const;

  trainer::Session& session_;
  Backend* const backend_;
  const Clock& clock_;
  const Options options_;

  std::optional<trainer::Checkpoint> restored_;
  bool random_restored_ = false;
  std::map<std::string, Encode> states_;
  std::map<std::string, std::string> facts_;  // of the manifest
  uint64_t seed_ = 0;

  CheckpointPolicy policy_;
  int64_t saved_step_ = -1;
  absl::Duration saved_at_;
  bool is_due_ = false;
  bool saved_to_leave_ = false;
  std::optional<double> best_score_;

  trainer::CheckpointWriter writer_;
  // What writer_ is writing.
  trainer::CheckpointRecord saving_;
  std::optional<trainer::CheckpointRecord> last_;
};

}  // namespace cohort::train

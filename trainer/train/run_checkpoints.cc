#include "trainer/train/run_checkpoints.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::train {
namespace {

using trainer::CheckpointFile;
using trainer::CheckpointManifest;
using trainer::SafetensorsFile;
using trainer::TensorMetadata;
using trainer::TensorType;
using trainer::TensorView;

constexpr char kHistory[] = "history";
constexpr char kState[] = "state";
constexpr char kRandom[] = "random";

std::string RandomName(int rank) { return absl::StrCat("random.", rank); }
std::string StateName(const std::string& name) {
  return absl::StrCat("state.", name);
}

TensorView BytesOf(std::string name, const std::string& bytes) {
  return {std::move(name),
          TensorType::kU8,
          {static_cast<int64_t>(bytes.size())},
          std::as_bytes(std::span(bytes))};
}

std::string TextOf(const TensorView& view) {
  return {reinterpret_cast<const char*>(view.bytes.data()), view.bytes.size()};
}

}  // namespace

RunCheckpoints::RunCheckpoints(trainer::Session& session, Backend* backend,
                               const Clock& clock, Options options)
    : session_(session),
      backend_(backend),
      clock_(clock),
      options_(std::move(options)),
      saved_at_(clock.Monotonic()),
      writer_(session.comm(), session.place().checkpoint_root) {}

// ---- what the run goes on from ----

absl::StatusOr<RunCheckpoints::Place> RunCheckpoints::Restore(
    const std::string& path, History& history) {
  absl::StatusOr<trainer::Checkpoint> checkpoint =
      trainer::ReadCheckpoint(path);
  if (absl::IsNotFound(checkpoint.status())) {
    return Annotate(checkpoint.status(),
                    "every node of the gang must see the storage path");
  }
  COHORT_RETURN_IF_ERROR(checkpoint.status());
  restored_ = *std::move(checkpoint);
  const auto file = restored_->Find(kHistory);
  COHORT_RETURN_IF_ERROR(Annotate(file.status(), path));
  COHORT_RETURN_IF_ERROR(Annotate(history.Load(**file), path));
  for (const HistoryRow& row : history.Rows()) {
    const std::optional<double> score = ScoreOf(row.metrics);
    if (score.has_value()) {
      best_score_ = std::max(best_score_.value_or(*score), *score);
    }
  }
  const CheckpointManifest& manifest = restored_->manifest;
  saved_step_ = manifest.step;
  last_ = {path, manifest.step, manifest.epoch};
  return Place{.step = manifest.step,
               .epoch = manifest.data_epoch,
               .cursor = manifest.cursor};
}

absl::StatusOr<const SafetensorsFile*> RunCheckpoints::Saved(
    const std::string& name) const {
  if (!restored_.has_value()) return nullptr;
  return restored_->Find(name);
}

absl::StatusOr<std::string> RunCheckpoints::SavedState(
    const std::string& name) const {
  COHORT_ASSIGN_OR_RETURN(const SafetensorsFile* file, Saved(kState));
  if (file == nullptr) return absl::NotFoundError("a new run");
  COHORT_ASSIGN_OR_RETURN(const TensorView view, file->Find(StateName(name)));
  return TextOf(view);
}

absl::Status RunCheckpoints::RestoreRandom() {
  if (std::exchange(random_restored_, true) || backend_ == nullptr ||
      !restored_.has_value()) {
    return absl::OkStatus();
  }
  // Another number of ranks draws other numbers: there are no right ones.
  if (restored_->manifest.world != session_.world()) return absl::OkStatus();
  const auto file = restored_->Find(kRandom);
  // Of a program without this backend.
  if (!file.ok()) return absl::OkStatus();
  COHORT_ASSIGN_OR_RETURN(const TensorView state,
                          (*file)->Find(RandomName(session_.rank())));
  return backend_->RestoreRandomState(TextOf(state));
}

absl::Status RunCheckpoints::SetData(uint64_t seed,
                                     std::map<std::string, std::string> facts) {
  seed_ = seed;
  facts_ = std::move(facts);
  if (!restored_.has_value()) return absl::OkStatus();
  return Annotate(trainer::CheckSameRun(restored_->manifest, seed_, facts_),
                  absl::StrCat("checkpoint ", last_->path));
}

// ---- when one is due ----

void RunCheckpoints::NoteStep(int64_t step, bool interval_over,
                              bool is_leaving) {
  is_due_ = is_due_ || interval_over ||
            (policy_.steps > 0 && step % policy_.steps == 0) ||
            (is_leaving && !std::exchange(saved_to_leave_, true));
}

std::optional<double> RunCheckpoints::ScoreOf(const Metrics& metrics) const {
  const auto found = metrics.find(options_.score_attribute);
  if (found == metrics.end()) return std::nullopt;
  return options_.score_is_loss ? -found->second : found->second;
}

std::optional<double> RunCheckpoints::ScoreAt(const History& history,
                                              int64_t step) const {
  if (history.size() == 0) return std::nullopt;
  // What was measured earlier is not this state's.
  const HistoryRow row = history.Row(history.size() - 1);
  return row.step == step ? ScoreOf(row.metrics) : std::nullopt;
}

bool RunCheckpoints::NoteScore(const History& history, int64_t step) {
  const std::optional<double> score = ScoreAt(history, step);
  if (!score.has_value() || *score <= best_score_.value_or(*score - 1)) {
    return false;
  }
  best_score_ = score;
  return policy_.on_improvement;
}

bool RunCheckpoints::TakeTurn(int64_t step) {
  is_due_ = false;
  saved_at_ = clock_.Monotonic();
  return std::exchange(saved_step_, step) != step;
}

// ---- what is saved, and how ----

bool RunCheckpoints::IsOwnName(const std::string& name) {
  return name == kHistory || name == kState || name == kRandom;
}

absl::StatusOr<CheckpointFile> RunCheckpoints::StateFile(
    std::map<std::string, std::string>& encoded) const {
  CheckpointFile file{.name = kState, .by = CheckpointFile::By::kLead};
  for (const auto& [name, encode] : states_) {
    COHORT_ASSIGN_OR_RETURN(encoded[StateName(name)], encode());
  }
  for (const auto& [name, bytes] : encoded) {
    file.tensors.push_back(BytesOf(name, bytes));
  }
  return file;
}

absl::Status RunCheckpoints::Begin(
    const Place& place, const std::vector<std::shared_ptr<Part>>& parts,
    const History& history, const Metrics& metrics) {
  const trainer::RunPlace& gang = session_.place();
  CheckpointManifest manifest{.job_id = gang.job_id,
                              .attempt = gang.attempt,
                              .epoch = gang.epoch,
                              .world = gang.world,
                              .step = place.step,
                              .data_epoch = place.epoch,
                              .cursor = place.cursor,
                              .seed = seed_,
                              .program = facts_,
                              .package = options_.package,
                              .spec = options_.spec,
                              .metrics = metrics};
  std::vector<CheckpointFile> files;
  for (const auto& part : parts) {
    COHORT_ASSIGN_OR_RETURN(files.emplace_back(), part->Save());
    const TensorMetadata& metadata = files.back().metadata;
    const auto kind = metadata.find(kOptimizerKind);
    if (kind != metadata.end())
      manifest.optimizers[part->name()] = kind->second;
  }
  files.push_back({.name = kHistory, .tensors = history.Tensors()});
  // They hold the bytes that the views name.
  std::map<std::string, std::string> states;
  COHORT_ASSIGN_OR_RETURN(files.emplace_back(), StateFile(states));
  std::string random;
  if (backend_ != nullptr) {
    COHORT_ASSIGN_OR_RETURN(random, backend_->RandomState());
    files.push_back({.name = kRandom,
                     .tensors = {BytesOf(RandomName(session_.rank()), random)},
                     .by = CheckpointFile::By::kEach});
  }
  const std::optional<double> score = ScoreAt(history, place.step);
  saving_ = {"", place.step, gang.epoch, score};
  return writer_.Begin(
      manifest, files,
      [this, step = place.step, score](const std::string& path) {
        return session_.CommitCheckpoint(path, step, score);
      });
}

absl::StatusOr<bool> RunCheckpoints::GoOn(bool to_the_end,
                                          absl::Duration timeout) {
  std::optional<std::string> path;
  do {
    COHORT_ASSIGN_OR_RETURN(path, writer_.Advance(timeout));
  } while (to_the_end && !path.has_value());
  if (!path.has_value()) return false;
  saving_.path = *std::move(path);
  last_ = saving_;
  return true;
}

}  // namespace cohort::train

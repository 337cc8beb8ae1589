#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "actor/codec.h"
#include "common/clock.h"
#include "trainer/checkpoint.h"
#include "trainer/comm/comm.h"
#include "trainer/dataset.h"
#include "trainer/loader.h"
#include "trainer/session.h"
#include "trainer/train/backend.h"
#include "trainer/train/history.h"
#include "trainer/train/loss_curve.h"
#include "trainer/train/metrics.h"
#include "trainer/train/part.h"
#include "trainer/train/run_checkpoints.h"

namespace cohort::train {

class Run;

struct DataOptions {
  int64_t batch_size = 64;  // of each rank
  bool shuffle = true;
  bool drop_last = false;  // the samples that do not divide evenly over ranks
  uint64_t seed = 0;       // of the shuffles
  // Threads that read batches ahead, which then come in the same order: more
  // than one where the loader's share of the time is large.
  int workers = 1;
};

// The batches of an epoch, from where the run stands.  For one range-for.
class Batches {
 public:
  struct End {};
  class Iterator {
   public:
    explicit Iterator(Batches& batches) : batches_(batches) {}
    trainer::Batch& operator*() const { return *batches_.batch_; }
    Iterator& operator++() {
      batches_.Next();
      return *this;
    }
    bool operator!=(End /*end*/) const { return batches_.batch_.has_value(); }

   private:
    Batches& batches_;
  };

  Batches(Run& run, trainer::Loader* loader) : run_(run), loader_(loader) {}

  Iterator begin();
  End end() const { return {}; }

 private:
  // Ends the step of the batch that is there, and reads the next one.
  void Next();
  void Read();

  Run& run_;
  trainer::Loader* const loader_;
  std::optional<trainer::Batch> batch_;
};

// A pass over the data.
class Epoch {
 public:
  Epoch(Run& run, int64_t number) : run_(run), number_(number) {}

  // From 0.
  int64_t number() const { return number_; }
  train::Batches Batches(trainer::Loader* loader) {
    return train::Batches(run_, loader);
  }

 private:
  Run& run_;
  int64_t number_;
};

// The epochs that a run has yet to do.  For one range-for.
class Epochs {
 public:
  struct End {};
  class Iterator {
   public:
    Iterator(Run& run, int64_t count) : run_(run), count_(count) {}
    Epoch operator*() const;
    Iterator& operator++();
    bool operator!=(End /*end*/) const;

   private:
    Run& run_;
    int64_t count_;
  };

  Epochs(Run& run, int64_t count) : run_(run), count_(count) {}
  Iterator begin() { return {run_, count_}; }
  End end() const { return {}; }

 private:
  Run& run_;
  int64_t count_;
};

// A rank's run of a training loop: the loop's one argument, besides its
// configuration (trainer/train/trainer.h).  It knows where the run stands,
// saves what was prepared, and goes on from what was saved: in the middle of an
// epoch too, and on CPUs bit by bit.
//
//   absl::Status Train(cohort::train::Run& run, const Config& config) {
//     Net net;
//     auto model = run.Prepare(net);
//     auto optimizer = run.Prepare(torch::optim::Adam(net->parameters()));
//     auto loader = run.Loader(dataset, {.batch_size = 64});
//     for (auto epoch : run.Epochs(3)) {
//       for (auto& batch : epoch.Batches(loader)) {
//         optimizer.zero_grad();
//         auto loss = cross_entropy(model(Inputs(batch)), Labels(batch));
//         run.Backward(loss);
//         optimizer.step();
//         run.Report({{"loss", loss}});
//       }
//     }
//     return run.status();
//   }
//
// An error makes everything after it do nothing, the loops end, and status()
// says what it was: a loop may look at each answer, or at its end.
//
//   TR-1: every rank calls Prepare, Loader, Epochs, Batches, Report and
//          Evaluate alike.
//   TR-2: a step is one batch.  It counts once all ranks have ended it; what a
//          checkpoint holds is the state between two steps.
//   TR-3: with the same ranks, data and options, what is restored is what an
//          undisturbed run had at that step: prepared parts, the place in the
//          data, the generators of random numbers, State and metrics.
//
// The ideas are Accelerate's (prepare, and the loop stays the user's) and Ray
// Train's (report).  Thread-compatible: the training thread owns it.
class Run {
 public:
  struct Options {
    // A checkpoint to go on from where the session names none.
    std::string resume_from;
    // A file of each step's metrics, one JSON object a line; empty: none.
    std::string metrics_file{};
    // Rank 0 is told of its metrics, at most once a second and at the end.
    std::function<void(const Metrics&)> on_metrics{};
    // The metric by which checkpoints are scored; empty: they are not.
    std::string score_attribute{};
    bool score_is_loss = false;  // the lower, the better
    // For the checkpoints' manifests (trainer/checkpoint_manifest.h).
    std::string package{};
    std::string spec{};
  };

  // All outlive it; `backend` may be null.
  Run(trainer::Session& session, Backend* backend, const Clock& clock,
      Options options);
  ~Run();

  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // ---- where it stands ----

  int rank() const { return session_.rank(); }
  int world() const { return session_.world(); }
  bool is_lead() const { return session_.is_lead(); }
  int64_t step() const { return step_; }  // steps that are over
  int64_t epoch() const { return epoch_; }
  trainer::Session& session() { return session_; }
  // For collectives of the loop's own.
  trainer::Comm& comm() const { return session_.comm(); }
  // A collective, of the run or of the loop's own, that some ranks do not come
  // to within this ends with DEADLINE_EXCEEDED, which names them.  Ten minutes
  // unless a loop says otherwise; alike on all ranks.  Not for those that wait
  // for a checkpoint.
  void SetCollectiveTimeout(absl::Duration timeout);
  // Of the last step that was reported, and evaluated.
  const Metrics& metrics() const { return metrics_; }
  const History& history() const { return history_; }
  // The last one that this attempt committed, or began from.
  const std::optional<trainer::CheckpointRecord>& checkpoint() const {
    return checkpoints_.last();
  }
  // The first error.
  const absl::Status& status() const { return status_; }
  // Makes `why` the run's error, unless it has one or `why` is OK; Fail gives
  // `why` back.
  absl::Status Fail(absl::Status why);
  void Note(absl::Status why);

  // ---- what is saved ----

  // A module, an optimizer and the like, by the header of who makes them
  // (trainer/torch/prepare.h): moved to the device, the same on all ranks,
  // restored, and saved from now on.
  template <typename T>
  auto Prepare(T&& object) {
    return PrepareIn(*this, std::forward<T>(object));
  }
  // Plain numbers, with rank 0's values: as Prepare.  They outlive the loop
  // over Epochs.
  absl::Status Prepare(const std::string& name, std::span<float> values);
  absl::Status Prepare(const std::string& name, std::span<double> values);

  // A value of the loop's own, alike on all ranks, of any type that a call can
  // carry (actor/codec.h): restored now, and saved from now on.  It outlives
  // the loop over Epochs.
  template <typename T>
  absl::Status State(const std::string& name, T& value) {
    const absl::StatusOr<std::string> saved = SavedState(name);
    if (saved.ok()) {
      absl::StatusOr<T> decoded = DecodeValue<T>(*saved);
      if (!decoded.ok()) return Fail(StateError(name));
      value = *std::move(decoded);
    }
    checkpoints_.SetState(name, [&value] { return EncodeValue(value); });
    return status_;
  }

  // Takes a copy of the state now, or in a step once it has ended; it is
  // written while the loop goes on, by all ranks together, and is there a step
  // or a few later, or when FinishCheckpoint returns.  One is written at a
  // time: the next waits for it.  That it could not be written is the run's
  // error, on all ranks, at the end of a later step.
  absl::Status Checkpoint();
  // Waits until the one that is being written, if any, is there.
  absl::Status FinishCheckpoint();
  void CheckpointEvery(const CheckpointPolicy& policy) {
    checkpoints_.SetPolicy(policy);
  }

  // ---- the loop ----

  // Batches of `dataset`, read ahead, each rank its own.  The checkpoint is to
  // be of the same data and options.  Null after an error; Batches takes that.
  trainer::Loader* Loader(std::shared_ptr<const trainer::Dataset> dataset,
                          const DataOptions& options = {});
  // What is left of `count` passes over the data, each one loop over Batches to
  // its end: FailedPrecondition for one that is left before.
  train::Epochs Epochs(int64_t count) { return {*this, count}; }
  // The loops end after that step of the whole run; 0: they do not.
  void StopAfter(int64_t step) { stop_after_ = step; }

  // Gradients of `loss`, averaged over ranks (the header of who makes it).
  template <typename Loss, typename... Options>
  absl::Status Backward(const Loss& loss, Options&&... options) {
    return BackwardIn(*this, loss, std::forward<Options>(options)...);
  }
  // Replaces `values` by their mean over the ranks: the gradients of a loop on
  // plain buffers.
  absl::Status Average(std::span<float> values);
  absl::Status Average(std::span<double> values);

  // Metrics of this step; their means over the ranks are shown to people and
  // kept.  The run's error then: INTERNAL, at the step's end, for one that is
  // no number; InvalidArgument for a name of the run's own; FailedPrecondition
  // outside of a step.
  void Report(const std::map<std::string, Metric>& metrics);
  // The mean over the steps of the epoch that runs, or has just ended.
  double EpochMean(const std::string& name) const;
  // The mean of `score` over the samples of `dataset`: it gives the sum over a
  // batch.  Batches are dealt out over ranks and are the same for any number of
  // these; so is the sum, of whole numbers.  It is reported as `name`.
  absl::StatusOr<double> Evaluate(
      const std::string& name, const trainer::Dataset& dataset,
      const std::function<Metric(const trainer::Batch&)>& score,
      int64_t batch_size = 500);

  // A line for people, of rank 0.
  void Log(absl::string_view line);
  // Rank 0 writes a metric's values, or draws them, and says so; nothing for an
  // empty path.  If it cannot, stderr says so, and the run goes on.
  void WriteColumn(const std::string& metric, const std::string& path);
  void DrawCurve(const CurveOptions& options, const std::string& path);

  // Of the gang, in the epoch of the last step and this attempt.
  double SamplesPerSecond() const { return samples_per_second_; }

  // ---- for parts (PrepareIn) ----

  // What the checkpoint has of it; null: nothing, of a new run.  FAILED
  // PRECONDITION is an error that the run has.
  absl::StatusOr<const trainer::SafetensorsFile*> Saved(
      const std::string& name) const;
  // "model", and "model-2" when there is one.
  std::string FreeName(const std::string& name) const;
  // Takes it over.
  void Add(std::shared_ptr<Part> part);
  const std::vector<std::shared_ptr<Part>>& parts() const { return parts_; }
  Backend* backend() const { return backend_; }

  // ---- for who runs the loop (trainer/train/loop.h) ----

  absl::Status Open();
  // After the loop, with what it returned.  The run's error.
  absl::Status Close(absl::Status loop);

 private:
  friend class Batches;
  friend class train::Epochs::Iterator;

  // The first batch of the epoch is about to be read.
  absl::Status BeginBatches(trainer::Loader& loader);
  void EndStep(const trainer::Batch& batch);
  absl::Status TryEndStep(const trainer::Batch& batch);
  void EndEpoch();
  bool GoesOn() const {
    return status_.ok() && (stop_after_ == 0 || step_ < stop_after_);
  }

  absl::StatusOr<std::string> SavedState(const std::string& name) const;
  static absl::Status StateError(const std::string& name);
  absl::Status Settle();
  absl::Status Share();
  bool IsBetween() const;
  static void SayIfNot(const absl::Status& written);
  // Sums or averages the same numbers of all ranks, of this step.
  absl::Status Agree(std::vector<double>& numbers, trainer::ReduceOp op);
  absl::Status ShareStep();
  void AppendShares(std::vector<double>& numbers, bool is_bad) const;
  void TakeShares(std::span<const double> shares);
  absl::Status ShowMetrics();
  void TellMetrics(bool is_last);
  absl::Status Save();
  // Evaluate has measured it.
  absl::Status NoteScore();
  // With all ranks: goes on with what is being written.
  absl::Status GoOnSaving(bool to_the_end);
  void AppendMetrics();
  void RewriteMetrics();

  trainer::Session& session_;
  Backend* const backend_;
  const Clock& clock_;
  const Options options_;

  absl::Status status_;

  // Shared: with what Prepare gave.
  std::vector<std::shared_ptr<Part>> parts_;
  // Shared: with the loop; read by the loaders' threads.
  std::vector<std::shared_ptr<const trainer::Dataset>> datasets_;
  std::vector<std::unique_ptr<trainer::Loader>> loaders_;

  int64_t step_ = 0;
  int64_t epoch_ = 0;
  int64_t cursor_ = 0;
  int64_t epochs_ = 0;      // that the loop is to do
  int64_t epoch_size_ = 0;  // of the gang
  int64_t stop_after_ = 0;
  // Of the epoch: Batches was begun, its last batch has ended.
  bool epoch_begun_ = false;
  bool epoch_over_ = false;
  bool in_step_ = false;

  std::map<std::string, Metric> reported_;  // in this step
  Metrics metrics_;
  History history_;
  absl::Duration epoch_start_;
  double samples_per_second_ = 0;
  // Of the epoch so far and this rank: in the loader, in collectives.
  absl::Duration loader_wait_;
  absl::Duration collectives_before_;
  // Of the gang: means of the shares of time, and who is waited for; -1: nobody
  // in particular.
  double loader_share_ = 0;
  double collective_share_ = 0;
  std::vector<double> collective_shares_;
  int64_t steps_of_epoch_ = 0;  // in this attempt
  double step_seconds_ = 0;
  int slowest_rank_ = -1;
  int64_t epoch_start_cursor_ = 0;

  absl::Duration collective_timeout_;
  RunCheckpoints checkpoints_;
  // All ranks have come to the end of a stage of what is being written.
  bool may_go_on_saving_ = false;
  bool is_leaving_ = false;  // some rank has to go
  absl::Duration told_at_ = -absl::InfiniteDuration();
};

}  // namespace cohort::train

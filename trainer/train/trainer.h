#pragma once

#include <functional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

#include "actor/codec.h"
#include "client/job.h"
#include "trainer/train/fit.h"
#include "trainer/train/loop.h"
#include "trainer/train/result.h"
#include "trainer/train/run.h"

namespace cohort::train {

// A training loop and how it is to run.
//
//   cohort::train::Trainer<&TrainLoop> trainer(
//       Config{.epochs = 3}, {.num_workers = 2}, {.name = "mnist"});
//   absl::StatusOr<cohort::train::Result> result = trainer.Fit();
//
// The loop is a function of this program, with a configuration of any type that
// a call can carry (actor/codec.h).  Names, meanings and defaults are Ray
// Train's.  Thread-compatible.
template <auto Loop>
class Trainer {
 public:
  using Config = typename AutoLoop<Loop>::Traits::Config;

  explicit Trainer(Config config, ScalingConfig scaling_config = {},
                   RunConfig run_config = {})
      : config_(std::move(config)),
        request_{.loop = AutoLoop<Loop>::Name(),
                 .scaling_config = std::move(scaling_config),
                 .run_config = std::move(run_config)} {
    (void)&AutoLoop<Loop>::kRegistered;
  }

  // A checkpoint's directory for a new run to go on from, which all its ranks
  // see.
  void ResumeFrom(const std::string& checkpoint) {
    request_.resume_from = AbsolutePath(checkpoint);
  }

  // `callback` is given the last metrics whenever there are new ones, at most
  // once a second, on the thread that is in Fit; "step" and "epoch" are among
  // them.
  void OnMetrics(std::function<void(const Metrics&)> callback) {
    request_.on_metrics = std::move(callback);
  }

  // Runs the loop to its end, on `num_workers` ranks of the cluster that the
  // program is connected to, COHORT_ADDRESS or `cohort up` names; where there
  // is none, on one of this machine that it starts.  The ranks are a job: what
  // is said of jobs holds for it, restarts after failures above all, which go
  // on from the last checkpoint.  What rank 0 prints, and how far it is, shows
  // on this program's terminal.
  //
  // The program may end meanwhile: the run goes on.  Fit with the same name and
  // everything else alike joins it while it runs.
  //
  // With num_workers 0 the loop runs in this process, alone.  In a rank of
  // `cohort submit` it runs in that rank, and that job's ranks are the run's.
  //
  // A run that fails is not an error here: Result::error says why.
  // InvalidArgument: it could never run as written; else the errors of
  // Cluster::Connect, PrivateCluster::Start and Cluster::Submit.
  absl::StatusOr<Result> Fit() {
    absl::StatusOr<std::string> config = EncodeValue(config_);
    if (!config.ok()) return config.status();
    request_.config = *std::move(config);
    return FitLoop(request_);
  }

 private:
  Config config_;
  FitRequest request_;
};

}  // namespace cohort::train

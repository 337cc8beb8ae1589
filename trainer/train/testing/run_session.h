#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "trainer/comm/comm.h"
#include "trainer/session.h"

namespace cohort::train {

// A session over a communicator that a test has.  Thread-compatible.
class RunSession final : public trainer::Session {
 public:
  // Checkpoints go below `root`.
  RunSession(trainer::Comm& comm, const std::string& root,
             std::optional<trainer::CheckpointRecord> restore)
      : comm_(comm) {
    place_.job_id = "test";
    place_.rank = place_.local_rank = comm.rank();
    place_.world = place_.local_world = comm.world();
    place_.checkpoint_root = root;
    place_.restore = std::move(restore);
  }

  const trainer::RunPlace& place() const override { return place_; }
  void SetNodeCount(int count) { place_.node_count = count; }
  trainer::Comm& comm() override { return comm_; }
  std::optional<trainer::RunNotice> notice() const override { return told; }
  absl::Status Report(absl::string_view metrics) override {
    reports.emplace_back(metrics);
    if (on_report) on_report(reports.size());
    return absl::OkStatus();
  }
  absl::Status CommitCheckpoint(absl::string_view path, int64_t step,
                                std::optional<double> score) override {
    committed.push_back({std::string(path), step, place_.epoch, score});
    return absl::OkStatus();
  }
  absl::Status Finish() override { return absl::OkStatus(); }

  std::optional<trainer::RunNotice> told;
  std::vector<std::string> reports;
  std::vector<trainer::CheckpointRecord> committed;
  // With how many there were.
  std::function<void(size_t)> on_report;

 private:
  trainer::Comm& comm_;
  trainer::RunPlace place_;
};

}  // namespace cohort::train

#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "trainer/local_comm.h"
#include "trainer/session.h"

namespace cohort::trainer {

struct LocalSessionOptions {
  // Checkpoints go to <storage_path>/local/attempt-<n>.1, n being the next free
  // number.
  std::string storage_path = "results";
  // A step-<k> directory to go on from; empty: from the start.
  std::string restore{};
};

// A gang of one in a process that cohort did not start: the same program runs
// by hand and in a debugger.  Checkpoints are directories without a record.
class LocalSession final : public Session {
 public:
  // Makes the attempt's directory.  InvalidArgument when `restore` is not
  // there; else the file system's answer, with the path.
  static absl::StatusOr<std::unique_ptr<LocalSession>> Create(
      const LocalSessionOptions& options);

  // Removes the attempt's directory when there is nothing in it.
  ~LocalSession() override;

  const RunPlace& place() const override { return place_; }
  Comm& comm() override { return comm_; }
  absl::Status Report(absl::string_view metrics) override;
  absl::Status CommitCheckpoint(absl::string_view path, int64_t step,
                                std::optional<double> score) override;
  absl::Status Finish() override { return absl::OkStatus(); }

  // The last ones given, for tests and for people.
  const std::string& metrics() const { return metrics_; }
  const std::optional<CheckpointRecord>& committed() const {
    return committed_;
  }

 private:
  explicit LocalSession(RunPlace place) : place_(std::move(place)) {}

  const RunPlace place_;
  LocalComm comm_;
  std::string metrics_;
  std::optional<CheckpointRecord> committed_;
};

}  // namespace cohort::trainer

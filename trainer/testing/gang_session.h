#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/status_macros.h"
#include "shm/arena.h"
#include "trainer/comm/shm_comm.h"
#include "trainer/session.h"

namespace cohort::trainer {

// A session of a gang whose ranks are processes of a test: shared memory as in
// a real one, and no daemon behind it.  Thread-compatible.
class GangSession final : public Session {
 public:
  // Called with each report and checkpoint record.
  using OnReport = std::function<void(absl::string_view)>;
  using OnCommit = std::function<void(const CheckpointRecord&)>;

  // `directory` holds the arena that the test created.
  static absl::StatusOr<std::unique_ptr<GangSession>> Join(
      const std::string& directory, RunPlace place, OnReport on_report,
      OnCommit on_commit) {
    std::unique_ptr<GangSession> session(new GangSession(
        std::move(place), std::move(on_report), std::move(on_commit)));
    COHORT_ASSIGN_OR_RETURN(
        session->arena_place_,
        shm::ArenaPlace::Claim(directory, session->place_.local_rank));
    COHORT_ASSIGN_OR_RETURN(
        session->comm_,
        ShmComm::Create(*session->arena_place_,
                        static_cast<uint64_t>(session->place_.epoch)));
    COHORT_RETURN_IF_ERROR(session->comm_->Barrier(absl::Minutes(1)));
    return session;
  }

  const RunPlace& place() const override { return place_; }
  Comm& comm() override { return *comm_; }
  std::optional<RunNotice> notice() const override { return notice_; }
  void SetNotice(RunNotice notice) { notice_ = std::move(notice); }
  absl::Status Report(absl::string_view metrics) override {
    on_report_(metrics);
    return absl::OkStatus();
  }
  absl::Status CommitCheckpoint(absl::string_view path, int64_t step,
                                std::optional<double> score) override {
    on_commit_({std::string(path), step, place_.epoch, score});
    return absl::OkStatus();
  }
  absl::Status Finish() override { return comm_->Barrier(absl::Minutes(5)); }

 private:
  GangSession(RunPlace place, OnReport on_report, OnCommit on_commit)
      : place_(std::move(place)),
        on_report_(std::move(on_report)),
        on_commit_(std::move(on_commit)) {}

  const RunPlace place_;
  const OnReport on_report_;
  const OnCommit on_commit_;
  std::optional<RunNotice> notice_;
  std::unique_ptr<shm::ArenaPlace> arena_place_;
  std::unique_ptr<ShmComm> comm_;
};

}  // namespace cohort::trainer

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "cohort/v1/cluster.pb.h"
#include "common/job_id.h"
#include "tests/sim/sim_worker.h"

namespace cohort::sim {

// A person's program: submits jobs and tries again, with the same request id,
// until it has an answer; stops some.  Checks that one request has one answer.
class Client {
 public:
  Client(World world, std::string name);

  // Submits until it is answered; then, now and then, once more.
  void Submit(const std::string& request_id, v1::JobSpec spec);
  // Stops a job of this client, if it has one.
  void StopOne();
  // A submit that can never succeed, and one with another's request id.
  void SubmitNonsense();
  void SubmitUnderUsedId();

  // request id -> job, as acknowledged.
  const std::map<std::string, JobId>& acknowledged() const {
    return acknowledged_;
  }
  const std::set<JobId>& stopped() const { return stopped_; }
  size_t unanswered() const { return unanswered_; }
  const std::string& violation() const { return violation_; }

 private:
  void Try(const std::string& request_id, const v1::SubmitJobRequest& request,
           bool again);
  void OnAnswer(const std::string& request_id,
                const v1::SubmitJobRequest& request, bool again,
                absl::StatusOr<v1::SubmitJobResponse> response);
  void TryStop(const v1::StopJobRequest& request);

  World world_;
  const std::string name_;
  const std::unique_ptr<rpc::Channel> channel_;
  std::map<std::string, JobId> acknowledged_;
  std::set<JobId> stopped_;
  size_t unanswered_ = 0;
  int stops_ = 0;
  std::string violation_;
};

}  // namespace cohort::sim

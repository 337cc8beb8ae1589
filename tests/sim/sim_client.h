#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "cohort/v1/cluster.pb.h"
#include "common/job_id.h"
#include "rpc/methods.h"
#include "tests/sim/sim_worker.h"

namespace cohort::sim {

// A person's program: submits jobs and tries again, with the same request id,
// until it has an answer; stops some, looks at others.  Sends some requests
// twice, as a program does that gave up too early on a slow answer: the copies
// overtake each other.  Checks that one request has one answer (RQ-1), and that
// what it is told is durable (CM-1).
class Client {
 public:
  // `forgets_its_id`: makes another id for a repeat, on purpose.
  Client(World world, std::string name, bool forgets_its_id);

  // Submits until it is answered; then, now and then, once more.
  void Submit(const std::string& request_id, v1::JobSpec spec);
  // Stops a job of this client, if it has one.
  void StopOne();
  // Holds one of its jobs, if it waits; lets any job go.
  void HoldOne();
  // To some other number of workers; most are refused.
  void ResizeOne();
  void Release(const JobId& job);
  // Asks how one of its jobs is.
  void LookAtOne();
  // The program dies: what it has not heard by now it never will.
  void Die();
  // The store is an older one now, which holds what `holds` says: the program
  // dies, and nobody expects what was acknowledged since.
  void Restored(const std::function<bool(const JobId&)>& holds);
  // A submit that can never succeed, and one with another's request id.
  void SubmitNonsense();
  void SubmitUnderUsedId();

  // request id -> job, as acknowledged.
  const std::map<std::string, JobId>& acknowledged() const {
    return acknowledged_;
  }
  // Requests that it had sent when it died: each made one job or none.
  const std::set<std::string>& abandoned() const { return abandoned_; }
  size_t unanswered() const { return unanswered_.size(); }
  const std::string& violation() const { return violation_; }

  // Asks again and again, under one request id, until there is an answer.
  template <typename Request, typename Response>
  void Insist(const rpc::UnaryMethod<Request, Response>& method,
              const Request& request,
              std::function<void(const absl::Status&)> done) {
    rpc::Call(
        *channel_, method, request, {.deadline = kDeadline}, world_.executor,
        [this, &method, request, done](absl::StatusOr<Response> response) {
          if (!TryAgain(response.status())) {
            return done(response.status());
          }
          world_.executor.PostAfter(absl::Milliseconds(200),
                                    [this, &method, request, done] {
                                      Insist(method, request, done);
                                    });
        });
  }

 private:
  static constexpr absl::Duration kDeadline = absl::Seconds(5);

  static bool TryAgain(const absl::Status& status);
  void Try(const std::string& request_id, const v1::SubmitJobRequest& request,
           bool again);
  void OnAnswer(const std::string& request_id,
                const v1::SubmitJobRequest& request, bool again,
                absl::StatusOr<v1::SubmitJobResponse> response);
  // `was`: how it had ended when it was looked at, as far as was known.
  void OnLook(const JobId& job, std::optional<v1::JobState> was,
              const absl::StatusOr<v1::GetJobResponse>& seen);
  static bool IsActorRefused(const absl::Status& status);
  void OnActorRefused(const std::string& request_id, const absl::Status& why);
  void CheckDurable(const JobId& job);
  void Violate(std::string what);

  World world_;
  const std::string name_;
  const std::unique_ptr<rpc::Channel> channel_;
  const bool forgets_its_id_;
  std::map<std::string, JobId> acknowledged_;
  std::set<std::string> unanswered_;
  std::set<std::string> abandoned_;
  // Those that wait to be sent again.
  std::set<std::string> repeating_;
  // Jobs that it was told to have ended, and how.
  std::map<JobId, v1::JobState> ended_;
  int requests_ = 0;  // other than submits
  // Of this program; answers to an earlier life are not heard.
  int life_ = 0;
  std::string violation_;
};

}  // namespace cohort::sim

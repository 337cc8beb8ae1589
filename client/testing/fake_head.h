#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cohort/v1/cluster.pb.h"
#include "common/executor.h"
#include "common/mutex.h"
#include "common/random.h"
#include "common/real_clock.h"
#include "common/strand.h"
#include "rpc/channel.h"
#include "rpc/credential.h"
#include "rpc/router.h"
#include "rpc/testing/loopback.h"

namespace cohort::client {

// A head in this process, as far as clients can tell: it keeps jobs, packages
// and logs across its deaths and restarts, and its network breaks on cue.
//
// Thread-safe.
class FakeHead {
 public:
  // A job as the head has it.
  struct JobEntry {
    v1::Job job;
    // Of each rank and stream ("0.1"): what it wrote.
    std::map<std::string, std::string> logs;
    std::map<std::string, std::vector<v1::LogTime>> log_times;
  };

  explicit FakeHead(uint64_t seed);
  ~FakeHead();

  FakeHead(const FakeHead&) = delete;
  FakeHead& operator=(const FakeHead&) = delete;

  // Serves, as a head of the given term; by default the next one.
  void Start();
  void StartAs(const std::string& cluster_id, uint64_t term);
  // Dies as by SIGKILL.
  void Kill();
  // Once it has that many submissions more its connections break, before it
  // answers the last.
  void BreakAfterSubmits(int n);
  void SetBreakProbability(double probability) {
    network_.SetBreakProbability(probability);
  }
  // Of every job.
  void SetFile(const std::string& path, const std::string& bytes);
  // Streams of logs and files break after so many bytes; 0: never.
  void BreakLogsAfter(int64_t bytes);
  // Each slot's next process is on another node, where it wrote the same.
  void RepeatLogs();
  // Package parts are accepted, and not answered, from now on this many times.
  void LosePartAnswers(int n);

  std::unique_ptr<rpc::Channel> Connect();
  std::unique_ptr<rpc::Channel> ConnectWith(const rpc::Credential& credential);
  rpc::LoopbackFaults faults() const { return network_.faults(); }

  // By id, as bytes.
  std::map<std::string, JobEntry> jobs() const;
  // Ends a job, answering those who wait for it.
  void EndJob(const std::string& id, v1::JobState state,
              const v1::ExitStatus* exit);
  void SetLog(const std::string& id, int rank, v1::LogStream stream,
              const std::string& text,
              const std::vector<v1::LogTime>& times = {});
  // Blocks until somebody waits for a job.
  void AwaitWaiter();
  std::map<std::string, std::string> packages() const;
  int parts_received() const;

 private:
  class LogReader;
  class FileReader;
  using Waiter = rpc::Reply<v1::WaitJobResponse>;

  void Serve(rpc::Router& router);
  void ServeJobs(rpc::Router& router);
  void ServeReads(rpc::Router& router);
  void ServePackages(rpc::Router& router);
  absl::StatusOr<v1::SubmitJobResponse> Submit(
      const v1::SubmitJobRequest& request);
  absl::Status ReadLog(const v1::ReadLogRequest& request,
                       rpc::StreamWriter<v1::ReadLogResponse>& writer);
  absl::Status ReadFile(const v1::ReadRunFileRequest& request,
                        rpc::StreamWriter<v1::ReadRunFileResponse>& writer);

  const MachineClock clock_;
  // The head's and the network's.
  const std::unique_ptr<Executor> pool_;
  Strand strand_;
  Strand wires_;
  SeededRandom network_random_;
  const rpc::Credential credential_;
  rpc::LoopbackNetwork network_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::unique_ptr<rpc::Router> router_ ABSL_GUARDED_BY(mutex_);
  // Dead ones: calls that they accepted may outlive them.
  std::vector<std::unique_ptr<rpc::Router>> dead_ ABSL_GUARDED_BY(mutex_);
  SeededRandom random_ ABSL_GUARDED_BY(mutex_);
  uint64_t term_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string cluster_id_ ABSL_GUARDED_BY(mutex_);
  int submits_until_break_ ABSL_GUARDED_BY(mutex_) = -1;
  int64_t log_bytes_max_ ABSL_GUARDED_BY(mutex_) = 0;
  bool repeats_logs_ ABSL_GUARDED_BY(mutex_) = false;
  int parts_lost_ ABSL_GUARDED_BY(mutex_) = 0;
  int parts_received_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, JobEntry> jobs_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> files_ ABSL_GUARDED_BY(mutex_);
  // Request id -> request and job.
  std::map<std::string, std::pair<std::string, std::string>> requests_
      ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> parts_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> packages_ ABSL_GUARDED_BY(mutex_);
  std::multimap<std::string, Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::client

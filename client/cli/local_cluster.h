#pragma once

#include <sys/types.h>

#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"

#include "client/cli/supervised.h"
#include "common/file.h"
#include "common/random.h"
#include "common/real_clock.h"
#include "common/unique_fd.h"

namespace cohort::cli {

// `cohort up` as it was typed; each value is per worker.  Texts are checked by
// the daemons that they are passed to, and here before anything starts.
struct UpOptions {
  int workers = 2;
  std::string num_cpus;              // empty: the machine's, divided
  std::optional<int> num_gpus;       // real ones
  std::optional<int> simulate_gpus;  // in place of real ones
  std::string memory;                // empty: the machine's, divided
  std::string resources;
  std::string keep_results;  // empty: the workers' default
  int port = 7710;           // 0: a free one
  // Of the head's HTTP service; empty: the head's default.
  std::string http_address;
  std::string state_dir;
  std::string ready_file;
  std::string node_timeout;  // empty: the head's default
  std::string cluster_file;  // empty: none
  bool is_volatile = false;
  bool is_temporary = false;  // its store is not needed once it ends
  bool detach = false;
};

// A head and its workers on this machine, as processes of this one.
//
// Thread-compatible; made and used on one thread, as Supervised.  From Start on
// SIGTERM, SIGINT and SIGCHLD are blocked in it and read here.
class LocalCluster {
 public:
  // `options` outlive it.
  explicit LocalCluster(const UpOptions& options);

  // Once all of it serves, or a signal came meanwhile.  InvalidArgument when a
  // daemon refused its command line; with its last words.
  absl::Status Start();
  // Restarts what dies, on the same port and state, until a signal comes.
  void Serve();
  // Ends ranks, keepers, workers and head, in that order, within 15 s; at a
  // second signal without any grace.
  void End();

  bool is_stopping() const { return stopping_; }  // a signal came
  const std::string& directory() const { return directory_; }
  const std::string& address() const { return address_; }

 private:
  absl::Status Prepare();
  absl::Status StartHead();
  absl::Status KeepAddresses(const std::string& wanted);
  void AddWorker(int index);
  absl::Status AwaitFile(const Supervised& daemon, const std::string& file);
  std::vector<Supervised*> Daemons();
  void Step(absl::Duration timeout);
  void Reap();
  void RestartDue();
  void RemoveRuntimes() const;
  std::vector<pid_t> LaunchedWorkers() const;
  void EndLaunched();
  void Hurry();
  bool WorkersEnded();
  void EndWithin(absl::Duration grace, absl::FunctionRef<bool()> gone);
  std::string ReadyFile(const std::string& name) const;
  std::string LogFile(const std::string& name) const;

  const UpOptions& options_;
  const MachineClock clock_;
  SystemRandom random_;
  std::string directory_;
  std::string head_directory_;
  std::optional<FileLock> lock_;
  UniqueFd signals_;
  UniqueFd watch_;
  std::string address_;
  std::string http_address_;
  std::optional<Supervised> head_;
  std::deque<Supervised> workers_;
  bool starting_ = false;  // a daemon that ends now is not started again
  bool serving_ = false;   // every daemon has come up once
  bool stopping_ = false;  // a signal came
  std::optional<absl::Duration> hurried_at_;  // another one did
  bool ending_ = false;
  std::set<const Supervised*> ended_again_;
};

}  // namespace cohort::cli

#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "cohort/v1/node.pb.h"
#include "common/executor.h"
#include "common/strong_id.h"
#include "common/unique_fd.h"
#include "rpc/credential.h"
#include "shm/arena.h"
#include "worker/attempt_host.h"
#include "worker/device_monitor.h"
#include "worker/journal.h"
#include "worker/keeper_host.h"
#include "worker/node_directories.h"
#include "worker/package_cache.h"

namespace cohort::worker {

struct LocalAttemptHostOptions {
  std::string head_address;  // told to the ranks
  // The daemon's own environment, which ranks inherit.
  std::vector<std::string> environment;
  // Where keepers may make cgroups; empty: they do without.
  std::string cgroup_parent = "";
  // cohort-preflight, an absolute path.
  std::string preflight_program = "";
  // The CPUs near each device: ranks are pinned to those of their GPUs.
  std::map<std::string, std::vector<int>> cpus_of_devices = {};
};

// AttemptHost on this machine: directories, packages, ports, keepers, shared
// memory.
//
// Strand-bound to the node strand.  Small writes go to `disk`, one after the
// other, which keeps the saves of an attempt in order; what may take long (to
// unpack, to remove trees) goes to `bulk`.  Lives as long as Worker.
class LocalAttemptHost final : public AttemptHost {
 public:
  // All outlive the host and what it posted.  `keepers` reports to
  // OnKeeperEvent.
  LocalAttemptHost(LocalAttemptHostOptions options,
                   const NodeDirectories& directories,
                   const rpc::Credential& credential, Journal& journal,
                   KeeperHost& keepers, PackageCache& packages,
                   DeviceMonitor& devices, Executor& strand, Executor& disk,
                   Executor& bulk);

  // What the keepers tell, by the attempt's hex.
  void OnKeeperEvent(const std::string& attempt, const KeeperEvent& event);

  void SetListener(Listener listener) override;
  void Save(const AttemptId& attempt, JournalEntry entry, Done done) override;
  void Prepare(const v1::DesiredAttempt& attempt,
               absl::AnyInvocable<void(absl::StatusOr<int>) &&> done) override;
  void Start(const v1::DesiredAttempt& attempt, Done done) override;
  void Adopt(const v1::DesiredAttempt& attempt,
             KeeperHost::AdoptCallback done) override;
  void Revoke(const AttemptId& attempt) override;
  void Stop(const AttemptId& attempt, absl::Duration grace) override;
  void Kill(const AttemptId& attempt) override;
  void Forget(const AttemptId& attempt, Done done) override;
  void RemoveCheckpoint(const v1::DesiredAttempt& attempt,
                        const std::string& path, Done done) override;
  void ReadStderrTail(const AttemptId& attempt, int rank,
                      absl::AnyInvocable<void(std::string) &&> done) override;

 private:
  // What is open for one attempt.
  struct Open {
    std::vector<int> ranks;  // by local rank
    std::string log_directory;
    std::unique_ptr<shm::Arena> arena;      // null when it could not be opened
    std::unique_ptr<shm::Arena> preflight;  // the same, or it has none
    std::vector<uint64_t> metrics_seen;
    UniqueFd port;  // bound to the reserved port until the ranks start
  };
  struct Prepared {
    std::unique_ptr<shm::Arena> arena;
    std::unique_ptr<shm::Arena> preflight;  // null: it has none
    UniqueFd port;
    int port_number = 0;
  };
  using PreparedDone = absl::AnyInvocable<void(absl::StatusOr<int>) &&>;

  // On the strand.
  template <typename Callback, typename Result>
  void Answer(Callback done, Result result);
  std::string LogsOf(const v1::DesiredAttempt& attempt) const;
  Open& Remember(const v1::DesiredAttempt& attempt);
  void PrepareDirectories(v1::DesiredAttempt attempt, std::string archive,
                          PreparedDone done);
  absl::StatusOr<Prepared> MakeDirectoriesOf(const v1::DesiredAttempt& attempt,
                                             const std::string& archive);
  // All but the working directory.
  absl::StatusOr<Prepared> ReserveFor(const AttemptId& id,
                                      const v1::DesiredAttempt& attempt);
  KeeperSpec MakeSpec(const v1::DesiredAttempt& attempt) const;
  // The CPUs nearest to the rank's GPUs; empty: any.
  std::vector<int> CpusFor(const v1::DesiredRank& rank) const;
  // What Forget removes, in its order.
  void Remove(const AttemptId& attempt, Done done);
  void RemoveEntry(const AttemptId& attempt, absl::Status status, Done done);
  void RemoveLater(const AttemptId& attempt, absl::Duration after);
  void PollMetrics();
  void ReadMetrics(const AttemptId& attempt, Open& open);

  const LocalAttemptHostOptions options_;
  const NodeDirectories& directories_;
  const rpc::Credential& credential_;
  Journal& journal_;
  KeeperHost& keepers_;
  PackageCache& packages_;
  DeviceMonitor& devices_;
  Executor& strand_;
  Executor& disk_;
  Executor& bulk_;
  Listener listener_;
  std::map<AttemptId, Open> open_;
  bool polling_ = false;
};

}  // namespace cohort::worker

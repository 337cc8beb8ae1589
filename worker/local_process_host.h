#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "cohort/v1/node.pb.h"
#include "common/executor.h"
#include "common/process_id.h"
#include "common/unique_fd.h"
#include "rpc/credential.h"
#include "shm/arena.h"
#include "worker/device_monitor.h"
#include "worker/journal.h"
#include "worker/keeper_host.h"
#include "worker/keeper_pool.h"
#include "worker/last_words.h"
#include "worker/node_directories.h"
#include "worker/package_cache.h"
#include "worker/process_host.h"
#include "worker/run_as.h"
#include "worker/work_directory.h"

namespace cohort::worker {

struct LocalProcessHostOptions {
  std::string head_address;  // told to the ranks
  // The daemon's own environment, which ranks inherit.
  std::vector<std::string> environment;
  // cohort-preflight, an absolute path.
  std::string preflight_program = "";
  // The CPUs near each device: ranks are pinned to those of their GPUs.
  std::map<std::string, std::vector<int>> cpus_of_devices = {};
  // As whom ranks run.
  RunAs run_as = {};
  // The store generation of the head that the worker follows.
  std::function<std::string()> generation = [] { return std::string(); };
};

// ProcessHost on this machine: directories, packages, ports, keepers, shared
// memory.
//
// Strand-bound to the node strand.  Small writes go to `disk`, one after the
// other, which keeps saves in order; those that are to survive the machine are
// synced together, as many as wait.  Directories are made and given back on
// `bulk`; what may take long (to unpack, to remove large trees) goes to `slow`,
// so that other places need not wait for it.  Lives as long as Worker.
class LocalProcessHost final : public ProcessHost {
 public:
  // All outlive the host and what it posted.  `keepers` reports to
  // OnKeeperEvent.
  LocalProcessHost(LocalProcessHostOptions options,
                   const NodeDirectories& directories,
                   const rpc::Credential& credential, Journal& journal,
                   KeeperHost& keepers, PackageCache& packages,
                   WorkDirectories& work, DeviceMonitor& devices,
                   Executor& strand, Executor& disk, Executor& bulk,
                   Executor& slow);

  void OnKeeperEvent(const KeeperEvent& event);

  // From now on processes know the head by that authority, a certificate in
  // PEM: the files of those that are here are written again, and those that
  // cannot be are logged.  On `disk`.
  void TakeAuthority(const std::string& authority);

  // As KeeperPool has it, for a daemon that takes its processes along.
  void KeepNoIdle(absl::AnyInvocable<void() &&> none_left) {
    keepers_.KeepNoIdle(std::move(none_left));
  }

  void SetListener(Listener listener) override;
  void Save(const AttemptId& attempt, PlaceEntry entry, Durability durability,
            Done done) override;
  void Save(const ProcessId& process, ProcessEntry entry, Durability durability,
            Done done) override;
  void Prepare(const v1::DesiredPlace& place,
               absl::AnyInvocable<void(absl::StatusOr<int>) &&> done) override;
  void Begin(const v1::DesiredPlace& place, std::vector<ProcessId> which,
             Done done) override;
  void Adopt(const v1::DesiredPlace& place,
             KeeperHost::AdoptCallback done) override;
  void Revoke(const AttemptId& attempt) override;
  void Stop(const ProcessId& process, absl::Duration grace) override;
  void Kill(const ProcessId& process) override;
  void Forget(const ProcessId& process, Done done) override;
  void Forget(const AttemptId& attempt, Done done) override;
  void RemoveCheckpoint(const v1::DesiredPlace& place, const std::string& path,
                        Done done) override;
  void ReadStderrTail(const ProcessId& process,
                      absl::AnyInvocable<void(std::string) &&> done) override;

 private:
  // Whose reports a cell of the arena has.
  struct Reporter {
    ProcessId process;
    uint64_t seen = 0;
  };
  // What is open for one place.
  struct Open {
    std::string log_directory;
    std::unique_ptr<shm::Arena> arena;      // null when it has none
    std::unique_ptr<shm::Arena> preflight;  // the same
    std::map<int, Reporter> reporters;      // by local rank
    UniqueFd port;       // bound to the reserved port until rank 0 begins
    std::string python;  // as in LastWords
  };
  struct Prepared {
    std::unique_ptr<shm::Arena> arena;
    std::unique_ptr<shm::Arena> preflight;
    UniqueFd port;
    int port_number = 0;
  };
  using PreparedDone = absl::AnyInvocable<void(absl::StatusOr<int>) &&>;

  // On the strand.
  template <typename Callback, typename Result>
  void Answer(Callback done, Result result);
  // Tells of what work_ warns, as of `attempt`; where work_ is used.
  void Warn(const AttemptId& attempt);
  // Appends to the journal with `append`, on the disk executor.
  void Write(absl::AnyInvocable<absl::Status() &&> append,
             Durability durability, Done done);
  std::string LogsOf(const v1::DesiredPlace& place) const;
  Open& Remember(const v1::DesiredPlace& place);
  // `archive`: null without a package.
  void PrepareDirectories(v1::DesiredPlace place, PackageCache::Archive archive,
                          PreparedDone done);
  void Unpack(v1::DesiredPlace place, PackageCache::Archive archive,
              PreparedDone done);
  // Its package is there, or not; on the bulk executor.  Looks again up to
  // `looks` times while a former attempt's files are on their way.
  void FinishDirectories(v1::DesiredPlace place, absl::Status made, int looks,
                         PreparedDone done);
  // The working directory was made, or not; on the bulk executor.
  void Opened(v1::DesiredPlace place, absl::Status made, PreparedDone done);
  // All but the working directory.
  absl::StatusOr<Prepared> ReserveFor(const AttemptId& id,
                                      const v1::DesiredPlace& place);
  // For Begin, on the disk executor: their credentials, and the Python of all
  // (DescribePython).
  absl::StatusOr<std::string> MakeReady(
      const v1::DesiredPlace& place, const std::vector<ProcessId>& which) const;
  // REQUIRES: its runtime directory is there.
  absl::Status WriteCredential(const ProcessId& process) const;
  // As whom the place's processes run; nothing: as the daemon.
  absl::StatusOr<std::optional<OsAccount>> AccountOf(
      const v1::DesiredPlace& place) const {
    return options_.run_as.AccountOf(place.user());
  }
  // With whose rights what lies in the attempt's runtime directory is touched.
  std::optional<OsAccount> OwnerOfRuntime(const AttemptId& attempt) const;
  // The attempt's runtime directory, of that account.
  absl::Status MakeRuntime(const AttemptId& attempt,
                           const std::optional<OsAccount>& account) const;
  void BeginAtKeeper(const v1::DesiredPlace& place,
                     const std::vector<ProcessId>& which, std::string python,
                     Done done);
  ProcessSpec MakeSpec(const v1::DesiredPlace& place,
                       const v1::DesiredProcess& process) const;
  void ReadErrorFile(const ProcessId& process, LastWords& words) const;
  // Tells of the exit with what the process left behind.
  void TellFailure(const ProcessExited& exited, const Open& open);
  void Tell(const KeeperEvent& event);
  // The CPUs nearest to the process's GPUs; empty: any.
  std::vector<int> CpusFor(const v1::DesiredProcess& process) const;
  // What Forget removes of a place, in its order.
  void Remove(const AttemptId& attempt, Done done);
  void RemoveEntry(const AttemptId& attempt, absl::Status status, Done done);
  void RemoveLater(const AttemptId& attempt, absl::Duration after);
  void PollMetrics();
  void ReadMetrics(Open& open);

  const LocalProcessHostOptions options_;
  const NodeDirectories& directories_;
  rpc::Credential credential_;  // disk_'s
  Journal& journal_;
  KeeperPool keepers_;
  PackageCache& packages_;
  WorkDirectories& work_;  // on bulk_ only
  DeviceMonitor& devices_;
  Executor& strand_;
  Executor& disk_;
  Executor& bulk_;
  Executor& slow_;
  Listener listener_;
  std::map<AttemptId, Open> open_;
  // What could not be removed and is not wanted again since.
  std::set<AttemptId> removing_;
  // Their exits are reported after their last words have been read.
  std::set<ProcessKey> failed_;
  std::vector<Done> unsynced_;  // the disk executor's: they wait for a Sync
  bool polling_ = false;
};

}  // namespace cohort::worker

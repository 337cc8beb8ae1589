#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/executor.h"
#include "common/mutex.h"
#include "worker/keeper/files.h"
#include "worker/keeper_host.h"
#include "worker/keeper_link.h"
#include "worker/keeper_spawn.h"
#include "worker/process_tree.h"

namespace cohort::worker {

struct KeeperClientOptions {
  // Absolute.  Holds a directory per keeper; made when missing.  On a disk:
  // exit records have to survive the machine.
  std::string keepers_dir;
  // Where the logs of specs are now, as JOB/ATTEMPT below it: a state directory
  // may have been renamed since.  Empty: where the specs say.
  std::string logs_dir = "";
  // The node's runtime directory: keepers have theirs in it (KeeperPlace).
  std::string runtime_dir;
  // A cgroup v2 directory in which keepers may make groups; empty: they do
  // without.
  std::string cgroup_parent = "";
  // The cohort-keeper to start: an absolute path.
  std::string keeper_program;
  // Makes this process the one to which the orphans of a dead keeper come, so
  // that also those are found that dropped session and marker and are in no
  // cgroup.  For a process that starts no other children from now on: when a
  // keeper was lost, every child that is not a keeper is killed, with its tree;
  // but where they may come from elsewhere (Children::OthersAreOrphans).
  bool takes_orphans = false;
  // How long a keeper under which nothing runs waits for a daemon: longer than
  // a restart of the daemon takes, which would start a new one else.
  absl::Duration keeper_idle_timeout = absl::Seconds(10);
  // From Begin to the keeper's answer, with its start: takes 2 ms on an idle
  // node.  Below every timeout of the head, so that the cause is told by who
  // knows it.
  absl::Duration begin_timeout = absl::Seconds(10);
};

// cohort-keeper in the directory of the running program.
std::string KeeperBesideThisProgram();

// The real KeeperHost: cohort-keeper processes, their directories and sockets.
//
// Thread-safe: calls go to a thread of its own, which does all that blocks.
// When it is destroyed the keepers stay and run on; callbacks and events that
// have not been posted by then never are.
class KeeperClient final : public KeeperHost {
 public:
  // `executor` gets callbacks and events (a strand, for their order) and must
  // outlive the client, `listener` runs there only.  InvalidArgument for a
  // relative path; Unavailable when the directory cannot be made;
  // ResourceExhausted without descriptors.
  static absl::StatusOr<std::unique_ptr<KeeperClient>> Create(
      KeeperClientOptions options, Executor& executor, Listener listener);

  ~KeeperClient() override;

  KeeperClient(const KeeperClient&) = delete;
  KeeperClient& operator=(const KeeperClient&) = delete;

  void Begin(std::string keeper, std::vector<ProcessSpec> specs,
             DoneCallback done) override;
  void Adopt(std::string keeper, AdoptCallback done) override;
  void Stop(const std::string& keeper, std::vector<ProcessKey> which,
            absl::Duration grace) override;
  void Kill(const std::string& keeper, std::vector<ProcessKey> which) override;
  void Forget(const std::string& keeper, std::vector<ProcessKey> which,
              DoneCallback done) override;
  void Close(const std::string& keeper, DoneCallback done) override;

  // Runs the keeper program once without a directory; errors, naming it, when
  // it cannot be started, does not end in time, or fails.
  void CheckProgram(DoneCallback done);

 private:
  KeeperClient(KeeperClientOptions options, Executor& executor,
               Listener listener, keeper::UniqueFd wake, Children children);

  void Enqueue(Task task);
  // The client's thread, all below.
  void RunThread();
  bool RunTasks();
  void DropClosed();
  void Wait();
  void BeginNow(const std::string& keeper,
                const std::vector<ProcessSpec>& specs, DoneCallback done);
  void AdoptNow(const std::string& keeper, AdoptCallback done);
  void CloseNow(const std::string& keeper, DoneCallback done);
  KeeperStart StartOf(const std::string& keeper) const;
  std::unique_ptr<KeeperLink> MakeLink(const std::string& keeper);
  KeeperLink* LinkOf(const std::string& keeper) const;
  Children ChildrenNow() const;
  template <typename Callback, typename Result>
  void Answer(Callback done, Result result);

  const KeeperClientOptions options_;
  Executor& executor_;
  // Shared: posted events may run after the client is gone.
  const std::shared_ptr<Listener> listener_;
  const keeper::UniqueFd wake_;  // eventfd
  const Children children_;      // before there was a keeper
  Mutex mutex_;
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // The client's thread.
  std::map<std::string, std::unique_ptr<KeeperLink>> links_;
  KeeperProcess left_check_;  // of CheckProgram, if that could not be killed

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace cohort::worker

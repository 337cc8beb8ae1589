#pragma once

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "actor/call_target.h"
#include "actor/function.h"
#include "actor/grid.h"
#include "actor/group.h"
#include "actor/group_target.h"
#include "actor/handle.h"
#include "actor/method.h"
#include "actor/options.h"
#include "actor/task_options.h"
#include "common/job_id.h"

namespace cohort {

struct RuntimeOptions {
  // As ClusterOptions (client/cluster.h).
  std::string address;
  std::string credential_file;
  // Of actors that name none.
  std::string name_space = "default";
  // How long the head waits for this program when it is not heard of, before
  // it ends what the program owns: also when its process died without
  // ~Runtime, by a signal or _exit, as the head sees only that it is away.
  absl::Duration driver_timeout = absl::Seconds(30);
  // How long this program waits for a head that cannot be reached.  Then its
  // session is over, and with it each call: nothing waits for a cluster that is
  // gone.  Longer than a restart of the head's machine takes.
  absl::Duration head_timeout = absl::Minutes(5);
  // What actors need beside the program itself: files and directories, which
  // lie in each actor's working directory.  Connect refuses what is not there.
  std::vector<std::string> files;
  // Of Create, GetActor and Kill.
  absl::Duration deadline = absl::Seconds(30);
  // How many tasks, of all shapes together, may wait for an executor, at least
  // 1, before Run blocks (TaskOptions::when_full).
  size_t max_waiting_tasks = 10'000;
};

// A program that owns actors: its session with the head, and the way to them
// (docs/design/0012-actors.md).
//
// When it is destroyed, or the program ends in any way, its actors end, except
// detached ones; calls by handles that are left then fail as "session_over".
// Thread-safe. A function of Future::Then must neither destroy it nor make
// calls that block, and the process must not fork without exec.
class Runtime {
 public:
  // The program named by `name` joins the cluster that the options,
  // COHORT_ADDRESS or `cohort up` name.  Where there is none it starts one on
  // this machine, which ends with it, and with the thread that called this
  // (PrivateCluster); what its actors write to COHORT_STORAGE_DIR stays in
  // ./cohort-results.  Errors as
  // Cluster::Connect and PrivateCluster::Start; DeadlineExceeded when the head
  // does not answer.
  static absl::StatusOr<Runtime> Connect(std::string name,
                                         RuntimeOptions options = {});

  Runtime(Runtime&&) noexcept;
  Runtime& operator=(Runtime&&) noexcept;
  ~Runtime();

  // An actor of class T, made from `args` in a process of its own where there
  // is room for it.  Returns once the head has accepted it, or with a handle
  // whose calls fail with the reason.  `T` is not in an anonymous namespace,
  // and `args` have a Codec (actor/codec.h).
  template <typename T, typename... Args>
  Handle<T> Create(const ActorOptions& options, const Args&... args) {
    return Made<T>(
        Start(options, actor::EncodeConstructor<T>(args...), typeid(T).name()));
  }
  template <typename T, typename... Args>
  requires(sizeof...(Args) == 0 ||
           !(std::is_same_v<Args, ActorOptions> ||
             ...)) Handle<T> Create(const Args&... args) {
    return Create<T>(ActorOptions(), args...);
  }

  // As cohort::Run (actor/function.h), by this runtime:
  //   cohort::Future<int> words = runtime.Run<&CountWords>(text);
  template <auto F, typename... Args>
  Future<actor::FunctionResult<F>> Run(const TaskOptions& options,
                                       Args&&... args) {
    return actor::RunFunction<F>(Tasks(), options, std::forward<Args>(args)...);
  }
  template <auto F, typename... Args>
  requires(!actor::kBeginsWithOptions<Args...>)
      Future<actor::FunctionResult<F>> Run(Args&&... args) {
    return Run<F>(TaskOptions(), std::forward<Args>(args)...);
  }

  // A group of actors of class T, one in each place of `dimensions`, each made
  // from `args` in a process of its own: placed together, as soon as all have
  // room, or not at all.  Otherwise like an actor: as Create, and owned and
  // killed as one.
  template <typename T, typename... Args>
  Group<T> CreateGroup(const ActorOptions& options,
                       std::vector<Dimension> dimensions, const Args&... args) {
    absl::StatusOr<actor::Grid> grid = actor::Grid::Make(std::move(dimensions));
    if (!grid.ok()) return Group<T>(grid.status());
    absl::StatusOr<ActorGroup> made = StartGroup(
        options, *grid, actor::EncodeConstructor<T>(args...), typeid(T).name());
    if (!made.ok()) return Group<T>(made.status());
    return Group<T>(std::move(made->target), made->id, *std::move(grid));
  }

  // The live actor of that name, of any creator; in a rank, an actor or a task
  // with its own credential, of those that this reaches (docs/actors.md).
  // NotFound (no_actor); FailedPrecondition (wrong_class) when it is of another
  // class, (wrong_kind) when it is a group.
  template <typename T>
  absl::StatusOr<Handle<T>> GetActor(const std::string& name,
                                     const std::string& name_space = "") {
    absl::StatusOr<Actor> found = Find(name, name_space, typeid(T).name());
    if (!found.ok()) return found.status();
    return Made<T>(*std::move(found));
  }

  // The live group of that name, of any creator.  Errors as GetActor:
  // wrong_kind when the name is an actor's.
  template <typename T>
  absl::StatusOr<Group<T>> GetGroup(const std::string& name,
                                    const std::string& name_space = "") {
    absl::StatusOr<FoundGroup> found =
        FindGroup(name, name_space, typeid(T).name());
    if (!found.ok()) return found.status();
    return Group<T>(std::move(found->group.target), found->group.id,
                    std::move(found->grid));
  }

  // Ends an actor: its process gets SIGTERM, and SIGKILL 10 s later if it still
  // runs.  Calls that it runs end as "may_have_run", calls made after this as
  // "not_started".  It is not restarted, and its name is free.  A group ends as
  // a whole: INVALID_ARGUMENT for one of its ranks, or a slice.
  template <typename T>
  absl::Status Kill(const Handle<T>& handle) {
    return Kill(handle.id(), /*is_group=*/false);
  }
  template <typename T>
  absl::Status Kill(const Group<T>& group) {
    if (!group.is_whole()) return actor::EndsAsAWhole();
    return Kill(group.id(), /*is_group=*/true);
  }

 private:
  class Core;
  struct Actor {
    JobId id;  // nil: the head has not accepted it
    std::shared_ptr<actor::CallTarget> target;
  };

  struct ActorGroup {
    JobId id;
    std::shared_ptr<actor::GroupTarget> target;
  };
  struct FoundGroup {
    ActorGroup group;
    actor::Grid grid;
  };

  explicit Runtime(std::unique_ptr<Core> core);

  template <typename T>
  static Handle<T> Made(Actor made) {
    return Handle<T>(std::move(made.target), made.id);
  }
  Actor Start(const ActorOptions& options, actor::ConstructorCall constructor,
              const char* class_name);
  absl::StatusOr<ActorGroup> StartGroup(const ActorOptions& options,
                                        const actor::Grid& grid,
                                        actor::ConstructorCall constructor,
                                        const char* class_name);
  absl::StatusOr<Actor> Find(const std::string& name,
                             const std::string& name_space,
                             const char* class_name);
  absl::StatusOr<FoundGroup> FindGroup(const std::string& name,
                                       const std::string& name_space,
                                       const char* class_name);
  absl::Status Kill(const JobId& id, bool is_group);
  std::shared_ptr<actor::TaskRunner> Tasks() const;

  std::unique_ptr<Core> core_;
};

// The GPUs that this actor, or rank, was given: as CUDA_VISIBLE_DEVICES names
// them.  Ray's get_gpu_ids.
std::vector<std::string> GetGpuIds();

// What Init calls first: cohort::train::ServeRanks, which does not return in a
// training's rank.  Set before main.
bool SetRankServer(void (*serve)());

// The first line of `main`.  In a process that runs an actor it serves that one
// and never returns, and so it is in a rank of a training; in any other it
// connects the program to its cluster, or says on stderr why it cannot and ends
// it with 125.  Arguments stay the program's.
Runtime Init(int argc, char** argv, RuntimeOptions options = {});

}  // namespace cohort

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/clock.h"
#include "common/executor.h"
#include "common/random.h"
#include "common/secret_box.h"
#include "head/archive/backups.h"
#include "head/autoscaler/autoscaler.h"
#include "head/autoscaler/autoscaler_service.h"
#include "head/autoscaler/provider.h"
#include "head/explain/explanation.h"
#include "head/metrics/head_metrics.h"
#include "head/services/audit_service.h"
#include "head/services/authorities.h"
#include "head/services/authority_service.h"
#include "head/services/event_reader.h"
#include "head/services/last_logs.h"
#include "head/services/package_store.h"
#include "head/services/revocations.h"
#include "head/services/state_host.h"
#include "head/state/cluster_state.h"
#include "head/store/commit.h"
#include "head/store/store.h"
#include "rpc/credential.h"
#include "rpc/router.h"
#include "rpc/token_book.h"

namespace cohort::head {

class BackupService;
class EventService;
class ClusterService;
class DriverService;
class NodeService;
class PackageService;
class OrphanService;
class RunFileService;
class StackService;
class TokenService;

struct HeadCoreOptions {
  ClusterLimits limits;
  // Shown by GetStatus.
  std::string address;
  int64_t pid = 0;
  // Between attempts to open a store that refuses.
  absl::Duration reopen_delay = absl::Seconds(1);
  // A row is written this often, so that a disk that is full or gone is known
  // before somebody needs it.
  absl::Duration probe_period = absl::Seconds(10);
  // What may wait to become durable before clients are told to come back:
  // 10,000 transitions of 1 KiB sync in well under a second.
  size_t pending_transitions_max = 10'000;
  size_t pending_bytes_max = 64 << 20;
  // Readers of logs at once, each of which may hold a piece (NodeLog).
  size_t log_readers_max = 8'192;
  // Living actors that one driver may watch: each is an id here.
  size_t actors_watched_max = 100'000;
  // Logs that one node sends at once.
  size_t node_logs_max = 1'024;
  AutoscalerOptions autoscaler;
  // Applied at the start, where it is not what is stored.
  std::optional<ClusterFile> cluster_file;
};

// What a head is made of, given by the composition root: head.cc for the
// program, the simulation for tests.  All outlive the core.
struct HeadSeams {
  Executor& strand;          // one task at a time; the core lives there
  Executor& store_executor;  // one task at a time; may block
  const Clock& clock;
  Random& random;
  PackageStore& packages;
  Backups* backups = nullptr;     // null: this head makes none
  Provider* provider = nullptr;   // null: this head scales nothing
  LastLogs* last_logs = nullptr;  // null: logs go with their nodes
  // Where plans of the autoscaler are made; null: on the strand.
  Executor* planning = nullptr;
  // Of the router's authenticator; null: only the cluster's credential counts.
  std::shared_ptr<rpc::TokenBook> tokens;
  // The cluster's; set with `tokens`.
  std::optional<rpc::Credential> credential;
  // Null: secrets of jobs are stored as they come.
  std::shared_ptr<const SecretBox> box;
  Revocations* revocations = nullptr;  // null: they are in the store alone
  // Null: clients know this head by no certificate.
  Authorities* authorities = nullptr;
  // Has what the router's observer saw refused; null: there is no audit log.
  std::shared_ptr<AuditBuffer> audit;
};

// A head without transport, files and threads: state, commit, services, leases
// and the rebuild after a failed append.
//
// Strand-bound: made, used and destroyed on the strand (destroying it is what a
// crash is to the simulation).  Tasks that it posted do nothing afterwards; the
// last one on the store's executor destroys the store.  Unlisten or shut down
// the transport first: the router's handlers point here.
class HeadCore final : public StateHost, private JobWatchers {
 public:
  // Opens the store; runs on the store's executor, again after each failure.
  using OpenStore =
      absl::AnyInvocable<absl::StatusOr<std::unique_ptr<Store>>(StoreAccess)>;
  // The head cannot go on (a second head took the store, a higher term was
  // seen): the process is to end.  On the strand, at most once.
  using Fatal = absl::AnyInvocable<void(const absl::Status&) &&>;

  HeadCore(HeadCoreOptions options, HeadSeams seams, OpenStore open_store,
           Fatal on_fatal);
  ~HeadCore() override;

  HeadCore(const HeadCore&) = delete;
  HeadCore& operator=(const HeadCore&) = delete;

  // Adds the services' handlers and keeps the router's stamp up to date.  Once,
  // before Start; `router` outlives the core's last answer.
  void RegisterOn(rpc::Router& router);

  // Loads the store and takes a term; `done` runs on the strand once that is
  // durable, or with why the store cannot be used.  Once.  Serve after it.
  void Start(absl::AnyInvocable<void(const absl::Status&) &&> done);

  // The process is about to end: what waits for something else than the disk
  // is answered UNAVAILABLE, and so is whatever comes from now on, for another
  // head to do; what was decided becomes durable and is answered.
  void BeginEnd();

  // For the addresses of servers that were started after the core was made.
  void SetAddresses(std::string address, std::string http_address);

  // The state as it is; null before it is loaded.  For tests' invariants.
  const ClusterState* state() const;
  bool read_only() const;
  // Of the present commit; zeros before the first.
  Commit::Counters commit_counters() const;
  // Transitions that are not durable yet.
  size_t pending_count() const;
  // What metrics are made of; zeros while the state is loaded.
  HeadSample Sample() const;

  // StateHost.
  absl::StatusOr<const ClusterState*> Readable() override;
  absl::StatusOr<ClusterState*> Writable(Admission admission) override;
  Explainer& explainer() override;
  void Submit(Transition transition) override;
  void AfterDurable(Effect effect) override;
  void HigherTermSeen(uint64_t term) override;

 private:
  // JobWatchers.
  void JobChanged(const JobId& job) override;

  struct Opened;
  struct Life;
  using OnOpen = absl::AnyInvocable<void(absl::StatusOr<Opened>) &&>;

  // Opens and loads the store; `done` on the strand.
  void Open(StoreAccess access, OnOpen done);
  void OpenToWrite();
  void OnOpened(absl::StatusOr<Opened> opened);
  void OnTermTaken(const absl::Status& status);
  void OnAppendFailed(const absl::Status& status);
  // The store could not be opened or written: why, or another try later.
  void GiveUpOrReopen(const absl::Status& status);
  // Loads what reads are answered from until the store can be written again.
  void OpenToRead();
  std::unique_ptr<Life> MakeLife(Rows rows);
  void Tick();
  // What follows from what is durable goes on, a turn after the other (BD-1).
  void GoOnOnceDurable();
  void TrimPackages();
  // Of attempts that are forgotten.
  void RemoveLastLogs();
  void Backup(BackupRequest request, Backups::Done done);
  // Reads events on the store's executor; `done` on the strand, or dropped
  // with the core.
  void ReadEvents(EventQuery query, EventsRead done);
  template <typename Query, typename Page, typename Done>
  void Read(Store* store, Query query,
            absl::StatusOr<Page> (*read)(Store&, const Query&), Done done);
  void Die(const absl::Status& status);
  void DropStores();
  void DropStore(std::unique_ptr<Store> store);
  // `task` unless the core is gone when it runs.
  Task Guarded(Task task);
  // `effect`, which is told UNAVAILABLE when the core is gone by then.
  Effect Guarded(Effect effect);

  // Set in the constructor.
  HeadCoreOptions options_;
  const HeadSeams seams_;
  // Shared: this and a task of the store's executor that is opening one.
  const std::shared_ptr<OpenStore> open_store_;
  Fatal on_fatal_;
  rpc::Router* router_ = nullptr;
  std::unique_ptr<NodeService> node_service_;
  std::unique_ptr<PackageService> package_service_;
  std::unique_ptr<ClusterService> cluster_service_;
  std::unique_ptr<DriverService> driver_service_;
  std::unique_ptr<BackupService> backup_service_;
  std::unique_ptr<EventService> event_service_;
  std::unique_ptr<OrphanService> orphan_service_;
  std::unique_ptr<RunFileService> run_file_service_;
  std::unique_ptr<StackService> stack_service_;
  std::unique_ptr<TokenService> token_service_;
  std::unique_ptr<AuthorityService> authority_service_;
  std::unique_ptr<AuditService> audit_service_;
  std::unique_ptr<Autoscaler> autoscaler_;
  std::unique_ptr<AutoscalerService> autoscaler_service_;
  bool ticking_ = false;
  bool goes_on_ = false;
  bool dead_ = false;
  bool ending_ = false;
  absl::Duration packages_trimmed_at_;
  absl::Duration logs_removed_at_;
  // So many were removed when copied logs were looked at.
  std::optional<uint64_t> attempts_removed_;
  absl::Duration probed_at_;
  absl::Duration callers_checked_at_;

  // One life of the state; replaced as a whole.
  std::unique_ptr<Store> store_;
  // The events that the state knows of, while there is no store.
  std::unique_ptr<Store> shown_events_;
  std::unique_ptr<Life> life_;
  std::unique_ptr<Commit> commit_;
  // While its term is not durable.
  std::unique_ptr<Life> next_life_;
  bool read_only_ = true;
  absl::Status refusal_;  // what the store said, until it works again
  absl::AnyInvocable<void(const absl::Status&) &&> on_started_;

  // Shared: tasks that reach the strand after the core's end see it gone.
  std::shared_ptr<char> alive_;
};

}  // namespace cohort::head

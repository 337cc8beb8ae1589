#include "head/head_core.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/services/backup_service.h"
#include "head/services/cluster_service.h"
#include "head/services/driver_service.h"
#include "head/services/event_service.h"
#include "head/services/node_service.h"
#include "head/services/orphan_service.h"
#include "head/services/package_service.h"
#include "head/services/run_file_service.h"
#include "head/services/stack_service.h"
#include "head/services/token_service.h"
#include "head/state/rows.h"
#include "head/store/migration.h"

namespace cohort::head {
namespace {

constexpr absl::Duration kTrimPackagesPeriod = absl::Minutes(1);
// Each looks at all files, of which there are some ten thousand at most.
constexpr absl::Duration kRemoveLogsPeriod = absl::Seconds(1);
// How long after the end of a token its streams may go on.
constexpr absl::Duration kCheckCallersPeriod = absl::Seconds(1);

// `what`, and why, once the store has said it.
absl::Status Refusal(absl::string_view what, const absl::Status& store,
                     absl::string_view reason) {
  const std::string why = store.ok() ? "" : absl::StrCat(": ", store.message());
  return SetReason(absl::UnavailableError(absl::StrCat(what, why)), reason);
}

absl::Status ReadOnly(const absl::Status& store) {
  return Refusal(
      "the store refuses writes and is being opened again, nothing was "
      "changed, try again",
      store, "read_only");
}

absl::Status Reloading(const absl::Status& store) {
  return Refusal("the head is loading its state, try again", store, "loading");
}

absl::Status Ending() {
  return SetReason(
      absl::UnavailableError("the head is shutting down, try again"),
      "shutting_down");
}

}  // namespace

// What is made of the rows, and replaced as a whole.
struct HeadCore::Life {
  Explainer explainer;
  ClusterState state;
};

// What the store's executor brings.
struct HeadCore::Opened {
  std::unique_ptr<Store> store;
  Rows rows;
};

HeadCore::HeadCore(HeadCoreOptions options, HeadSeams seams,
                   OpenStore open_store, Fatal on_fatal)
    : options_(std::move(options)),
      seams_(seams),
      open_store_(std::make_shared<OpenStore>(std::move(open_store))),
      on_fatal_(std::move(on_fatal)),
      alive_(std::make_shared<char>()) {
  node_service_ = std::make_unique<NodeService>(
      NodeServiceOptions{.node_timeout = options_.limits.node_timeout,
                         .logs_max = options_.node_logs_max,
                         .box = seams_.box},
      *this, seams_.strand, seams_.clock);
  package_service_ =
      std::make_unique<PackageService>(*this, seams_.packages, seams_.strand);
  cluster_service_ = std::make_unique<ClusterService>(
      ClusterServiceOptions{.address = options_.address,
                            .pid = options_.pid,
                            .log_readers_max = options_.log_readers_max,
                            .last_logs = seams_.last_logs,
                            .scaling_of =
                                [this](const JobId& job) {
                                  return autoscaler_service_->ScalingOf(job);
                                }},
      *this, *node_service_, *package_service_, seams_.strand);
  driver_service_ = std::make_unique<DriverService>(options_.actors_watched_max,
                                                    *this, seams_.strand);
  orphan_service_ = std::make_unique<OrphanService>(*this, seams_.strand);
  run_file_service_ =
      std::make_unique<RunFileService>(*this, *node_service_, seams_.strand);
  stack_service_ =
      std::make_unique<StackService>(*this, *node_service_, seams_.strand);
  std::optional<TokenService::Secrets> secrets;
  if (seams_.tokens != nullptr) {
    secrets = {*seams_.credential, seams_.tokens, seams_.revocations};
  }
  token_service_ = std::make_unique<TokenService>(std::move(secrets), *this,
                                                  seams_.strand, seams_.clock);
  authority_service_ = std::make_unique<AuthorityService>(
      seams_.authorities, *node_service_, *driver_service_, *this,
      seams_.strand, seams_.clock);
  audit_service_ = std::make_unique<AuditService>(
      *this,
      [this](v1::ListAuditRequest request, AuditRead done) {
        Read(store_.get(), std::move(request), &ReadAudit, std::move(done));
      },
      seams_.audit, seams_.strand);
  autoscaler_ = std::make_unique<Autoscaler>(
      options_.autoscaler, *this, *node_service_, seams_.last_logs,
      seams_.provider, seams_.strand,
      seams_.planning == nullptr ? seams_.strand : *seams_.planning,
      seams_.clock);
  autoscaler_service_ = std::make_unique<AutoscalerService>(
      *autoscaler_, *this, seams_.provider, seams_.strand, seams_.clock);
  backup_service_ = std::make_unique<BackupService>(
      [this](BackupRequest request, Backups::Done done) {
        Backup(std::move(request), std::move(done));
      },
      seams_.strand, seams_.clock);
  event_service_ = std::make_unique<EventService>(
      *this,
      [this](EventQuery query, EventsRead done) {
        ReadEvents(std::move(query), std::move(done));
      },
      seams_.strand);
}

HeadCore::~HeadCore() {
  alive_.reset();
  commit_.reset();
  DropStores();
}

void HeadCore::RegisterOn(rpc::Router& router) {
  router_ = &router;
  cluster_service_->RegisterOn(router);
  driver_service_->RegisterOn(router);
  node_service_->RegisterOn(router);
  package_service_->RegisterOn(router);
  backup_service_->RegisterOn(router);
  event_service_->RegisterOn(router);
  orphan_service_->RegisterOn(router);
  run_file_service_->RegisterOn(router);
  stack_service_->RegisterOn(router);
  token_service_->RegisterOn(router);
  authority_service_->RegisterOn(router);
  audit_service_->RegisterOn(router);
  autoscaler_service_->RegisterOn(router);
}

void HeadCore::SetAddresses(std::string address, std::string http_address) {
  cluster_service_->SetAddresses(std::move(address), std::move(http_address));
}

const ClusterState* HeadCore::state() const {
  return life_ == nullptr ? nullptr : &life_->state;
}

bool HeadCore::read_only() const { return read_only_; }

Commit::Counters HeadCore::commit_counters() const {
  return commit_ == nullptr ? Commit::Counters() : commit_->counters();
}

size_t HeadCore::pending_count() const {
  return commit_ == nullptr ? 0 : commit_->pending_count();
}

HeadSample HeadCore::Sample() const {
  HeadSample sample;
  if (life_ != nullptr) {
    sample = SampleOf(life_->state);
    sample.history.push_back(life_->explainer.Level());
  }
  sample.read_only = read_only_;
  sample.transitions = commit_counters().transitions;
  if (commit_ != nullptr) {
    sample.pending_transitions = commit_->pending_count();
    sample.pending_bytes = commit_->pending_bytes();
  }
  sample.node_streams = node_service_->stream_count();
  return sample;
}

// ---- a life of the state ----

void HeadCore::Start(absl::AnyInvocable<void(const absl::Status&) &&> done) {
  on_started_ = std::move(done);
  OpenToWrite();
}

void HeadCore::Open(StoreAccess access, OnOpen done) {
  seams_.store_executor.Post([access, done = std::move(done),
                              open_store = open_store_, &strand = seams_.strand,
                              alive = std::weak_ptr<char>(alive_)]() mutable {
    auto opened = [&]() -> absl::StatusOr<Opened> {
      Opened result;
      COHORT_ASSIGN_OR_RETURN(result.store, (*open_store)(access));
      if (access == StoreAccess::kReadWrite) {
        COHORT_RETURN_IF_ERROR(MigrateStore(*result.store));
      } else {
        COHORT_ASSIGN_OR_RETURN(result.store,
                                Migrated(std::move(result.store)));
      }
      COHORT_ASSIGN_OR_RETURN(result.rows, LoadRows(*result.store));
      if (access == StoreAccess::kRead) {
        COHORT_ASSIGN_OR_RETURN(result.store,
                                CopyOfTable(*result.store, Table::kEvents));
      }
      return result;
    }();
    strand.Post([done = std::move(done), alive = std::move(alive),
                 opened = std::move(opened)]() mutable {
      if (alive.lock() != nullptr) std::move(done)(std::move(opened));
    });
  });
}

void HeadCore::OpenToWrite() {
  Open(StoreAccess::kReadWrite,
       [this](auto opened) { OnOpened(std::move(opened)); });
}

void HeadCore::OpenToRead() {
  Open(StoreAccess::kRead, [this](absl::StatusOr<Opened> opened) {
    if (dead_ || life_ != nullptr) return;
    // Then reads wait for the disk too.
    if (!opened.ok()) {
      if (on_started_) std::exchange(on_started_, nullptr)(refusal_);
      return;
    }
    COHORT_LOG(kWarning, "read_only", {"why", refusal_});
    shown_events_ = std::move(opened->store);
    life_ = MakeLife(std::move(opened->rows));
    token_service_->StateLoaded(life_->state);
    // On a full disk it starts all the same, and shows what there is.
    if (on_started_) std::exchange(on_started_, nullptr)(absl::OkStatus());
  });
}

std::unique_ptr<HeadCore::Life> HeadCore::MakeLife(Rows rows) {
  // In place, as neither can be moved.
  return std::unique_ptr<Life>(new Life{
      .explainer = Explainer(options_.limits.history.wait_reasons, seams_.clock,
                             std::move(rows.wait_reasons)),
      .state =
          ClusterState(options_.limits, seams_.clock, seams_.random,
                       *node_service_, *this, std::move(rows), seams_.box)});
}

void HeadCore::OnOpened(absl::StatusOr<Opened> opened) {
  if (dead_) return;
  if (!opened.ok()) return GiveUpOrReopen(opened.status());
  store_ = std::move(opened->store);
  const uint64_t term_before =
      opened->rows.cluster.has_value() ? opened->rows.cluster->term() : 0;
  next_life_ = MakeLife(std::move(opened->rows));
  // TM-1, and the probe: what syncs this syncs the rest.
  Transition transition;
  next_life_->state.TakeTerm(transition);
  seams_.store_executor.Post([this, &store = *store_, term_before,
                              &strand = seams_.strand,
                              alive = std::weak_ptr<char>(alive_),
                              batch = transition.TakeBatch()]() mutable {
    absl::Status status = store.Append(term_before, batch);
    strand.Post(
        [this, alive = std::move(alive), status = std::move(status)]() mutable {
          if (alive.lock() != nullptr) OnTermTaken(status);
        });
  });
}

void HeadCore::OnTermTaken(const absl::Status& status) {
  if (dead_) return;
  if (!status.ok()) return GiveUpOrReopen(status);
  life_ = std::move(next_life_);
  const ClusterState& state = life_->state;
  DropStore(std::move(shown_events_));
  node_service_->CloseAll(
      SetReason(absl::UnavailableError("the head's state was loaded again"),
                "state_reloaded"));
  const ClusterRecord& cluster = state.cluster();
  commit_ = std::make_unique<Commit>(
      *store_, seams_.store_executor, seams_.strand, cluster.term(),
      [this](const absl::Status& failure) { OnAppendFailed(failure); });
  read_only_ = false;
  probed_at_ = seams_.clock.Monotonic();
  refusal_ = absl::OkStatus();
  token_service_->StateLoaded(life_->state);
  if (router_ != nullptr) {
    router_->SetStamp(
        {.cluster_id = cluster.cluster_id(), .term = cluster.term()});
  }
  COHORT_LOG(kInfo, "term_taken",
             {"cluster", IdOf<ClusterId>(cluster.cluster_id())},
             {"term", cluster.term()}, {"jobs", state.jobs().size()});
  if (!std::exchange(ticking_, true)) {
    seams_.packages.KeepOnly(state.packages().Hashes());
    packages_trimmed_at_ = seams_.clock.Monotonic();
    Tick();
  }
  autoscaler_->StateLoaded();
  if (options_.cluster_file.has_value()) {
    autoscaler_service_->ApplyAtStart(
        *std::exchange(options_.cluster_file, {}));
  }
  event_service_->EventsAdded();
  GoOnOnceDurable();
  if (on_started_) std::exchange(on_started_, nullptr)(absl::OkStatus());
}

void HeadCore::GiveUpOrReopen(const absl::Status& status) {
  next_life_.reset();
  DropStore(std::move(store_));
  if (on_started_ && GetReason(status) != kDiskFullReason) {
    // At the start a person waits for the answer.
    return std::exchange(on_started_, nullptr)(status);
  }
  // Another head has the store, or what is there cannot be read.
  if (absl::IsFailedPrecondition(status) || absl::IsDataLoss(status)) {
    return Die(status);
  }
  refusal_ = status;
  COHORT_LOG(kWarning, "store_refuses", {"why", status},
             {"again_in", options_.reopen_delay});
  if (life_ == nullptr) OpenToRead();
  seams_.strand.PostAfter(options_.reopen_delay, Guarded(Task([this] {
                            if (!dead_) OpenToWrite();
                          })));
}

void HeadCore::OnAppendFailed(const absl::Status& status) {
  COHORT_LOG(kError, "append_failed", {"why", status});
  read_only_ = true;
  refusal_ = status;
  // CM-3: nobody sees or uses the old state again.
  commit_.reset();
  life_.reset();
  node_service_->Suspend(Reloading(refusal_));
  cluster_service_->DropWaiting(Reloading(refusal_));
  driver_service_->CloseAll(Reloading(refusal_));
  event_service_->DropWaiting(Reloading(refusal_));
  stack_service_->DropWaiting(Reloading(refusal_));
  DropStores();
  if (absl::IsFailedPrecondition(status)) return Die(status);
  OpenToWrite();
}

void HeadCore::BeginEnd() {
  if (std::exchange(ending_, true)) return;
  node_service_->CloseAll(Ending());
  cluster_service_->DropWaiting(Ending());
  driver_service_->CloseAll(Ending());
  event_service_->DropWaiting(Ending());
  stack_service_->DropWaiting(Ending());
}

void HeadCore::DropStores() {
  DropStore(std::move(store_));
  DropStore(std::move(shown_events_));
}

void HeadCore::DropStore(std::unique_ptr<Store> store) {
  if (store == nullptr) return;
  // After what its executor still does with it.
  seams_.store_executor.Post(
      [store = std::move(store)]() mutable { store.reset(); });
}

void HeadCore::ReadEvents(EventQuery query, EventsRead done) {
  Read(store_ != nullptr ? store_.get() : shown_events_.get(), std::move(query),
       &head::ReadEvents, std::move(done));
}

template <typename Query, typename Page, typename Done>
void HeadCore::Read(Store* store, Query query,
                    absl::StatusOr<Page> (*read)(Store&, const Query&),
                    Done done) {
  if (store == nullptr) return std::move(done)(Reloading(refusal_));
  seams_.store_executor.Post(
      [store, read, query = std::move(query), &strand = seams_.strand,
       alive = std::weak_ptr<char>(alive_), done = std::move(done)]() mutable {
        absl::StatusOr<Page> page = read(*store, query);
        strand.Post([alive = std::move(alive), done = std::move(done),
                     page = std::move(page)]() mutable {
          if (alive.lock() != nullptr) std::move(done)(std::move(page));
        });
      });
}

void HeadCore::Die(const absl::Status& status) {
  if (std::exchange(dead_, true)) return;
  COHORT_LOG(kError, "head_cannot_go_on", {"why", status});
  read_only_ = true;
  if (on_fatal_) std::exchange(on_fatal_, nullptr)(status);
}

// ---- time ----

void HeadCore::Tick() {
  if (dead_) return;
  seams_.strand.PostAfter(options_.limits.tick_period,
                          Guarded(Task([this] { Tick(); })));
  if (router_ != nullptr &&
      seams_.clock.Monotonic() - callers_checked_at_ >= kCheckCallersPeriod) {
    callers_checked_at_ = seams_.clock.Monotonic();
    router_->EndRefused();
  }
  if (read_only_) return;
  Transition transition;
  ClusterState& state = life_->state;
  state.Tick(transition);
  life_->explainer.Look(state, transition);
  audit_service_->Flush(state, transition);
  if (seams_.clock.Monotonic() - probed_at_ >= options_.probe_period) {
    probed_at_ = seams_.clock.Monotonic();
    // As it is: under load it rides along with what is written anyway.
    transition.Put(state.cluster());
  }
  Submit(std::move(transition));
  autoscaler_->Tick();
  if (seams_.clock.Monotonic() - packages_trimmed_at_ >= kTrimPackagesPeriod) {
    TrimPackages();
    attempts_removed_.reset();  // also what a former life of the state left
  }
  if (attempts_removed_ != state.attempts().removed_count() &&
      seams_.clock.Monotonic() - logs_removed_at_ >= kRemoveLogsPeriod) {
    attempts_removed_ = state.attempts().removed_count();
    RemoveLastLogs();
  }
}

void HeadCore::RemoveLastLogs() {
  logs_removed_at_ = seams_.clock.Monotonic();
  if (seams_.last_logs == nullptr) return;
  seams_.last_logs->RemoveForgotten(
      [this, alive = std::weak_ptr<char>(alive_)](const AttemptId& attempt) {
        // Without a state nothing is known to be forgotten.
        return alive.expired() || life_ == nullptr || read_only_ ||
               life_->state.attempts().Find(attempt) != nullptr;
      });
}

void HeadCore::GoOnOnceDurable() {
  if (goes_on_ || !life_->state.HasToGoOn()) return;
  goes_on_ = true;
  AfterDurable([this](const absl::Status& status) {
    goes_on_ = false;
    if (!status.ok() || !Writable(Admission::kNode).ok()) return;
    Transition transition;
    life_->state.GoOn(transition);
    Submit(std::move(transition));
  });
}

void HeadCore::TrimPackages() {
  packages_trimmed_at_ = seams_.clock.Monotonic();
  Transition transition;
  const std::vector<std::string> gone =
      life_->state.TrimPackages(package_service_->InUse(), transition);
  if (gone.empty()) return;
  transition.Then([this, gone](const absl::Status& status) {
    if (status.ok()) package_service_->Remove(gone);
  });
  Submit(std::move(transition));
}

void HeadCore::Backup(BackupRequest request, Backups::Done done) {
  absl::Status refused = Writable(Admission::kNode).status();
  // Not to be tried again soon, as a store that is being opened again.
  if (GetReason(refusal_) == kDiskFullReason && !refused.ok()) {
    refused = refusal_;
  }
  if (refused.ok() && seams_.backups == nullptr) {
    refused = absl::UnimplementedError("this head makes no backups");
  }
  if (refused.ok()) {
    // A store that is dropped meanwhile goes after the tasks that this posts.
    return seams_.backups->Write(*store_, std::move(request), std::move(done));
  }
  seams_.strand.Post([done = std::move(done), refused]() mutable {
    std::move(done)(refused);
  });
}

Task HeadCore::Guarded(Task task) {
  return
      [alive = std::weak_ptr<char>(alive_), task = std::move(task)]() mutable {
        if (alive.lock() != nullptr) std::move(task)();
      };
}

Effect HeadCore::Guarded(Effect effect) {
  return [alive = std::weak_ptr<char>(alive_),
          effect = std::move(effect)](const absl::Status& status) mutable {
    if (alive.lock() != nullptr) return std::move(effect)(status);
    std::move(effect)(absl::UnavailableError("the head is shutting down"));
  };
}

// ---- StateHost ----

absl::StatusOr<const ClusterState*> HeadCore::Readable() {
  if (ending_) return Ending();
  if (life_ == nullptr) return Reloading(refusal_);
  return &life_->state;
}

absl::StatusOr<ClusterState*> HeadCore::Writable(Admission admission) {
  if (ending_) return Ending();
  if (life_ == nullptr) return Reloading(refusal_);
  if (read_only_) return ReadOnly(refusal_);
  if (admission == Admission::kClient &&
      (commit_->pending_count() >= options_.pending_transitions_max ||
       commit_->pending_bytes() >= options_.pending_bytes_max)) {
    return SetReason(
        absl::ResourceExhaustedError(absl::StrCat(
            commit_->pending_count(),
            " changes wait for the disk already: try again later")),
        "overloaded");
  }
  return &life_->state;
}

Explainer& HeadCore::explainer() { return life_->explainer; }

void HeadCore::Submit(Transition transition) {
  COHORT_CHECK(commit_ != nullptr);
  if (transition.empty()) return;
  audit_service_->AddTo(life_->state, transition);
  for (Effect& effect : transition.TakeEffects()) {
    transition.Then(Guarded(std::move(effect)));
  }
  commit_->Submit(std::move(transition));
  event_service_->EventsAdded();
  autoscaler_->Poke();
  GoOnOnceDurable();
}

void HeadCore::AfterDurable(Effect effect) {
  effect = Guarded(std::move(effect));
  if (commit_ != nullptr) return commit_->AfterDurable(std::move(effect));
  // What was loaded is durable.
  seams_.strand.Post([effect = std::move(effect)]() mutable {
    std::move(effect)(absl::OkStatus());
  });
}

void HeadCore::JobChanged(const JobId& job) {
  cluster_service_->JobChanged(job);
  driver_service_->JobChanged(job);
}

void HeadCore::HigherTermSeen(uint64_t term) {
  // Not within the call: it comes from a stream that this closes.
  seams_.strand.Post(Guarded(Task([this, term] {
    Die(SetReason(absl::FailedPreconditionError(absl::StrCat(
                      "a worker follows a head of term ", term,
                      ", which is newer than this one: end whichever of the "
                      "two is not wanted")),
                  "stale_term"));
  })));
}

}  // namespace cohort::head

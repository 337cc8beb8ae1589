#include "worker/worker.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/build_info.h"
#include "common/file.h"
#include "common/latch.h"
#include "common/local_files.h"
#include "common/log.h"
#include "common/random.h"
#include "common/real_clock.h"
#include "common/state_directory.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/strand.h"
#include "common/thread_pool.h"
#include "common/unique_fd.h"
#include "rpc/certificate.h"
#include "rpc/credential.h"
#include "rpc/grpc_channel.h"
#include "rpc/router.h"
#include "rpc/wire_values.h"
#include "worker/delegated_cgroup.h"
#include "worker/device_monitor.h"
#include "worker/device_thread.h"
#include "worker/head_link.h"
#include "worker/join.h"
#include "worker/journal.h"
#include "worker/keeper_client.h"
#include "worker/leftover_attempts.h"
#include "worker/local_process_host.h"
#include "worker/log_service.h"
#include "worker/log_sweep.h"
#include "worker/node_directories.h"
#include "worker/node_readiness.h"
#include "worker/node_state.h"
#include "worker/numa_topology.h"
#include "worker/nvml_devices.h"
#include "worker/own_drain.h"
#include "worker/package_cache.h"
#include "worker/results_sweep.h"
#include "worker/run_service.h"
#include "worker/runtime_directory.h"
#include "worker/simulated_devices.h"
#include "worker/worker_socket.h"

extern char** environ;

namespace cohort::worker {
namespace {

// Beyond the ranks' grace: for SIGKILL and for the head's answer.
constexpr absl::Duration kDrainRanksSlack = absl::Milliseconds(2'500);
// A head that has not recorded the ends by then is away.
constexpr absl::Duration kHeadAnswer = absl::Seconds(2);
// Only a process in uninterruptible sleep takes longer to die.
constexpr absl::Duration kLeftoversTimeout = absl::Seconds(5);

// The first call loads the driver where nothing keeps it: some seconds.
constexpr absl::Duration kDriverAnswer = absl::Seconds(30);

// What most attempts take before their ranks begin: exit records and logs;
// sockets and the control segment.  One that takes more finds out then.
constexpr int64_t kStateRoomBytes = 4 << 20;
constexpr int64_t kRuntimeRoomBytes = 256 << 10;
// Directories on the disk of the former, which may be missing by themselves.
constexpr int64_t kRecordBytes = 4 << 10;

// The node strand, small writes, directories, what takes long, and logs.
constexpr int kThreads = 5;

// Of the whole file system that has the directory.
int64_t DiskBytes(const std::string& directory) {
  struct statvfs disk;
  if (statvfs(directory.c_str(), &disk) != 0) {
    return std::numeric_limits<int64_t>::max();
  }
  return static_cast<int64_t>(disk.f_blocks) *
         static_cast<int64_t>(disk.f_frsize);
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "node";
}

// The address of the interface that leads to the head: where its other nodes
// find this one too.
std::string HostTowards(const HostPort& head) {
  if (head.IsLoopback()) return "127.0.0.1";
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(head.host.c_str(), absl::StrCat(head.port).c_str(), &hints,
                  &found) != 0) {
    return HostName();
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found,
                                                             freeaddrinfo);
  const UniqueFd fd(socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  char text[INET6_ADDRSTRLEN] = {};
  if (!fd || connect(fd.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) !=
          0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&address), size, text,
                  sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) {
    return HostName();
  }
  return text;
}

// Ranks here get this host as MASTER_ADDR: it has to mean something here.
absl::Status CheckResolves(const std::string& host) {
  if (host.empty()) return absl::OkStatus();
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error == 0) {
    freeaddrinfo(found);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--host ", host, " does not resolve here (", gai_strerror(error),
      "): give a name or an address at which other nodes reach this machine"));
}

std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    entries.emplace_back(*entry);
  }
  return entries;
}

// Reads the node id before the directories that need it are known.
absl::StatusOr<NodeId> LoadNodeId(const std::string& state_dir) {
  COHORT_RETURN_IF_ERROR(MakeDirectories(state_dir, 0700));
  const NodeDirectories directories(state_dir, "");
  SystemRandom random;
  return Journal(directories).LoadNodeId(random);
}

// All nodes come at once when their head has been started again; packets of one
// that is gone are sent again after 1, 3 and 7 s.
constexpr absl::Duration kConnect = absl::Seconds(10);

// Others pass through it, to what is theirs, and see no names.
constexpr mode_t kPassMode = 0711;

// Under --run-as: to their work directories and results, and nothing else.
absl::Status LetRanksIn(const WorkerOptions& options,
                        const NodeDirectories& directories) {
  if (!options.run_as.is_on()) return absl::OkStatus();
  for (const std::string& path :
       {directories.state(), directories.AllWork(), directories.Results()}) {
    COHORT_RETURN_IF_ERROR(MakeDirectories(path, 0700));
    if (chmod(path.c_str(), kPassMode) != 0) {
      return ErrnoStatus(errno, absl::StrCat("change the mode of ", path));
    }
  }
  std::set<uid_t> users;
  for (const OsAccount& account : options.run_as.accounts()) {
    users.insert(account.uid);
    const ActingAs acting(account);
    const UniqueFd work(open(absl::StrCat(directories.AllWork(), "/.").c_str(),
                             O_PATH | O_CLOEXEC));
    if (work) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "--run-as: user ", account.uid, " cannot reach ", directories.AllWork(),
        ": ", std::strerror(errno),
        " (let others pass through the directories above --state-dir: chmod "
        "o+x)"));
  }
  BelieveMarksOf(std::move(users));
  return absl::OkStatus();
}

std::string NodeName(const WorkerOptions& options) {
  return options.name.empty() ? HostName() : options.name;
}

// Empty of none, as where the head runs with --insecure.
std::string FingerprintOf(const std::string& authority) {
  return rpc::FingerprintOf(authority).value_or("");
}

v1::Register MakeRegistration(const WorkerOptions& options, const NodeId& node,
                              const NodeInventory& inventory,
                              const std::string& host,
                              const std::string& unenforced, Random& random) {
  v1::Register registration;
  registration.mutable_protocol()->set_min_version(kProtocolMin);
  registration.mutable_protocol()->set_max_version(kProtocolMax);
  const BuildInfo build = GetBuildInfo();
  registration.mutable_protocol()->set_build(
      absl::StrCat(build.version, " ", build.commit));
  registration.set_node_id(std::string(node.bytes()));
  registration.set_name(NodeName(options));
  registration.set_pid(getpid());
  registration.set_host(host);
  registration.set_unenforced(unenforced);
  *registration.mutable_resources() = rpc::ToWire(inventory.resources);
  registration.mutable_devices()->Assign(inventory.devices.begin(),
                                         inventory.devices.end());
  for (const auto& [key, value] : options.labels) {
    (*registration.mutable_labels())[key] = value;
  }
  for (const Taint& taint : options.taints) {
    *registration.add_taints() = rpc::ToWire(taint);
  }
  registration.set_daemon_nonce(random.Uint64());
  return registration;
}

std::shared_ptr<DeviceSource> MakeSource(const WorkerOptions& options,
                                         const NodeId& node) {
  if (!options.simulated_gpus.has_value()) {
    return std::make_shared<NvmlDevices>(options.nvml_library);
  }
  // Each of the workers that divide this machine simulates as many.
  return std::make_shared<SimulatedDevices>(
      node.ToHex().substr(0, 8),
      *options.simulated_gpus * options.inventory.share_count);
}

absl::StatusOr<NodeInventory> Inventory(const WorkerOptions& options,
                                        DeviceSource& source) {
  COHORT_ASSIGN_OR_RETURN(const MachineSize machine, MeasureMachine());
  InventoryOptions own = options.inventory;
  if (options.simulated_gpus.has_value()) own.gpus = *options.simulated_gpus;
  return TakeInventory(own, machine, source);
}

// Each place has a keeper, once a process of it was begun.
KnownHere KnownBy(const JournalEntries& entries) {
  KnownHere known;
  for (const PlaceEntry& place : entries.places) {
    const auto id = AttemptId::FromBytes(place.desired.attempt_id());
    if (id.ok()) known.attempts.insert(*id);
  }
  for (const ProcessEntry& process : entries.processes) {
    const auto id = AttemptId::FromBytes(process.begun.attempt_id());
    if (!id.ok() || process.begun.processes().empty()) continue;
    known.attempts.insert(*id);
    known.keepers.insert(KeeperPool::KeeperOf(process.begun));
  }
  return known;
}

// ClusterBinding in the journal.  Strand-bound; writes go to `disk`.
class DiskBinding final : public ClusterBinding {
 public:
  // All outlive the binding and what it posted.
  DiskBinding(Journal& journal, std::optional<v1::Stamp> loaded,
              Executor& strand, Executor& disk)
      : journal_(journal),
        strand_(strand),
        disk_(disk),
        current_(std::move(loaded)) {}

  std::optional<v1::Stamp> Current() const override { return current_; }

  void Save(const v1::Stamp& stamp,
            absl::AnyInvocable<void(absl::Status) &&> done) override {
    disk_.Post([this, stamp, done = std::move(done)]() mutable {
      absl::Status status = journal_.SaveBinding(stamp);
      strand_.Post([this, stamp, done = std::move(done),
                    status = std::move(status)]() mutable {
        if (status.ok()) current_ = stamp;
        std::move(done)(std::move(status));
      });
    });
  }

 private:
  Journal& journal_;
  Executor& strand_;
  Executor& disk_;
  std::optional<v1::Stamp> current_;
};

}  // namespace

// Everything, in the order in which it is built.
class Worker::Parts {
 public:
  Parts(WorkerOptions options, const NodeId& node,
        const rpc::Credential& credential,
        std::unique_ptr<StateDirectory> directory,
        std::unique_ptr<RuntimeDirectory> runtime, Fatal on_fatal)
      : options_(std::move(options)),
        on_fatal_(std::move(on_fatal)),
        node_id_(node),
        directory_(std::move(directory)),
        runtime_(std::move(runtime)),
        credential_(credential),
        directories_(options_.state_dir, runtime_->path()),
        journal_(directories_),
        pool_(kThreads),
        strand_(pool_),
        disk_(pool_),
        bulk_(pool_),
        slow_(pool_),
        reads_(pool_),
        ask_thread_(strand_),
        wait_thread_(strand_),
        router_({}, rpc::Authenticator(credential), clock_),
        // Each rank has a credential, and whose it is says that.
        socket_(router_, directories_.WorkerSocket(),
                options_.run_as.is_on() ? 0666 : 0600) {}

  ~Parts() {
    if (link_.has_value()) {
      Run([this] {
        link_->Stop();
        logs_->Stop();
      });
    }
    socket_.Close();
    wait_thread_.Stop();
    ask_thread_.Stop();
    strand_.Stop();
    disk_.Stop();
    bulk_.Stop();
    slow_.Stop();
    reads_.Stop();
    pool_.Stop();
  }

  absl::Status Start() {
    // Before anything of this node is ended, begun or removed.
    COHORT_RETURN_IF_ERROR(CheckIsNoCopy(KeeperDirectories()));
    COHORT_RETURN_IF_ERROR(journal_.Open());
    COHORT_RETURN_IF_ERROR(LetRanksIn(options_, directories_));
    cgroups_ = TakeCgroupParent();
    source_ = MakeSource(options_, node_id_);
    COHORT_ASSIGN_OR_RETURN(const NodeInventory inventory, AskInventory());
    COHORT_ASSIGN_OR_RETURN(JournalEntries entries, journal_.LoadAll());
    COHORT_ASSIGN_OR_RETURN(std::optional<v1::Stamp> stamp,
                            journal_.LoadBinding());
    binding_.emplace(journal_, std::move(stamp), strand_, disk_);
    COHORT_ASSIGN_OR_RETURN(
        channel_, rpc::NewGrpcChannel(options_.head.ToString(), credential_,
                                      {.connect_timeout = kConnect}));
    // A connection of their own, so that no sign of life waits behind logs.
    COHORT_ASSIGN_OR_RETURN(
        log_channel_, rpc::NewGrpcChannel(options_.head.ToString(), credential_,
                                          {.connect_timeout = kConnect}));
    COHORT_ASSIGN_OR_RETURN(
        keepers_,
        KeeperClient::Create(
            {.keepers_dir = directories_.Keepers(),
             .logs_dir = directories_.AllLogs(),
             .runtime_dir = directories_.runtime(),
             .cgroup_parent = cgroups_.dir,
             .keeper_program = KeeperBesideThisProgram(),
             .takes_orphans = true},
            strand_, [this](const std::string&, const KeeperEvent& event) {
              host_->OnKeeperEvent(event);
            }));
    const std::string host =
        options_.host.empty() ? HostTowards(options_.head) : options_.host;
    Build(inventory, host);
    COHORT_RETURN_IF_ERROR(socket_.Listen());
    // Ours alone now; before the head hears what there is.
    EndLeftoverAttempts(KeeperDirectories(), KnownBy(entries), cgroups_.dir,
                        kLeftoversTimeout);
    directory_->Keep();
    Run([this, &entries, &inventory] {
      sweep_->Start();
      log_sweep_->Start();
      node_->Restore(std::move(entries), [this, there = inventory.on_machine] {
        if (there.has_value()) node_->NoteDevicesThere(*there);
        readiness_->Start(
            [this] { devices_->Start([this] { link_->Start(); }); });
      });
    });
    if (!cgroups_.unenforced.empty()) {
      COHORT_LOG(kWarning, "requests_not_enforced",
                 {"why", cgroups_.unenforced});
    }
    COHORT_LOG(kInfo, "worker_started", {"node", node_id_},
               {"head", options_.head.ToString()},
               {"resources", inventory.resources},
               {"simulated_gpus", options_.simulated_gpus.value_or(0)});
    return absl::OkStatus();
  }

  void Drain(absl::Duration deadline) {
    COHORT_LOG(kInfo, "draining", {"deadline", deadline});
    strand_.Post([this, deadline] {
      own_drain_->Begin(deadline, [over = drain_over_] { over->Open(); });
    });
    drain_over_->Wait();
  }

  void Shutdown() {
    if (!options_.end_ranks) return;
    // The head hears of each end and has recorded all of them before we go: to
    // it a node that just vanished would be one more loss.
    auto ended = std::make_shared<Latch>();
    auto forgotten = std::make_shared<Latch>();
    auto no_keepers = std::make_shared<Latch>();
    strand_.Post([this, ended, forgotten, no_keepers] {
      link_->AnnounceLeaving();
      host_->KeepNoIdle([no_keepers] { no_keepers->Open(); });
      node_->DrainRanks(
          hurries_ ? absl::ZeroDuration() : kDrainRanksGrace,
          [ended] { ended->Open(); }, [forgotten] { forgotten->Open(); });
    });
    const absl::Duration until =
        clock_.Monotonic() + kDrainRanksGrace + kDrainRanksSlack;
    const auto left = [&] {
      return std::max(until - clock_.Monotonic(), absl::ZeroDuration());
    };
    // The keepers kill after the grace; beyond that we are not waited for.
    if (!ended->WaitFor(left())) {
      COHORT_LOG(kWarning, "ranks_still_ending");
    } else if (!forgotten->WaitFor(std::min(left(), kHeadAnswer))) {
      COHORT_LOG(kWarning, "ends_not_recorded",
                 {"next", "the next daemon on this directory reports them"});
    } else if (!no_keepers->WaitFor(left())) {
      COHORT_LOG(kWarning, "keepers_still_ending");
    }
    Run([this] { link_->Stop(); });
    disk_.Drain();
  }

  void Hurry() {
    strand_.Post([this] {
      hurries_ = true;
      node_->Hurry();
    });
    drain_over_->Open();
  }

 private:
  // A driver may hang from the beginning (DV-1).
  absl::StatusOr<NodeInventory> AskInventory() {
    struct Answer {
      absl::StatusOr<NodeInventory> inventory;
      Latch there;
    };
    auto answer = std::make_shared<Answer>();
    ask_thread_.Ask([answer, options = options_, source = source_]() -> Task {
      answer->inventory = Inventory(options, *source);
      answer->there.Open();
      return [answer] {};
    });
    if (answer->there.WaitFor(kDriverAnswer)) return answer->inventory;
    return absl::UnavailableError(
        absl::StrCat("the GPUs' driver has not answered for ",
                     absl::FormatDuration(kDriverAnswer),
                     ": mend it, or do without GPUs: --num-gpus 0"));
  }

  void Build(const NodeInventory& inventory, const std::string& host) {
    devices_.emplace(
        inventory.devices, source_, strand_,
        [this](DeviceThread::Question question) {
          ask_thread_.Ask(std::move(question));
        },
        [this](DeviceThread::Question question) {
          wait_thread_.Ask(std::move(question));
        },
        clock_,
        DeviceMonitor::Events{.on_change = [this] { link_->NoteDevices(); },
                              .on_fault =
                                  [this](const std::string& device,
                                         const std::string& reason, bool lost) {
                                    node_->NoteDeviceFault(device, reason,
                                                           lost);
                                  }});
    packages_.emplace(directories_.Packages(), *channel_, strand_, slow_);
    work_.emplace(
        directories_, NodeName(options_), node_id_.ToHex().substr(0, 8),
        WorkDirectories::Limits{.results_bytes = options_.keep_results_bytes},
        options_.run_as);
    host_.emplace(
        LocalProcessHostOptions{
            .head_address = options_.head.ToString(),
            .environment = OwnEnvironment(),
            .preflight_program =
                absl::StrCat(ParentDirectory(KeeperBesideThisProgram()),
                             "/cohort-preflight"),
            .cpus_of_devices = options_.pin_ranks
                                   ? CpusNear(inventory.devices)
                                   : std::map<std::string, std::vector<int>>(),
            .run_as = options_.run_as,
            .generation =
                [this] {
                  const std::optional<v1::Stamp> head = binding_->Current();
                  return head.has_value() ? head->generation() : "";
                }},
        directories_, credential_, journal_, *keepers_, *packages_, *work_,
        *devices_, strand_, disk_, bulk_, slow_);
    node_.emplace(
        *host_, clock_,
        NodeState::Events{
            .on_change = [this] { link_->NoteChange(); },
            .on_fault =
                [this](const absl::Status& why) { readiness_->NoteFault(why); },
            .on_begun = [this] { readiness_->NoteBegun(); }});
    readiness_.emplace(
        NodeReadinessOptions{
            .rooms = {{directories_.state(), kStateRoomBytes},
                      {directories_.runtime(), kRuntimeRoomBytes},
                      {directories_.Journal(), kRecordBytes, /*make=*/true},
                      {directories_.Keepers(), kRecordBytes, /*make=*/true},
                      {directories_.Packages(), kRecordBytes, /*make=*/true},
                      {directories_.AllWork(), kRecordBytes, /*make=*/true},
                      {directories_.AllLogs(), kRecordBytes, /*make=*/true}},
            .programs = {KeeperBesideThisProgram()},
            .renew = [this] { return RenewRuntime(); }},
        strand_, disk_,
        [this](NodeReadiness::Answer done) {
          keepers_->CheckProgram(
              [done = std::move(done)](absl::Status status) mutable {
                std::move(done)(std::move(status));
              });
        },
        [this](const std::string& not_ready) { OnReadiness(not_ready); });
    log_sweep_.emplace(
        LogSweep::Limits{.bytes = options_.keep_logs_bytes.value_or(
                             DiskBytes(directories_.AllLogs()) / 10)},
        directories_, *work_, clock_, strand_, bulk_);
    sweep_.emplace(
        directories_, *work_, *channel_, [this] { return binding_->Current(); },
        strand_, bulk_);
    logs_.emplace(directories_, *work_, node_id_, *log_channel_, strand_,
                  reads_, bulk_);
    link_.emplace(
        MakeRegistration(options_, node_id_, inventory, host,
                         cgroups_.unenforced, random_),
        *channel_, *node_, *binding_, strand_, random_,
        HeadLink::Events{
            .on_joined = [this] { OnJoined(); },
            .on_send_log =
                [this](const v1::Stamp& head, const v1::SendLog& order) {
                  logs_->Send(head, order);
                },
            .on_authority =
                [this](const std::string& authority) {
                  OnAuthority(authority);
                },
            .on_refused =
                [this](const absl::Status& status) { OnRefused(status); },
            .devices = [this] { return devices_->statuses(); }});
    link_->SetAuthority(FingerprintOf(credential_.authority()));
    own_drain_.emplace(node_id_, *channel_, *node_, strand_, clock_, random_);
    run_service_.emplace(
        router_, strand_, *node_,
        RunPaths{.host = host,
                 .runtime_directory =
                     [this](const AttemptId& attempt) {
                       return directories_.Runtime(attempt);
                     },
                 .checkpoint_root =
                     [this](const v1::DesiredPlace& begun) {
                       return directories_.CheckpointRoot(begun);
                     }});
  }

  KeeperPaths KeeperDirectories() const {
    return {.keepers_dir = directories_.Keepers(),
            .runtime_dir = directories_.runtime()};
  }

  // On the disk strand.
  absl::StatusOr<bool> RenewRuntime() {
    COHORT_ASSIGN_OR_RETURN(const bool directory, runtime_->Renew());
    COHORT_ASSIGN_OR_RETURN(const bool socket, socket_.Renew());
    return directory || socket;
  }

  void OnJoined() {
    refused_.clear();
    COHORT_LOG(kInfo, "joined", {"head", options_.head.ToString()});
    if (options_.ready_file.empty()) return;
    const absl::Status status =
        WriteFileAtomically(options_.ready_file,
                            absl::StrCat(options_.head.ToString(), "\n"), 0644);
    if (!status.ok()) {
      COHORT_LOG(kError, "ready_file_not_written", {"error", status.message()});
      // Our parent waits for it.
      if (!std::exchange(ready_, true)) {
        on_fatal_(Annotate(status, "--ready-file"));
      }
    }
    ready_ = true;
  }

  // The head is told once all that connects later has it.
  void OnAuthority(const std::string& authority) {
    disk_.Post([this, authority] {
      const absl::Status status = channel_->LearnAuthority(authority);
      if (!status.ok()) {
        COHORT_LOG(kError, "authority_not_taken", {"why", status});
        return;
      }
      host_->TakeAuthority(authority);
      strand_.Post([this, print = FingerprintOf(authority)] {
        link_->SetAuthority(print);
      });
    });
  }

  void OnReadiness(const std::string& not_ready) {
    if (not_ready.empty()) {
      COHORT_LOG(kInfo, "fit");
    } else {
      COHORT_LOG(kError, "not_ready", {"why", not_ready},
                 {"meaning", "no new work is taken; what runs goes on"});
    }
    link_->SetNotReady(not_ready);
  }

  void OnRefused(const absl::Status& status) {
    // It is tried again each second; said again only when the reason changes.
    if (refused_ == status.message()) return;
    refused_ = std::string(status.message());
    COHORT_LOG(kError, "refused", {"head", options_.head.ToString()},
               {"why", refused_});
  }

  // Runs `task` on the strand and waits for it.
  template <typename F>
  void Run(F task) {
    auto done = std::make_shared<Latch>();
    strand_.Post([&task, done] {
      task();
      done->Open();
    });
    done->Wait();
  }

  const WorkerOptions options_;
  Fatal on_fatal_;  // the strand's
  const NodeId node_id_;
  const std::unique_ptr<StateDirectory> directory_;
  const std::unique_ptr<RuntimeDirectory> runtime_;
  const rpc::Credential credential_;
  const NodeDirectories directories_;
  Journal journal_;
  MachineClock clock_;
  SystemRandom random_;
  ThreadPool pool_;
  Strand strand_;
  Strand disk_;
  Strand bulk_;
  Strand slow_;
  Strand reads_;
  DeviceThread ask_thread_;
  DeviceThread wait_thread_;
  rpc::Router router_;
  WorkerSocket socket_;
  std::shared_ptr<DeviceSource> source_;
  CgroupParent cgroups_;
  std::optional<DiskBinding> binding_;
  std::unique_ptr<rpc::Channel> channel_;
  std::unique_ptr<rpc::Channel> log_channel_;
  std::unique_ptr<KeeperClient> keepers_;
  std::optional<PackageCache> packages_;
  std::optional<WorkDirectories> work_;
  std::optional<DeviceMonitor> devices_;
  std::optional<LocalProcessHost> host_;
  std::optional<NodeState> node_;
  std::optional<NodeReadiness> readiness_;
  std::optional<ResultsSweep> sweep_;
  std::optional<LogSweep> log_sweep_;
  std::optional<LogService> logs_;
  std::optional<HeadLink> link_;
  std::optional<RunService> run_service_;
  std::optional<OwnDrain> own_drain_;
  const std::shared_ptr<Latch> drain_over_ = std::make_shared<Latch>();
  bool hurries_ = false;  // the strand's
  std::string refused_;   // the strand's
  bool ready_ = false;    // the strand's: was joined once
};

absl::StatusOr<std::unique_ptr<Worker>> Worker::Start(WorkerOptions options,
                                                      Fatal on_fatal) {
  COHORT_RETURN_IF_ERROR(options.Validate());
  COHORT_RETURN_IF_ERROR(CheckResolves(options.host));
  COHORT_RETURN_IF_ERROR(CheckReadyFile(options.ready_file));
  SystemRandom random;
  if (!options.credential_file.empty()) {
    // Before anything is made.
    COHORT_RETURN_IF_ERROR(LoadOrJoin(options, NodeId(), random).status());
  }
  COHORT_ASSIGN_OR_RETURN(
      std::unique_ptr<StateDirectory> directory,
      StateDirectory::Take(options.state_dir, "cohort-worker",
                           [] { return absl::OkStatus(); }));
  COHORT_ASSIGN_OR_RETURN(const NodeId node, LoadNodeId(options.state_dir));
  COHORT_ASSIGN_OR_RETURN(const rpc::Credential credential,
                          LoadOrJoin(options, node, random));
  COHORT_ASSIGN_OR_RETURN(
      std::unique_ptr<RuntimeDirectory> runtime,
      RuntimeDirectory::Take(RuntimeDirectory::PathOf(node),
                             options.run_as.is_on() ? kPassMode : 0700));
  // Ours now, not that of the daemon that has this node's id.
  RemoveOldReadyFile(options.ready_file);
  auto parts = std::make_unique<Parts>(std::move(options), node, credential,
                                       std::move(directory), std::move(runtime),
                                       std::move(on_fatal));
  COHORT_RETURN_IF_ERROR(parts->Start());
  return std::unique_ptr<Worker>(new Worker(std::move(parts)));
}

Worker::Worker(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Worker::~Worker() = default;

void Worker::Drain(absl::Duration deadline) { parts_->Drain(deadline); }

void Worker::Shutdown() { parts_->Shutdown(); }

void Worker::Hurry() { parts_->Hurry(); }

}  // namespace cohort::worker

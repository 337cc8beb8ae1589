#include "head/head.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

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
#include "head/archive/backup_manifest.h"
#include "head/archive/disk_backups.h"
#include "head/autoscaler/exec_provider.h"
#include "head/head_core.h"
#include "head/head_credential.h"
#include "head/http/http_server.h"
#include "head/http/http_service.h"
#include "head/metrics/call_metrics.h"
#include "head/metrics/head_metrics.h"
#include "head/metrics/metered_store.h"
#include "head/metrics/process_metrics.h"
#include "head/revocation_file.h"
#include "head/services/disk_package_store.h"
#include "head/services/last_logs.h"
#include "head/state/cluster_file.h"
#include "head/store/rocksdb_store.h"
#include "rpc/certificate.h"
#include "rpc/grpc_server.h"
#include "rpc/local_call.h"
#include "rpc/router.h"

namespace cohort::head {
namespace {

// The state, the store's syncs, packages, a backup that is copied, and what
// HTTP shows.
constexpr int kThreads = 5;
// Of the thread that makes plans of the autoscaler: whoever waits for an answer
// goes first.
constexpr int kPlanningNiceness = 10;
// Calls in flight when the head ends get this long.  What waits for a job or an
// event was answered before; what is left waits for a sync, or for a client
// that does not read.
constexpr absl::Duration kShutdownGrace = absl::Seconds(2);
// For the files by which a start on a full disk says where it serves.
constexpr off_t kReserveBytes = 64 << 10;

absl::Status RefuseTmpfs(const HeadOptions& options) {
  if (options.is_volatile) return absl::OkStatus();
  COHORT_ASSIGN_OR_RETURN(const bool tmpfs, IsTmpfs(options.state_dir));
  if (!tmpfs) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--state-dir ", options.state_dir,
      " is on a tmpfs: a restart of the machine would lose every job; name a "
      "directory on a disk, or give --volatile if that is what you want"));
}

// A head on a backup would be a second one of its generation: workers would
// end, at its word, what it has never heard of.
absl::Status RefuseBackup(const HeadOptions& options) {
  const std::string manifest =
      absl::StrCat(options.state_dir, "/", kBackupManifestName);
  if (access(manifest.c_str(), F_OK) != 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--state-dir ", options.state_dir, " is a backup: `cohort head restore ",
      options.state_dir, " --state-dir NEW` makes a state directory of it"));
}

// None without a path.
absl::StatusOr<std::optional<ClusterFile>> ReadClusterFile(
    const std::string& path) {
  if (path.empty()) return std::optional<ClusterFile>();
  const auto read = [&]() -> absl::StatusOr<ClusterFile> {
    COHORT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    return ParseClusterFile(text);
  };
  absl::StatusOr<ClusterFile> file = read();
  if (file.ok()) return std::optional<ClusterFile>(*std::move(file));
  return absl::InvalidArgumentError(
      absl::StrCat("--cluster-file ", path, ": ", file.status().message()));
}

// Where the programs lie that belong to this one.
std::string ProgramDirectory() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error)
      .parent_path()
      .string();
}

std::string AbsoluteOf(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

}  // namespace

class Head::Parts final : public HttpBackend,
                          private rpc::CallObserver,
                          private Authorities {
 public:
  Parts(HeadOptions options, std::unique_ptr<StateDirectory> directory,
        HeadSecrets secrets, SecretBox box,
        std::unique_ptr<RevocationFile> revocations, Fatal on_fatal)
      : options_(std::move(options)),
        directory_(std::move(directory)),
        on_fatal_(std::move(on_fatal)),
        pool_(kThreads),
        strand_(pool_),
        store_strand_(pool_),
        packages_strand_(pool_),
        backups_strand_(pool_),
        logs_strand_(pool_),
        http_strand_(pool_),
        packages_({.directory = options_.state_dir + "/packages"}, strand_,
                  packages_strand_, clock_),
        last_logs_(options_.state_dir + "/last-logs", {}, strand_,
                   logs_strand_),
        provider_({.program_directory = ProgramDirectory(),
                   .state_dir = AbsoluteOf(options_.state_dir),
                   .credential = secrets.credential},
                  strand_),
        backups_({.state_dir = AbsoluteOf(options_.state_dir)}, strand_,
                 store_strand_, backups_strand_),
        servers_(ServersOf(secrets.authorities)),
        secrets_(std::move(secrets)),
        box_(std::make_shared<const SecretBox>(std::move(box))),
        revocations_(std::move(revocations)),
        tokens_(std::make_shared<rpc::TokenBook>(clock_)),
        authenticator_(secrets_.credential, tokens_),
        router_({}, authenticator_, clock_),
        http_service_({}, authenticator_, *this, http_strand_, clock_) {
    router_.SetObserver(*this);
  }

  ~Parts() override {
    // Readiness goes first, with the state: HTTP stays to say so.
    OnStrand([this] {
      if (core_ != nullptr) core_->BeginEnd();
    });
    if (server_ != nullptr) server_->Shutdown(kShutdownGrace);
    http_server_.reset();
    OnStrand([this] { core_.reset(); });
    store_strand_.Drain();
    strand_.Stop();
    store_strand_.Stop();
    packages_strand_.Stop();
    backups_strand_.Stop();
    logs_strand_.Stop();
    http_strand_.Stop();
    planning_.Stop();
    pool_.Stop();
  }

  absl::Status Start(std::optional<ClusterFile> cluster_file) {
    COHORT_RETURN_IF_ERROR(
        MakeDirectories(options_.state_dir + "/packages", 0700));
    // Before a term is taken: a port that is not to be had changes nothing.
    // Until the state is loaded calls are told so.
    COHORT_RETURN_IF_ERROR(StartHttp());
    OnStrand([&] { MakeCore(std::move(cluster_file)); });
    COHORT_ASSIGN_OR_RETURN(
        server_,
        rpc::GrpcServer::Start(router_, {.address = options_.address.ToString(),
                                         .identity = FirstServer()}));
    if (servers_.size() > 1) {
      COHORT_RETURN_IF_ERROR(ShowServers(servers_));
    }
    absl::Status started;
    auto done = std::make_shared<Latch>();
    strand_.Post([this, &started, done] {
      serving_ = server_.get();
      core_->SetAddresses(server_->address(), http_server_->address());
      provider_.SetHeadAddress(server_->address());
      core_->Start([&started, done](const absl::Status& status) {
        started = status;
        done->Open();
      });
    });
    done->Wait();
    COHORT_RETURN_IF_ERROR(started);
    directory_->Keep();  // somebody may have been answered
    COHORT_RETURN_IF_ERROR(
        Tell(options_.state_dir + "/http_address", http_server_->address()));
    if (options_.insecure) {
      COHORT_LOG(kWarning, "insecure", {"address", server_->address()},
                 {"meaning",
                  "plaintext: another program that takes this port while the "
                  "head is down gets the secret"});
    }
    COHORT_LOG(kInfo, "head_started", {"address", server_->address()},
               {"http_address", http_server_->address()},
               {"state_dir", options_.state_dir});
    if (!options_.ready_file.empty()) {
      COHORT_RETURN_IF_ERROR(Tell(options_.ready_file, server_->address()));
    }
    SetAside();
    return absl::OkStatus();
  }

  const std::string& address() const { return server_->address(); }

  // HttpBackend, for http_strand_.
  rpc::CallHandle Call(absl::string_view path, absl::string_view authorization,
                       std::string request, absl::Duration deadline,
                       rpc::Channel::Done done) override {
    return rpc::CallLocally(
        router_, path, {.authorization = authorization, .peer = "http:"},
        request, {.deadline = deadline}, http_strand_, std::move(done));
  }

  void CheckHealth(Health done) override {
    strand_.Post([this, done = std::move(done)]() mutable {
      const rpc::GrpcServer* const server = serving_;
      absl::Status health =
          core_ == nullptr
              ? SetReason(absl::UnavailableError("the head starts"), "loading")
              : core_->Writable(Admission::kNode).status();
      http_strand_.Post([server, done = std::move(done),
                         health = std::move(health)]() mutable {
        if (server != nullptr) {
          const absl::Status taken = server->CheckTakesConnections();
          if (!taken.ok()) health = taken;
        }
        std::move(done)(std::move(health));
      });
    });
  }

  void Measure(Metrics done) override {
    strand_.Post([this, done = std::move(done)]() mutable {
      HeadSample sample;
      if (core_ != nullptr) sample = core_->Sample();
      http_strand_.Post(
          [this, done = std::move(done), sample = std::move(sample)]() mutable {
            std::move(done)(Families(sample));
          });
    });
  }

 private:
  std::string ReservePath() const { return options_.state_dir + "/reserve"; }

  // Writes a small file, on a full disk with the room that was set aside.
  absl::Status Tell(const std::string& path, const std::string& address) {
    const std::string line = absl::StrCat(address, "\n");
    const absl::Status written = WriteFileAtomically(path, line, 0644);
    if (!absl::IsResourceExhausted(written) ||
        unlink(ReservePath().c_str()) != 0) {
      return written;
    }
    return WriteFileAtomically(path, line, 0644);
  }

  void SetAside() {
    const UniqueFd file(
        open(ReservePath().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    // Not to be had on a full disk, and then perhaps at the next start.
    if (file) (void)posix_fallocate(file.get(), 0, kReserveBytes);
  }

  // CallObserver, on any thread.
  void OnAnswered(absl::string_view path, bool is_stream, absl::StatusCode code,
                  absl::Duration took) override {
    call_metrics_.OnAnswered(path, is_stream, code, took);
  }
  void OnRefused(absl::string_view path, const std::string& peer,
                 const rpc::Principal* who, const absl::Status& why) override {
    audit_->Note(audit_->CallOf(path, peer, who), why);
  }

  // Authorities.  Their files are small, and written once in a long while.
  Held held() const override {
    return {.current = secrets_.authorities.front().certificate,
            .next = secrets_.authorities.size() > 1
                        ? secrets_.authorities.back().certificate
                        : ""};
  }
  absl::Status BeginRotation() override {
    if (secrets_.authorities.size() > 1) return absl::OkStatus();
    COHORT_RETURN_IF_ERROR(head::BeginRotation(options_.state_dir, secrets_));
    return AuthoritiesChanged();
  }
  absl::Status FinishRotation() override {
    COHORT_RETURN_IF_ERROR(head::FinishRotation(options_.state_dir, secrets_));
    return AuthoritiesChanged();
  }

  absl::Status AuthoritiesChanged() {
    provider_.SetCredential(secrets_.credential);
    return ShowServers(ServersOf(secrets_.authorities));
  }

  absl::Status ShowServers(const std::vector<rpc::Identity>& servers) {
    if (!options_.HttpAddress().IsLoopback()) {
      http_server_->Show(servers.front());
    }
    return server_->Show(servers.front(),
                         servers.size() > 1
                             ? std::optional<rpc::Identity>(servers.back())
                             : std::nullopt,
                         held().next);
  }

  std::optional<rpc::Identity> FirstServer() const {
    if (servers_.empty()) return std::nullopt;
    return servers_.front();
  }

  absl::Status StartHttp() {
    auto started = HttpServer::Start(
        {.address = options_.HttpAddress(),
         .identity = options_.HttpAddress().IsLoopback() ? std::nullopt
                                                         : FirstServer()},
        clock_, [this](HttpRequest request, HttpServer::Reply reply) {
          http_strand_.Post([this, request = std::move(request),
                             reply = std::move(reply)]() mutable {
            http_service_.Handle(std::move(request), std::move(reply));
          });
        });
    if (absl::IsAlreadyExists(started.status())) {
      return SetReason(
          absl::AlreadyExistsError(absl::StrCat(
              "--http-address ", options_.HttpAddress().ToString(),
              ": another program listens there, perhaps the head of another "
              "cluster: give --http-address another port, or port 0 for a "
              "free one")),
          "busy_port");
    }
    if (!started.ok()) return Annotate(started.status(), "--http-address");
    http_server_ = *std::move(started);
    return absl::OkStatus();
  }

  std::vector<MetricFamily> Families(const HeadSample& sample) const {
    std::vector<MetricFamily> all = BuildMetrics(GetBuildInfo());
    for (std::vector<MetricFamily> some :
         {HeadMetrics(sample), call_metrics_.Families(),
          store_meter_.Families(),
          StoreSizeMetrics(options_.state_dir + "/store"), ProcessMetrics()}) {
      all.insert(all.end(), std::make_move_iterator(some.begin()),
                 std::make_move_iterator(some.end()));
    }
    return all;
  }

  void MakeCore(std::optional<ClusterFile> cluster_file) {
    HeadCoreOptions options;
    options.cluster_file = std::move(cluster_file);
    options.autoscaler.dry_run = options_.autoscaler_dry_run;
    options.autoscaler.settle_time = options_.node_timeout;
    options.limits.node_timeout = options_.node_timeout;
    HistoryLimits& history = options.limits.history;
    history.jobs.count_max = options_.keep_jobs;
    history.elements_max = std::max(history.elements_max, options_.keep_jobs);
    history.jobs.age_max = options_.keep_for;
    history.events.age_max = options_.keep_for;
    history.nodes.age_max = options_.keep_for;
    options.address = options_.address.ToString();
    options.pid = getpid();
    core_ = std::make_unique<HeadCore>(
        options,
        HeadSeams{.strand = strand_,
                  .store_executor = store_strand_,
                  .clock = clock_,
                  .random = random_,
                  .packages = packages_,
                  .backups = &backups_,
                  .provider = &provider_,
                  .last_logs = &last_logs_,
                  .planning = &planning_,
                  .tokens = tokens_,
                  .credential = secrets_.credential,
                  .box = box_,
                  .revocations = revocations_.get(),
                  .authorities = secrets_.authorities.empty() ? nullptr : this,
                  .audit = audit_},
        [this, path = options_.state_dir + "/store"](
            StoreAccess access) -> absl::StatusOr<std::unique_ptr<Store>> {
          COHORT_ASSIGN_OR_RETURN(
              std::unique_ptr<Store> store,
              RocksdbStore::Open({.path = path, .access = access}));
          return std::make_unique<MeteredStore>(std::move(store), store_meter_,
                                                clock_);
        },
        [this](const absl::Status& status) { on_fatal_(status); });
    core_->RegisterOn(router_);
    // Of the calling thread, on Linux.
    planning_.Post([] { (void)!nice(kPlanningNiceness); });
  }

  template <typename F>
  void OnStrand(F task) {
    auto done = std::make_shared<Latch>();
    strand_.Post([&task, done] {
      task();
      done->Open();
    });
    done->Wait();
  }

  const HeadOptions options_;
  const std::unique_ptr<StateDirectory> directory_;
  Fatal on_fatal_;
  MachineClock clock_;
  SystemRandom random_;
  ThreadPool pool_;
  ThreadPool planning_{1, absl::InfiniteDuration()};
  Strand strand_;
  Strand store_strand_;
  Strand packages_strand_;
  Strand backups_strand_;
  Strand logs_strand_;
  Strand http_strand_;
  DiskPackageStore packages_;
  LastLogs last_logs_;
  ExecProvider provider_;
  DiskBackups backups_;
  // As it starts.
  const std::vector<rpc::Identity> servers_;
  HeadSecrets secrets_;                         // the strand's, once it serves
  const std::shared_ptr<const SecretBox> box_;  // Shared: this and the core.
  const std::unique_ptr<RevocationFile> revocations_;
  // Shared: the authenticator and the core.
  const std::shared_ptr<rpc::TokenBook> tokens_;
  const rpc::Authenticator authenticator_;
  CallMetrics call_metrics_;
  // Shared: this and the core.
  const std::shared_ptr<AuditBuffer> audit_ =
      std::make_shared<AuditBuffer>(clock_);
  StoreMeter store_meter_;
  rpc::Router router_;
  HttpService http_service_;  // http_strand_'s
  std::unique_ptr<HttpServer> http_server_;
  std::unique_ptr<HeadCore> core_;  // the strand's
  std::unique_ptr<rpc::GrpcServer> server_;
  const rpc::GrpcServer* serving_ = nullptr;  // the strand's
};

absl::StatusOr<std::unique_ptr<Head>> Head::Start(HeadOptions options,
                                                  Fatal on_fatal) {
  COHORT_RETURN_IF_ERROR(options.Validate());
  COHORT_RETURN_IF_ERROR(CheckReadyFile(options.ready_file));
  COHORT_RETURN_IF_ERROR(RefuseBackup(options));
  COHORT_ASSIGN_OR_RETURN(std::optional<ClusterFile> cluster_file,
                          ReadClusterFile(options.cluster_file));
  COHORT_ASSIGN_OR_RETURN(
      std::unique_ptr<StateDirectory> directory,
      StateDirectory::Take(options.state_dir, "cohort-head",
                           [&options] { return RefuseTmpfs(options); }));
  RemoveOldReadyFile(options.ready_file);
  SystemRandom random;
  COHORT_ASSIGN_OR_RETURN(HeadSecrets secrets,
                          LoadHeadSecrets(options, random));
  COHORT_ASSIGN_OR_RETURN(SecretBox box,
                          LoadSecretBox(options.state_dir, random));
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<RevocationFile> revocations,
                          RevocationFile::Open(options.state_dir + "/revoked"));
  rpc::RequireTls13();
  auto parts = std::make_unique<Parts>(
      std::move(options), std::move(directory), std::move(secrets),
      std::move(box), std::move(revocations), std::move(on_fatal));
  COHORT_RETURN_IF_ERROR(parts->Start(std::move(cluster_file)));
  return std::unique_ptr<Head>(new Head(std::move(parts)));
}

Head::Head(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Head::~Head() = default;

const std::string& Head::address() const { return parts_->address(); }

}  // namespace cohort::head

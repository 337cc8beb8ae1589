#include "head/head.h"

#include <unistd.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/file.h"
#include "common/latch.h"
#include "common/local_files.h"
#include "common/log.h"
#include "common/random.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/strand.h"
#include "common/thread_pool.h"
#include "head/backup_manifest.h"
#include "head/disk_backups.h"
#include "head/disk_package_store.h"
#include "head/head_core.h"
#include "head/rocksdb_store.h"
#include "rpc/credential.h"
#include "rpc/grpc_server.h"
#include "rpc/router.h"

namespace cohort::head {
namespace {

// The state, the store's syncs, packages, and a backup that is copied.
constexpr int kThreads = 4;
// Calls in flight when the head ends get this long: an answer that waits for a
// sync is out in a few milliseconds, one that waits for a job is not worth it.
constexpr absl::Duration kShutdownGrace = absl::Milliseconds(200);

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

}  // namespace

class Head::Parts {
 public:
  Parts(HeadOptions options, FileLock lock, rpc::Credential credential,
        Fatal on_fatal)
      : options_(std::move(options)),
        lock_(std::move(lock)),
        on_fatal_(std::move(on_fatal)),
        pool_(kThreads),
        strand_(pool_),
        store_strand_(pool_),
        packages_strand_(pool_),
        backups_strand_(pool_),
        packages_({.directory = options_.state_dir + "/packages"}, strand_,
                  packages_strand_),
        backups_({.state_dir = std::filesystem::absolute(options_.state_dir)
                                   .lexically_normal()
                                   .string()},
                 strand_, store_strand_, backups_strand_),
        router_({}, rpc::Authenticator(std::move(credential)), clock_) {}

  ~Parts() {
    if (server_ != nullptr) server_->Shutdown(kShutdownGrace);
    OnStrand([this] { core_.reset(); });
    store_strand_.Drain();
    strand_.Stop();
    store_strand_.Stop();
    packages_strand_.Stop();
    backups_strand_.Stop();
    pool_.Stop();
  }

  absl::Status Start() {
    COHORT_RETURN_IF_ERROR(
        MakeDirectories(options_.state_dir + "/packages", 0700));
    absl::Status started;
    auto done = std::make_shared<Latch>();
    strand_.Post([this, &started, done] {
      MakeCore();
      core_->Start([&started, done](const absl::Status& status) {
        started = status;
        done->Open();
      });
    });
    done->Wait();
    COHORT_RETURN_IF_ERROR(started);
    COHORT_ASSIGN_OR_RETURN(
        server_, rpc::GrpcServer::Start(
                     router_, {.address = options_.address.ToString(),
                               .insecure_bind = options_.insecure_bind}));
    OnStrand([this] { core_->SetAddress(server_->address()); });
    if (options_.insecure_bind && !options_.address.IsLoopback()) {
      COHORT_LOG(
          kWarning, "insecure_bind", {"address", server_->address()},
          {"meaning", "whoever reads this network reads the credential"});
    }
    COHORT_LOG(kInfo, "head_started", {"address", server_->address()},
               {"state_dir", options_.state_dir});
    if (options_.ready_file.empty()) return absl::OkStatus();
    return WriteFileAtomically(options_.ready_file,
                               absl::StrCat(server_->address(), "\n"), 0644);
  }

  const std::string& address() const { return server_->address(); }

 private:
  void MakeCore() {
    HeadCoreOptions options;
    options.limits.node_timeout = options_.node_timeout;
    options.address = options_.address.ToString();
    options.pid = getpid();
    core_ = std::make_unique<HeadCore>(
        options,
        HeadSeams{.strand = strand_,
                  .store_executor = store_strand_,
                  .clock = clock_,
                  .random = random_,
                  .packages = packages_,
                  .backups = &backups_},
        [path = options_.state_dir + "/store"](
            StoreAccess access) -> absl::StatusOr<std::unique_ptr<Store>> {
          return RocksdbStore::Open({.path = path, .access = access});
        },
        [this](const absl::Status& status) { on_fatal_(status); });
    core_->RegisterOn(router_);
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
  const FileLock lock_;
  Fatal on_fatal_;
  MachineClock clock_;
  SystemRandom random_;
  ThreadPool pool_;
  Strand strand_;
  Strand store_strand_;
  Strand packages_strand_;
  Strand backups_strand_;
  DiskPackageStore packages_;
  DiskBackups backups_;
  rpc::Router router_;
  std::unique_ptr<HeadCore> core_;  // the strand's
  std::unique_ptr<rpc::GrpcServer> server_;
};

absl::StatusOr<std::unique_ptr<Head>> Head::Start(HeadOptions options,
                                                  Fatal on_fatal) {
  COHORT_RETURN_IF_ERROR(options.Validate());
  COHORT_RETURN_IF_ERROR(CheckReadyFile(options.ready_file));
  COHORT_RETURN_IF_ERROR(RefuseBackup(options));
  COHORT_RETURN_IF_ERROR(MakeStateDirectory(options.state_dir));
  COHORT_RETURN_IF_ERROR(RefuseTmpfs(options));
  COHORT_ASSIGN_OR_RETURN(FileLock lock,
                          FileLock::Acquire(options.state_dir, "cohort-head"));
  RemoveOldReadyFile(options.ready_file);
  SystemRandom random;
  COHORT_ASSIGN_OR_RETURN(
      rpc::Credential credential,
      rpc::Credential::LoadOrCreate(options.state_dir + "/credential", random));
  auto parts =
      std::make_unique<Parts>(std::move(options), std::move(lock),
                              std::move(credential), std::move(on_fatal));
  COHORT_RETURN_IF_ERROR(parts->Start());
  return std::unique_ptr<Head>(new Head(std::move(parts)));
}

Head::Head(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Head::~Head() = default;

const std::string& Head::address() const { return parts_->address(); }

}  // namespace cohort::head

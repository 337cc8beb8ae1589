#include "worker/local_attempt_host.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/file.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "rpc/wire_values.h"
#include "worker/log_reader.h"
#include "worker/rank_environment.h"

namespace cohort::worker {
namespace {

// How often the ranks' metrics are read: below what a person notices; one read
// is a look at a word of shared memory.
constexpr absl::Duration kMetricsInterval = absl::Milliseconds(250);
// When what could not be removed is tried again: longer each time.
constexpr absl::Duration kRemoveAgainFirst = absl::Seconds(1);
constexpr absl::Duration kRemoveAgainMax = absl::Minutes(1);
// Of one rank's stderr, for the record of its end.
constexpr uint64_t kStderrTailBytes = 64 << 10;

// NodeState takes none without an id.
AttemptId IdOf(const v1::DesiredAttempt& attempt) {
  return *AttemptId::FromBytes(attempt.attempt_id());
}

absl::Status MakeEmpty(const std::string& directory) {
  COHORT_RETURN_IF_ERROR(RemoveTree(directory));
  return MakeDirectories(directory, 0700);
}

// Binds `port`, 0 for a free one, and keeps it: nobody else gets it until the
// socket is closed, and a socket that never listened leaves nothing behind in
// TIME_WAIT.
absl::StatusOr<std::pair<UniqueFd, int>> ReservePort(int port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return ErrnoStatus(errno, "socket for the master port");
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(port));
  socklen_t size = sizeof(address);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) !=
          0) {
    return ErrnoStatus(errno, "reserve a master port");
  }
  return std::make_pair(std::move(fd),
                        static_cast<int>(ntohs(address.sin_port)));
}

std::vector<std::string> DevicesOf(const v1::DesiredAttempt& attempt) {
  std::set<std::string> ids;
  for (const v1::DesiredRank& rank : attempt.ranks()) {
    ids.insert(rank.gpu_ids().begin(), rank.gpu_ids().end());
  }
  return {ids.begin(), ids.end()};
}

}  // namespace

LocalAttemptHost::LocalAttemptHost(LocalAttemptHostOptions options,
                                   const NodeDirectories& directories,
                                   const rpc::Credential& credential,
                                   Journal& journal, KeeperHost& keepers,
                                   PackageCache& packages,
                                   DeviceMonitor& devices, Executor& strand,
                                   Executor& disk, Executor& bulk)
    : options_(std::move(options)),
      directories_(directories),
      credential_(credential),
      journal_(journal),
      keepers_(keepers),
      packages_(packages),
      devices_(devices),
      strand_(strand),
      disk_(disk),
      bulk_(bulk) {}

void LocalAttemptHost::SetListener(Listener listener) {
  listener_ = std::move(listener);
}

template <typename Callback, typename Result>
void LocalAttemptHost::Answer(Callback done, Result result) {
  strand_.Post([done = std::move(done), result = std::move(result)]() mutable {
    std::move(done)(std::move(result));
  });
}

void LocalAttemptHost::Save(const AttemptId& attempt, JournalEntry entry,
                            Done done) {
  disk_.Post([this, attempt, entry = std::move(entry),
              done = std::move(done)]() mutable {
    Answer(std::move(done), NodeFault(journal_.Save(attempt, entry)));
  });
}

// ---- before the ranks ----

void LocalAttemptHost::Prepare(const v1::DesiredAttempt& attempt,
                               PreparedDone done) {
  if (attempt.package_hash().empty()) {
    return PrepareDirectories(attempt, "", std::move(done));
  }
  const absl::StatusOr<Digest> hash = Digest::FromBytes(attempt.package_hash());
  if (!hash.ok()) return Answer(std::move(done), hash.status());
  packages_.Fetch(*hash, [this, attempt, done = std::move(done)](
                             absl::StatusOr<std::string> archive) mutable {
    if (!archive.ok()) return std::move(done)(archive.status());
    PrepareDirectories(std::move(attempt), *archive, std::move(done));
  });
}

void LocalAttemptHost::PrepareDirectories(v1::DesiredAttempt attempt,
                                          std::string archive,
                                          PreparedDone done) {
  // A start that never ran may have left its keeper's directory.
  keepers_.Remove(
      IdOf(attempt).ToHex(),
      [this, attempt, archive, done = std::move(done)](absl::Status) mutable {
        bulk_.Post([this, attempt = std::move(attempt), archive,
                    done = std::move(done)]() mutable {
          // Shared: a task of the strand has to be able to drop it.
          auto prepared = std::make_shared<absl::StatusOr<Prepared>>(
              MakeDirectoriesOf(attempt, archive));
          strand_.Post([this, attempt = std::move(attempt), prepared,
                        done = std::move(done)]() mutable {
            if (!prepared->ok()) return std::move(done)(prepared->status());
            Open& open = Remember(attempt);
            open.arena = std::move((*prepared)->arena);
            open.preflight = std::move((*prepared)->preflight);
            open.port = std::move((*prepared)->port);
            std::move(done)((*prepared)->port_number);
          });
        });
      });
}

absl::StatusOr<LocalAttemptHost::Prepared> LocalAttemptHost::MakeDirectoriesOf(
    const v1::DesiredAttempt& attempt, const std::string& archive) {
  const AttemptId id = IdOf(attempt);
  const std::string work = directories_.Work(id);
  COHORT_RETURN_IF_ERROR(NodeFault(MakeEmpty(work)));
  if (!archive.empty()) {
    COHORT_RETURN_IF_ERROR(UnpackPackage(archive, work));
  }
  absl::StatusOr<Prepared> prepared = ReserveFor(id, attempt);
  if (!prepared.ok()) return NodeFault(prepared.status());
  return prepared;
}

absl::StatusOr<LocalAttemptHost::Prepared> LocalAttemptHost::ReserveFor(
    const AttemptId& id, const v1::DesiredAttempt& attempt) {
  const std::string runtime = directories_.Runtime(id);
  COHORT_RETURN_IF_ERROR(MakeEmpty(runtime));
  COHORT_RETURN_IF_ERROR(MakeDirectories(LogsOf(attempt), 0700));
  const shm::ArenaOptions arena = {
      .attempt = id.ToHex(),
      .epoch = static_cast<uint64_t>(attempt.epoch()),
      .local_world = attempt.ranks_size()};
  Prepared prepared;
  COHORT_ASSIGN_OR_RETURN(prepared.arena, shm::Arena::Create(runtime, arena));
  if (attempt.preflight()) {
    const std::string preflight = directories_.Preflight(id);
    COHORT_RETURN_IF_ERROR(MakeEmpty(preflight));
    COHORT_ASSIGN_OR_RETURN(prepared.preflight,
                            shm::Arena::Create(preflight, arena));
  }
  COHORT_RETURN_IF_ERROR(WriteFileAtomically(
      directories_.RankCredential(id),
      rpc::MintRankCredential(credential_, id).bytes(), 0600));
  if (attempt.holds_rank_zero()) {
    COHORT_ASSIGN_OR_RETURN(auto reserved, ReservePort(attempt.master_port()));
    prepared.port = std::move(reserved.first);
    prepared.port_number = reserved.second;
  }
  return prepared;
}

std::string LocalAttemptHost::LogsOf(const v1::DesiredAttempt& attempt) const {
  return directories_.Logs(attempt.job_id(), attempt.number(),
                           attempt.attempt_id());
}

LocalAttemptHost::Open& LocalAttemptHost::Remember(
    const v1::DesiredAttempt& attempt) {
  Open& open = open_[IdOf(attempt)];
  open = Open();
  for (const v1::DesiredRank& rank : attempt.ranks()) {
    open.ranks.push_back(rank.rank());
  }
  open.log_directory = LogsOf(attempt);
  open.metrics_seen.resize(open.ranks.size());
  if (!polling_) {
    polling_ = true;
    strand_.PostAfter(kMetricsInterval, [this] { PollMetrics(); });
  }
  return open;
}

// ---- the ranks ----

void LocalAttemptHost::Start(const v1::DesiredAttempt& attempt, Done done) {
  const AttemptId id = IdOf(attempt);
  const auto found = open_.find(id);
  devices_.Hold(id.ToHex(), DevicesOf(attempt));
  // Held free until now; the ranks are milliseconds away.
  if (found != open_.end()) found->second.port = UniqueFd();
  keepers_.Start(MakeSpec(attempt), [this, id, done = std::move(done)](
                                        absl::Status status) mutable {
    if (!status.ok()) devices_.Forget(id.ToHex());
    // Else it is what it was asked for that is at fault.
    if (!absl::IsInvalidArgument(status)) {
      status = NodeFault(std::move(status));
    }
    std::move(done)(std::move(status));
  });
}

KeeperSpec LocalAttemptHost::MakeSpec(const v1::DesiredAttempt& attempt) const {
  const AttemptId id = IdOf(attempt);
  KeeperSpec spec;
  spec.attempt = id.ToHex();
  spec.runtime_dir = directories_.Runtime(id);
  spec.log_dir = LogsOf(attempt);
  spec.cgroup_parent = options_.cgroup_parent;
  if (attempt.has_time_limit()) {
    spec.time_limit_ms = std::max<int64_t>(
        absl::ToInt64Milliseconds(rpc::FromWire(attempt.time_limit())), 1);
  }
  // Also for a Stop that can come as a signal only.
  if (attempt.has_grace()) {
    spec.grace_ms = absl::ToInt64Milliseconds(rpc::FromWire(attempt.grace()));
  }
  for (const v1::DesiredRank& rank : attempt.ranks()) {
    keeper::RankSpec& out = spec.ranks.emplace_back();
    out.rank = rank.rank();
    if (attempt.preflight()) out.argv = {options_.preflight_program, "--"};
    out.argv.insert(out.argv.end(), attempt.command().begin(),
                    attempt.command().end());
    out.env = RankEnvironment(
        options_.environment, attempt, rank,
        {.head_address = options_.head_address,
         .credential_file = directories_.RankCredential(id),
         .worker_socket = directories_.WorkerSocket(),
         .error_file = absl::StrCat(directories_.Work(id), "/error-",
                                    rank.rank(), ".json"),
         .work_dir = directories_.Work(id)});
    out.cwd = directories_.Work(id);
    out.cpus = CpusFor(rank);
  }
  return spec;
}

std::vector<int> LocalAttemptHost::CpusFor(const v1::DesiredRank& rank) const {
  std::set<int> cpus;
  for (const std::string& gpu : rank.gpu_ids()) {
    const auto near = options_.cpus_of_devices.find(gpu);
    // Where one is near to none in particular, none is better than another.
    if (near == options_.cpus_of_devices.end()) return {};
    cpus.insert(near->second.begin(), near->second.end());
  }
  return {cpus.begin(), cpus.end()};
}

void LocalAttemptHost::Adopt(const v1::DesiredAttempt& attempt,
                             KeeperHost::AdoptCallback done) {
  const AttemptId id = IdOf(attempt);
  Open& open = Remember(attempt);
  devices_.Adopt(id.ToHex(), DevicesOf(attempt));
  absl::StatusOr<std::unique_ptr<shm::Arena>> arena =
      shm::Arena::Open(directories_.Runtime(id));
  if (arena.ok()) {
    open.arena = *std::move(arena);
  } else {
    // After the machine's restart; the keeper's directory tells the rest.
    COHORT_LOG(kWarning, "arena_not_opened", {"attempt", id.ToHex()},
               {"error", arena.status().message()});
  }
  if (attempt.preflight()) {
    absl::StatusOr<std::unique_ptr<shm::Arena>> preflight =
        shm::Arena::Open(directories_.Preflight(id));
    if (preflight.ok()) open.preflight = *std::move(preflight);
  }
  keepers_.Adopt(
      id.ToHex(), [this, id, done = std::move(done)](
                      absl::StatusOr<AdoptedAttempt> adopted) mutable {
        // Nothing of it runs that is known of: whoever is on its
        // devices is no holder (DV-8).
        const bool has_ranks =
            adopted.ok() && (adopted->phase == AttemptPhase::kRunning ||
                             adopted->phase == AttemptPhase::kKeeperLost ||
                             adopted->phase == AttemptPhase::kDone);
        if (!has_ranks) devices_.Forget(id.ToHex());
        std::move(done)(std::move(adopted));
      });
}

void LocalAttemptHost::OnKeeperEvent(const std::string& attempt,
                                     const KeeperEvent& event) {
  const absl::StatusOr<AttemptId> id = AttemptId::FromHex(attempt);
  if (!id.ok() || !listener_.on_event) return;
  // A rank's last report comes before its end.
  if (const auto found = open_.find(*id);
      found != open_.end() && std::holds_alternative<RankExited>(event)) {
    ReadMetrics(*id, found->second);
  }
  const bool is_over = std::holds_alternative<AllDone>(event) ||
                       std::holds_alternative<KeeperLost>(event);
  if (!is_over) return listener_.on_event(*id, event);
  // It is over once its devices are free, too (DV-8).
  devices_.Release(attempt,
                   [this, id = *id, event] { listener_.on_event(id, event); });
}

void LocalAttemptHost::PollMetrics() {
  for (auto& [id, open] : open_) ReadMetrics(id, open);
  polling_ = !open_.empty();
  if (polling_) {
    strand_.PostAfter(kMetricsInterval, [this] { PollMetrics(); });
  }
}

void LocalAttemptHost::ReadMetrics(const AttemptId& attempt, Open& open) {
  if (open.arena == nullptr || !listener_.on_metrics) return;
  for (int local = 0; local < open.arena->local_world() &&
                      local < static_cast<int>(open.ranks.size());
       ++local) {
    const auto report =
        open.arena->metrics(local).ReadAfter(open.metrics_seen[local]);
    if (!report.has_value()) continue;
    open.metrics_seen[local] = report->sequence;
    listener_.on_metrics(attempt, open.ranks[local], report->sequence,
                         report->payload);
  }
}

void LocalAttemptHost::Revoke(const AttemptId& attempt) {
  const auto found = open_.find(attempt);
  if (found == open_.end()) return;
  for (const auto* arena : {&found->second.arena, &found->second.preflight}) {
    if (*arena != nullptr) (*arena)->Revoke((*arena)->epoch());
  }
}

void LocalAttemptHost::Stop(const AttemptId& attempt, absl::Duration grace) {
  keepers_.Stop(attempt.ToHex(), grace);
}

void LocalAttemptHost::Kill(const AttemptId& attempt) {
  keepers_.Kill(attempt.ToHex());
}

// ---- after the ranks ----

void LocalAttemptHost::Forget(const AttemptId& attempt, Done done) {
  open_.erase(attempt);
  devices_.Forget(attempt.ToHex());
  Remove(attempt,
         [this, attempt, done = std::move(done)](absl::Status status) mutable {
           if (!status.ok()) RemoveLater(attempt, kRemoveAgainFirst);
           std::move(done)(std::move(status));
         });
}

void LocalAttemptHost::RemoveLater(const AttemptId& attempt,
                                   absl::Duration after) {
  strand_.PostAfter(after, [this, attempt, after] {
    Remove(attempt, [this, attempt, after](const absl::Status& status) {
      if (!status.ok()) {
        // Said already when it failed first.
        const absl::Duration next = std::min(2 * after, kRemoveAgainMax);
        return RemoveLater(attempt, next);
      }
      COHORT_LOG(kInfo, "forgotten_at_last", {"attempt", attempt.ToHex()});
    });
  });
}

void LocalAttemptHost::Remove(const AttemptId& attempt, Done done) {
  keepers_.Remove(attempt.ToHex(), [this, attempt, done = std::move(done)](
                                       absl::Status removed) mutable {
    bulk_.Post([this, attempt, removed = std::move(removed),
                done = std::move(done)]() mutable {
      absl::Status status = std::move(removed);
      if (absl::IsNotFound(status)) status = absl::OkStatus();
      status.Update(RemoveTree(directories_.Runtime(attempt)));
      status.Update(RemoveTree(directories_.Work(attempt)));
      RemoveEntry(attempt, std::move(status), std::move(done));
    });
  });
}

void LocalAttemptHost::RemoveEntry(const AttemptId& attempt,
                                   absl::Status status, Done done) {
  disk_.Post([this, attempt, status = std::move(status),
              done = std::move(done)]() mutable {
    // Last: until it is gone, a restarted daemon tries all of it again.
    if (status.ok()) status = journal_.Remove(attempt);
    Answer(std::move(done), std::move(status));
  });
}

void LocalAttemptHost::RemoveCheckpoint(const v1::DesiredAttempt& attempt,
                                        const std::string& path, Done done) {
  // Any attempt of the job, nothing else.
  const std::string prefix =
      absl::StrCat(directories_.Storage(attempt), "/attempt-");
  const bool ours = absl::StartsWith(path, prefix) &&
                    absl::StrContains(path, "/step-") &&
                    !absl::StrContains(path, "/../");
  bulk_.Post([this, path, ours, done = std::move(done)]() mutable {
    Answer(std::move(done),
           ours ? RemoveTree(path)
                : absl::InvalidArgumentError(absl::StrCat(
                      path, " is no checkpoint of this job: not removed")));
  });
}

void LocalAttemptHost::ReadStderrTail(
    const AttemptId& attempt, int rank,
    absl::AnyInvocable<void(std::string) &&> done) {
  const auto found = open_.find(attempt);
  const std::string log_directory =
      found == open_.end() ? "" : found->second.log_directory;
  disk_.Post([this, log_directory, rank, done = std::move(done)]() mutable {
    std::string tail;
    const LogReader reader(log_directory, rank, LogStream::kStderr);
    if (const auto end = reader.EndOffset(); end.ok()) {
      const auto chunk = reader.Read(*end - std::min(*end, kStderrTailBytes),
                                     kStderrTailBytes);
      if (chunk.ok()) tail = chunk->bytes;
    }
    Answer(std::move(done), std::move(tail));
  });
}

}  // namespace cohort::worker

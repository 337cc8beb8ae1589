#include "worker/local_process_host.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/file.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "rpc/wire_values.h"
#include "worker/log_reader.h"
#include "worker/python_interpreter.h"
#include "worker/rank_credential.h"
#include "worker/rank_environment.h"

namespace cohort::worker {
namespace {

namespace fs = std::filesystem;

// As much memory as it asked for, and CPUs by their number where more are
// wanted than there are.  A process that asked for none is as one with one CPU.
void HoldWithinRequest(const v1::DesiredPlace& place, ProcessSpec& spec) {
  const absl::StatusOr<ResourceSet> request =
      rpc::FromWire(place.resources_per_process());
  if (!request.ok()) return;
  spec.memory_bytes = request->Get(kMemory).WholeUnits();
  const int64_t cpus = request->Get(kCpu).ten_thousandths();
  if (cpus == 0) return;
  spec.cpu_weight = static_cast<int>(
      std::clamp<int64_t>(cpus * keeper::kCpuWeightOfOneCpu / Amount::kScale, 1,
                          keeper::kCpuWeightMax));
}

// How often metrics are read: below what a person notices; one read
// is a look at a word of shared memory.
constexpr absl::Duration kMetricsInterval = absl::Milliseconds(250);
// When what could not be removed is tried again: longer each time.
// Moving what an attempt left to shared storage takes as long as a copy; a node
// that is gone moves nothing.
constexpr absl::Duration kFormerPeriod = absl::Milliseconds(200);
constexpr int kFormerLooks = 50;
constexpr absl::Duration kRemoveAgainFirst = absl::Seconds(1);
constexpr absl::Duration kRemoveAgainMax = absl::Minutes(1);
// Of one process's stderr, for the record of its end.
constexpr uint64_t kStderrTailBytes = 64 << 10;
// An error file with more is none of torch's.
constexpr size_t kErrorFileBytesMax = 1 << 20;

// NodeState takes none without an id.
AttemptId IdOf(const v1::DesiredPlace& place) {
  return *AttemptId::FromBytes(place.attempt_id());
}

absl::Status MakeEmpty(const std::string& directory) {
  COHORT_RETURN_IF_ERROR(RemoveTree(directory));
  return MakeDirectories(directory, 0700);
}

// Which is as likely to be missing on other nodes: no fault of this one.
absl::Status CheckIsThere(const std::string& working_directory) {
  struct stat found = {};
  int error = 0;
  if (stat(working_directory.c_str(), &found) != 0) {
    error = errno;
  } else if (!S_ISDIR(found.st_mode)) {
    error = ENOTDIR;
  } else if (access(working_directory.c_str(), X_OK) != 0) {
    error = errno;
  }
  if (error == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "this worker has no directory ", OneLine(working_directory), ": ",
      std::strerror(error),
      " (make it on all that the job may use, or send its files along)"));
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

std::vector<std::string> DevicesOf(const v1::DesiredProcess& process) {
  return {process.gpu_ids().begin(), process.gpu_ids().end()};
}

std::string ReadTail(const std::string& log_directory,
                     const ProcessId& process) {
  const LogReader reader(log_directory, process.slot, process.incarnation,
                         v1::LOG_STREAM_STDERR);
  const auto end = reader.EndOffset();
  if (!end.ok()) return "";
  const auto chunk =
      reader.Read(*end - std::min(*end, kStderrTailBytes), kStderrTailBytes);
  return chunk.ok() ? chunk->bytes : "";
}

bool HasFailed(const ProcessExited& exited) {
  // Of a lost keeper's nobody knows more.
  return exited.cause != ExitCause::kKeeperLost &&
         (exited.exit_code != 0 || exited.signal != 0);
}

// A rank that cuts its arena ends itself, and not the daemon.
void DropIfCut(std::unique_ptr<shm::Arena>& arena) {
  if (arena == nullptr || arena->IsWhole()) return;
  COHORT_LOG(kWarning, "arena_cut", {"directory", arena->directory()},
             {"lost", "metrics of these ranks"});
  arena.reset();
}

// Only whole gangs meet in one.
bool HasArena(const v1::DesiredPlace& place) { return IsGang(place); }

}  // namespace

LocalProcessHost::LocalProcessHost(
    LocalProcessHostOptions options, const NodeDirectories& directories,
    const rpc::Credential& credential, Journal& journal, KeeperHost& keepers,
    PackageCache& packages, WorkDirectories& work, DeviceMonitor& devices,
    Executor& strand, Executor& disk, Executor& bulk, Executor& slow)
    : options_(std::move(options)),
      directories_(directories),
      credential_(credential),
      journal_(journal),
      keepers_(keepers, strand),
      packages_(packages),
      work_(work),
      devices_(devices),
      strand_(strand),
      disk_(disk),
      bulk_(bulk),
      slow_(slow) {}

void LocalProcessHost::SetListener(Listener listener) {
  listener_ = std::move(listener);
}

template <typename Callback, typename Result>
void LocalProcessHost::Answer(Callback done, Result result) {
  strand_.Post([done = std::move(done), result = std::move(result)]() mutable {
    std::move(done)(std::move(result));
  });
}

void LocalProcessHost::Warn(const AttemptId& attempt) {
  for (std::string& text : work_.TakeWarnings()) {
    strand_.Post([this, attempt, text = std::move(text)] {
      if (listener_.on_warning) listener_.on_warning(attempt, text);
    });
  }
}

void LocalProcessHost::Save(const AttemptId& attempt, PlaceEntry entry,
                            Durability durability, Done done) {
  Write([this, attempt,
         entry = std::move(entry)] { return journal_.Save(attempt, entry); },
        durability, std::move(done));
}

void LocalProcessHost::Save(const ProcessId& process, ProcessEntry entry,
                            Durability durability, Done done) {
  Write([this, process,
         entry = std::move(entry)] { return journal_.Save(process, entry); },
        durability, std::move(done));
}

void LocalProcessHost::Write(absl::AnyInvocable<absl::Status() &&> append,
                             Durability durability, Done done) {
  disk_.Post([this, append = std::move(append), durability,
              done = std::move(done)]() mutable {
    absl::Status status = NodeFault(std::move(append)());
    if (!status.ok() || durability == Durability::kDaemon) {
      return Answer(std::move(done), std::move(status));
    }
    unsynced_.push_back(std::move(done));
    if (unsynced_.size() > 1) return;
    disk_.Post([this] {
      const absl::Status synced = NodeFault(journal_.Sync());
      for (Done& each : std::exchange(unsynced_, {})) {
        Answer(std::move(each), synced);
      }
    });
  });
}

// ---- before the processes ----

void LocalProcessHost::Prepare(const v1::DesiredPlace& place,
                               PreparedDone done) {
  removing_.erase(IdOf(place));
  if (place.launch().package_hash().empty()) {
    return PrepareDirectories(place, nullptr, std::move(done));
  }
  const absl::StatusOr<Digest> hash =
      Digest::FromBytes(place.launch().package_hash());
  if (!hash.ok()) return Answer(std::move(done), hash.status());
  packages_.Fetch(*hash,
                  [this, place, done = std::move(done)](
                      absl::StatusOr<PackageCache::Archive> archive) mutable {
                    if (!archive.ok()) return std::move(done)(archive.status());
                    PrepareDirectories(std::move(place), *std::move(archive),
                                       std::move(done));
                  });
}

void LocalProcessHost::PrepareDirectories(v1::DesiredPlace place,
                                          PackageCache::Archive archive,
                                          PreparedDone done) {
  bulk_.Post([this, place = std::move(place), archive = std::move(archive),
              generation = options_.generation(),
              done = std::move(done)]() mutable {
    const std::string& directory = place.launch().working_directory();
    absl::Status begun = AccountOf(place).status();
    if (begun.ok() && !directory.empty()) begun = CheckIsThere(directory);
    if (begun.ok()) begun = work_.Begin(place, generation);
    if (begun.ok() && archive != nullptr) {
      return Unpack(std::move(place), std::move(archive), std::move(done));
    }
    FinishDirectories(std::move(place), std::move(begun), kFormerLooks,
                      std::move(done));
  });
}

void LocalProcessHost::Unpack(v1::DesiredPlace place,
                              PackageCache::Archive archive,
                              PreparedDone done) {
  slow_.Post([this, place = std::move(place), archive = std::move(archive),
              done = std::move(done)]() mutable {
    absl::Status unpacked = work_.Unpack(place, *archive);
    bulk_.Post([this, place = std::move(place), unpacked = std::move(unpacked),
                done = std::move(done)]() mutable {
      FinishDirectories(std::move(place), std::move(unpacked), kFormerLooks,
                        std::move(done));
    });
  });
}

void LocalProcessHost::FinishDirectories(v1::DesiredPlace place,
                                         absl::Status made, int looks,
                                         PreparedDone done) {
  if (!made.ok() || looks == 0 || !work_.AwaitsFormer(place)) {
    if (made.ok()) made = work_.Finish(place);
    return Opened(std::move(place), std::move(made), std::move(done));
  }
  strand_.PostAfter(kFormerPeriod, [this, place = std::move(place), looks,
                                    done = std::move(done)]() mutable {
    bulk_.Post([this, place = std::move(place), looks,
                done = std::move(done)]() mutable {
      FinishDirectories(std::move(place), absl::OkStatus(), looks - 1,
                        std::move(done));
    });
  });
}

void LocalProcessHost::Opened(v1::DesiredPlace place, absl::Status made,
                              PreparedDone done) {
  Warn(IdOf(place));
  // Shared: a task of the strand has to be able to drop it.
  auto prepared = std::make_shared<absl::StatusOr<Prepared>>(
      made.ok() ? ReserveFor(IdOf(place), place) : made);
  if (made.ok() && !prepared->ok()) *prepared = NodeFault(prepared->status());
  strand_.Post([this, place = std::move(place), prepared,
                done = std::move(done)]() mutable {
    if (!prepared->ok()) return std::move(done)(prepared->status());
    Open& open = Remember(place);
    open.arena = std::move((*prepared)->arena);
    open.preflight = std::move((*prepared)->preflight);
    open.port = std::move((*prepared)->port);
    std::move(done)((*prepared)->port_number);
  });
}

absl::StatusOr<LocalProcessHost::Prepared> LocalProcessHost::ReserveFor(
    const AttemptId& id, const v1::DesiredPlace& place) {
  const std::string runtime = directories_.Runtime(id);
  COHORT_ASSIGN_OR_RETURN(const auto account, AccountOf(place));
  COHORT_RETURN_IF_ERROR(RemoveTree(runtime));
  COHORT_RETURN_IF_ERROR(MakeRuntime(id, account));
  COHORT_RETURN_IF_ERROR(MakeDirectories(LogsOf(place), 0700));
  const ActingAs acting(account);
  const shm::ArenaOptions arena = {
      .attempt = id.ToHex(),
      .epoch = static_cast<uint64_t>(place.epoch()),
      .local_world = place.local_world_size()};
  Prepared prepared;
  if (HasArena(place)) {
    COHORT_ASSIGN_OR_RETURN(prepared.arena, shm::Arena::Create(runtime, arena));
  }
  if (HasArena(place) && place.preflight()) {
    const std::string preflight = directories_.Preflight(id);
    COHORT_RETURN_IF_ERROR(MakeEmpty(preflight));
    COHORT_ASSIGN_OR_RETURN(prepared.preflight,
                            shm::Arena::Create(preflight, arena));
  }
  if (place.reserves_port()) {
    COHORT_ASSIGN_OR_RETURN(auto reserved, ReservePort(place.master_port()));
    prepared.port = std::move(reserved.first);
    prepared.port_number = reserved.second;
  }
  return prepared;
}

absl::Status LocalProcessHost::MakeRuntime(
    const AttemptId& attempt, const std::optional<OsAccount>& account) const {
  const std::string runtime = directories_.Runtime(attempt);
  COHORT_RETURN_IF_ERROR(MakeDirectories(runtime, 0700));
  if (!account.has_value() || OwnerOf(runtime).has_value()) {
    return absl::OkStatus();
  }
  return GiveTo(*account, runtime);
}

std::optional<OsAccount> LocalProcessHost::OwnerOfRuntime(
    const AttemptId& attempt) const {
  if (!options_.run_as.is_on()) return std::nullopt;
  return OwnerOf(directories_.Runtime(attempt));
}

std::string LocalProcessHost::LogsOf(const v1::DesiredPlace& place) const {
  return directories_.Logs(place.job_id(), place.number(), place.attempt_id());
}

LocalProcessHost::Open& LocalProcessHost::Remember(
    const v1::DesiredPlace& place) {
  Open& open = open_[IdOf(place)];
  open = Open();
  open.log_directory = LogsOf(place);
  if (HasArena(place) && !polling_) {
    polling_ = true;
    strand_.PostAfter(kMetricsInterval, [this] { PollMetrics(); });
  }
  return open;
}

// ---- the processes ----

void LocalProcessHost::Begin(const v1::DesiredPlace& place,
                             std::vector<ProcessId> which, Done done) {
  done = [this, logs = LogsOf(place), which,
          done = std::move(done)](absl::Status status) mutable {
    if (status.ok()) return std::move(done)(std::move(status));
    // No keeper ends these logs, and who follows one waits for its end.
    disk_.Post([this, logs = std::move(logs), which = std::move(which),
                status = std::move(status), done = std::move(done)]() mutable {
      for (const ProcessId& process : which) {
        SealLogs(logs, process.slot, process.incarnation).IgnoreError();
      }
      Answer(std::move(done), std::move(status));
    });
  };
  disk_.Post([this, place, which = std::move(which),
              done = std::move(done)]() mutable {
    absl::StatusOr<std::string> python = MakeReady(place, which);
    strand_.Post([this, place = std::move(place), which = std::move(which),
                  python = std::move(python),
                  done = std::move(done)]() mutable {
      if (!python.ok()) return std::move(done)(python.status());
      BeginAtKeeper(place, which, *std::move(python), std::move(done));
    });
  });
}

absl::StatusOr<std::string> LocalProcessHost::MakeReady(
    const v1::DesiredPlace& place, const std::vector<ProcessId>& which) const {
  COHORT_ASSIGN_OR_RETURN(const auto account, AccountOf(place));
  // It goes with the machine's memory, and the place may be older.
  COHORT_RETURN_IF_ERROR(NodeFault(MakeRuntime(IdOf(place), account)));
  for (const ProcessId& process : which) {
    COHORT_RETURN_IF_ERROR(WriteCredential(process));
  }
  if (place.processes().empty() || place.launch().command().empty()) return "";
  return DescribePython(MakeSpec(place, place.processes(0)).env,
                        place.launch().command(0));
}

absl::Status LocalProcessHost::WriteCredential(const ProcessId& process) const {
  const ActingAs acting(OwnerOfRuntime(process.attempt));
  const absl::Status written = WriteRankCredential(
      directories_.RankCredential(process), credential_, process);
  // What a job has put in the way is its own fault.
  return absl::IsFailedPrecondition(written) ? written : NodeFault(written);
}

void LocalProcessHost::TakeAuthority(const std::string& authority) {
  credential_ = credential_.For(authority);
  for (const ProcessId& process : RanksWithCredential(directories_.runtime())) {
    const absl::Status written = WriteCredential(process);
    if (written.ok()) continue;
    COHORT_LOG(kWarning, "rank_credential_not_renewed",
               {"process", process.ToText()}, {"why", written},
               {"meaning", "that rank cannot connect after the rotation"});
  }
}

void LocalProcessHost::BeginAtKeeper(const v1::DesiredPlace& place,
                                     const std::vector<ProcessId>& which,
                                     std::string python, Done done) {
  const auto found = open_.find(IdOf(place));
  // A daemon that was restarted has not opened what it did not adopt.
  Open& open = found == open_.end() ? Remember(place) : found->second;
  open.python = std::move(python);
  std::vector<ProcessSpec> specs;
  for (const v1::DesiredProcess& process : place.processes()) {
    const ProcessId id = worker::IdOf(place, process);
    if (std::find(which.begin(), which.end(), id) == which.end()) continue;
    devices_.Hold(id.ToText(), DevicesOf(process));
    open.reporters[process.local_rank()] = {.process = id};
    // Held free until now; the process is milliseconds away.
    if (process.rank() == 0) open.port = UniqueFd();
    specs.push_back(MakeSpec(place, process));
  }
  keepers_.Begin(
      place, std::move(specs),
      [this, which, done = std::move(done)](absl::Status status) mutable {
        for (const ProcessId& id : which) {
          if (!status.ok()) devices_.Forget(id.ToText());
        }
        // Else it is what it was asked for that is at fault.
        if (!absl::IsInvalidArgument(status)) {
          status = NodeFault(std::move(status));
        }
        std::move(done)(std::move(status));
      });
}

ProcessSpec LocalProcessHost::MakeSpec(
    const v1::DesiredPlace& place, const v1::DesiredProcess& process) const {
  const ProcessId id = worker::IdOf(place, process);
  ProcessSpec spec;
  spec.attempt = id.attempt.ToHex();
  spec.slot = id.slot;
  spec.incarnation = id.incarnation;
  spec.log_dir = LogsOf(place);
  if (process.has_time_limit()) {
    spec.time_limit_ms = std::max<int64_t>(
        absl::ToInt64Milliseconds(rpc::FromWire(process.time_limit())), 1);
  }
  // Also for a Stop that can come as a signal only.
  if (process.has_grace()) {
    spec.grace_ms = absl::ToInt64Milliseconds(rpc::FromWire(process.grace()));
  }
  if (place.preflight()) spec.argv = {options_.preflight_program, "--"};
  spec.argv.insert(spec.argv.end(), place.launch().command().begin(),
                   place.launch().command().end());
  spec.cwd = place.launch().working_directory().empty()
                 ? directories_.Work(id.attempt)
                 : place.launch().working_directory();
  // MakeReady has asked whether there is one.
  const auto account = AccountOf(place).value_or(std::nullopt);
  if (account.has_value()) {
    spec.user = {.uid = account->uid,
                 .gid = account->gid,
                 .groups = {account->groups.begin(), account->groups.end()}};
  }
  spec.env = RankEnvironment(
      account.has_value() ? EnvironmentOf(*account, options_.environment)
                          : options_.environment,
      place, process,
      {.head_address = options_.head_address,
       .credential_file = directories_.RankCredential(id),
       .worker_socket = directories_.WorkerSocket(),
       .error_file = directories_.ErrorFile(id),
       .work_dir = spec.cwd,
       .storage_dir = directories_.RunDirectory(place)});
  spec.cpus = CpusFor(process);
  HoldWithinRequest(place, spec);
  return spec;
}

std::vector<int> LocalProcessHost::CpusFor(
    const v1::DesiredProcess& process) const {
  std::set<int> cpus;
  for (const std::string& gpu : process.gpu_ids()) {
    const auto near = options_.cpus_of_devices.find(gpu);
    // Where one is near to none in particular, none is better than another.
    if (near == options_.cpus_of_devices.end()) return {};
    cpus.insert(near->second.begin(), near->second.end());
  }
  return {cpus.begin(), cpus.end()};
}

void LocalProcessHost::Adopt(const v1::DesiredPlace& place,
                             KeeperHost::AdoptCallback done) {
  const AttemptId id = IdOf(place);
  Open& open = Remember(place);
  std::vector<ProcessId> held;
  for (const v1::DesiredProcess& process : place.processes()) {
    held.push_back(worker::IdOf(place, process));
    devices_.Adopt(held.back().ToText(), DevicesOf(process));
    open.reporters[process.local_rank()] = {.process = held.back()};
  }
  const auto take_over = [this, id](const std::string& directory) {
    const ActingAs acting(OwnerOfRuntime(id));
    absl::StatusOr<std::unique_ptr<shm::Arena>> arena =
        shm::Arena::Open(directory);
    if (arena.ok()) return *std::move(arena);
    // After the machine's restart; the keeper's directory tells the rest.
    COHORT_LOG(kWarning, "arena_not_opened", {"directory", directory},
               {"error", arena.status().message()});
    return std::unique_ptr<shm::Arena>();
  };
  if (HasArena(place)) open.arena = take_over(directories_.Runtime(id));
  if (HasArena(place) && place.preflight()) {
    open.preflight = take_over(directories_.Preflight(id));
  }
  keepers_.Adopt(place, [this, id, held, done = std::move(done)](
                            absl::StatusOr<AdoptedKeeper> adopted) mutable {
    for (const ProcessId& process : held) {
      // Nothing of it runs that is known of: whoever is on its
      // devices is not a holder (DV-8).
      if (!adopted.ok() ||
          std::find(adopted->known.begin(), adopted->known.end(),
                    KeyOf(process)) == adopted->known.end()) {
        devices_.Forget(process.ToText());
      }
    }
    if (absl::IsNotFound(adopted.status()) && !held.empty() &&
        access(directories_.Runtime(id).c_str(), F_OK) != 0) {
      // What began may have had no time to reach the disk.
      adopted =
          absl::UnavailableError("the machine was restarted while it began");
    }
    std::move(done)(std::move(adopted));
  });
}

void LocalProcessHost::OnKeeperEvent(const KeeperEvent& event) {
  if (!listener_.on_event) return;
  const ProcessKey& key = std::visit(
      [](const auto& told) -> const ProcessKey& { return told.process; },
      event);
  // A process's last report comes before its end.
  if (const auto* const exited = std::get_if<ProcessExited>(&event)) {
    const absl::StatusOr<AttemptId> id = AttemptId::FromHex(key.attempt);
    const auto found = id.ok() ? open_.find(*id) : open_.end();
    if (found != open_.end()) {
      ReadMetrics(found->second);
      if (HasFailed(*exited)) return TellFailure(*exited, found->second);
    }
  }
  if (failed_.erase(key) == 0) return Tell(event);
  // After its exit.
  disk_.Post([this, event] { strand_.Post([this, event] { Tell(event); }); });
}

void LocalProcessHost::TellFailure(const ProcessExited& exited,
                                   const Open& open) {
  failed_.insert(exited.process);
  disk_.Post([this, exited = exited, log_directory = open.log_directory,
              python = open.python]() mutable {
    const ProcessId id = {
        .attempt = *AttemptId::FromHex(exited.process.attempt),
        .slot = exited.process.slot,
        .incarnation = exited.process.incarnation};
    LastWords words;
    ReadErrorFile(id, words);
    // Who was ended by others was printing of that.
    if (exited.cause == ExitCause::kItself) {
      words.stderr_tail = ReadTail(log_directory, id);
    }
    words.python = std::move(python);
    exited.message = ExitDetail(exited, words);
    strand_.Post([this, exited = std::move(exited)] { Tell(exited); });
  });
}

void LocalProcessHost::ReadErrorFile(const ProcessId& process,
                                     LastWords& words) const {
  const std::string path = directories_.ErrorFile(process);
  const ActingAs acting(OwnerOfRuntime(process.attempt));
  struct stat file = {};
  if (stat(path.c_str(), &file) != 0) return;
  words.error_file_modified = absl::TimeFromTimespec(file.st_mtim);
  words.error_file = ReadRegularFile(path, kErrorFileBytesMax).value_or("");
}

void LocalProcessHost::Tell(const KeeperEvent& event) {
  const auto* const ended = std::get_if<ProcessEnded>(&event);
  if (ended == nullptr) return listener_.on_event(event);
  // It is over once its devices are free, too (DV-8).
  devices_.Release(ended->process.ToString(),
                   [this, event] { listener_.on_event(event); });
}

void LocalProcessHost::PollMetrics() {
  bool any = false;
  for (auto& [id, open] : open_) {
    ReadMetrics(open);
    any = any || open.arena != nullptr;
  }
  polling_ = any;
  if (polling_) {
    strand_.PostAfter(kMetricsInterval, [this] { PollMetrics(); });
  }
}

void LocalProcessHost::ReadMetrics(Open& open) {
  DropIfCut(open.arena);
  if (open.arena == nullptr || !listener_.on_metrics) return;
  for (auto& [local, reporter] : open.reporters) {
    if (local >= open.arena->local_world()) break;
    const auto report = open.arena->metrics(local).ReadAfter(reporter.seen);
    if (!report.has_value()) continue;
    reporter.seen = report->sequence;
    listener_.on_metrics(reporter.process, report->sequence, report->payload);
  }
}

void LocalProcessHost::Revoke(const AttemptId& attempt) {
  const auto found = open_.find(attempt);
  if (found == open_.end()) return;
  for (auto* arena : {&found->second.arena, &found->second.preflight}) {
    DropIfCut(*arena);
    if (*arena != nullptr) (*arena)->Revoke((*arena)->epoch());
  }
}

void LocalProcessHost::Stop(const ProcessId& process, absl::Duration grace) {
  keepers_.Stop(process, grace);
}

void LocalProcessHost::Kill(const ProcessId& process) {
  keepers_.Kill(process);
}

// ---- after the processes ----

void LocalProcessHost::Forget(const ProcessId& process, Done done) {
  devices_.Forget(process.ToText());
  keepers_.Forget(process, [this, process, done = std::move(done)](
                               absl::Status status) mutable {
    disk_.Post([this, process, status = std::move(status),
                done = std::move(done)]() mutable {
      // One that was never begun, in a place without a keeper.
      if (absl::IsNotFound(status)) status = absl::OkStatus();
      status.Update(RemoveTree(directories_.RankCredential(process)));
      status.Update(journal_.Remove(process));
      Answer(std::move(done), std::move(status));
    });
  });
}

void LocalProcessHost::Forget(const AttemptId& attempt, Done done) {
  open_.erase(attempt);
  removing_.insert(attempt);
  Remove(attempt,
         [this, attempt, done = std::move(done)](absl::Status status) mutable {
           if (status.ok()) {
             removing_.erase(attempt);
           } else {
             RemoveLater(attempt, kRemoveAgainFirst);
           }
           std::move(done)(std::move(status));
         });
}

void LocalProcessHost::RemoveLater(const AttemptId& attempt,
                                   absl::Duration after) {
  strand_.PostAfter(after, [this, attempt, after] {
    if (!removing_.contains(attempt)) return;
    Remove(attempt, [this, attempt, after](const absl::Status& status) {
      if (!status.ok()) {
        // Said already when it failed first.
        const absl::Duration next = std::min(2 * after, kRemoveAgainMax);
        return RemoveLater(attempt, next);
      }
      removing_.erase(attempt);
      COHORT_LOG(kInfo, "forgotten_at_last", {"attempt", attempt});
    });
  });
}

void LocalProcessHost::Remove(const AttemptId& attempt, Done done) {
  keepers_.Close(attempt, [this, attempt, done = std::move(done)](
                              absl::Status removed) mutable {
    // It is wanted here again.
    if (!removing_.contains(attempt)) return std::move(done)(absl::OkStatus());
    bulk_.Post([this, attempt, removed = std::move(removed),
                done = std::move(done)]() mutable {
      absl::Status status = std::move(removed);
      if (absl::IsNotFound(status)) status = absl::OkStatus();
      status.Update(RemoveTree(directories_.Runtime(attempt)));
      status.Update(work_.Remove(attempt));
      Warn(attempt);
      const std::string gone = work_.GonePath(attempt);
      if (access(gone.c_str(), F_OK) != 0) {
        return RemoveEntry(attempt, std::move(status), std::move(done));
      }
      slow_.Post([this, attempt, gone, status = std::move(status),
                  done = std::move(done)]() mutable {
        status.Update(RemoveTree(gone));
        strand_.Post([this, attempt, status = std::move(status),
                      done = std::move(done)]() mutable {
          // It may be wanted again since.
          if (!removing_.contains(attempt)) {
            return std::move(done)(absl::OkStatus());
          }
          RemoveEntry(attempt, std::move(status), std::move(done));
        });
      });
    });
  });
}

void LocalProcessHost::RemoveEntry(const AttemptId& attempt,
                                   absl::Status status, Done done) {
  disk_.Post([this, attempt, status = std::move(status),
              done = std::move(done)]() mutable {
    // Last: until it is gone, a restarted daemon tries all of it again.
    if (status.ok()) status = journal_.Remove(attempt);
    Answer(std::move(done), std::move(status));
  });
}

void LocalProcessHost::RemoveCheckpoint(const v1::DesiredPlace& place,
                                        const std::string& path, Done done) {
  // Any attempt of the job, nothing else.
  const std::string prefix =
      absl::StrCat(directories_.Storage(place), "/attempt-");
  const bool ours = absl::StartsWith(path, prefix) &&
                    absl::StrContains(path, "/step-") &&
                    !absl::StrContains(absl::StrCat(path, "/"), "/../");
  bulk_.Post([this, place, path, ours, done = std::move(done)]() mutable {
    const ActingAs acting(work_.OwnerOfStorage(place));
    Answer(std::move(done),
           ours ? RemoveTree(path)
                : absl::InvalidArgumentError(absl::StrCat(
                      path, " is not a checkpoint of this job: not removed")));
  });
}

void LocalProcessHost::ReadStderrTail(
    const ProcessId& process, absl::AnyInvocable<void(std::string) &&> done) {
  const auto found = open_.find(process.attempt);
  const std::string log_directory =
      found == open_.end() ? "" : found->second.log_directory;
  disk_.Post([this, log_directory, process, done = std::move(done)]() mutable {
    Answer(std::move(done), ReadTail(log_directory, process));
  });
}

}  // namespace cohort::worker

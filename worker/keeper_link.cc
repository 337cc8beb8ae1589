#include "worker/keeper_link.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/log.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "worker/keeper/clocks.h"
#include "worker/keeper/proc.h"
#include "worker/keeper/record.h"
#include "worker/log_reader.h"
#include "worker/process_identity.h"

namespace cohort::worker {
namespace {

using keeper::Command;
using keeper::UniqueFd;

// A keeper that cannot be reached is dying (milliseconds) or its socket is gone
// (for good).
constexpr absl::Duration kRetryFirst = absl::Milliseconds(5);
constexpr absl::Duration kRetryMax = absl::Seconds(1);
// Only a process in uninterruptible sleep takes longer.
constexpr absl::Duration kLeftoversTimeout = absl::Seconds(2);
// A keeper that has let go of its lock or its connection has nothing left to
// do.
constexpr int kLeaveTimeout_ms = 2000;
// From the time to kill to the end of it all; a keeper that takes longer is
// stopped, stuck on a disk, or waits for a process that cannot die.
constexpr absl::Duration kTimeout = absl::Seconds(5);

// From a process's start until now; zero when it started before the machine
// did.
absl::Duration RanSoFar(const std::optional<keeper::KeeperReport>& keeper,
                        const keeper::StartedReport& started) {
  if (!keeper || keeper->boot_id != keeper::ReadBootId()) {
    return absl::ZeroDuration();
  }
  timespec now{};
  // NOLINT(cohort-clock): start times of processes count from the boot.
  clock_gettime(CLOCK_BOOTTIME, &now);
  const absl::Duration start =
      absl::Seconds(1) * started.start_time / sysconf(_SC_CLK_TCK);
  return std::max(absl::DurationFromTimespec(now) - start,
                  absl::ZeroDuration());
}

}  // namespace

KeeperLink::KeeperLink(std::string id, KeeperStart start, std::string logs_dir,
                       EventSink sink, AskChildren children)
    : id_(std::move(id)),
      start_(std::move(start)),
      logs_dir_(std::move(logs_dir)),
      sink_(std::move(sink)),
      children_(std::move(children)),
      retry_delay_(kRetryFirst) {}

// ---- what is asked ----

void KeeperLink::Begin(const std::vector<ProcessSpec>& specs,
                       KeeperHost::DoneCallback done) {
  if (close_done_) {
    return std::move(done)(absl::UnavailableError(
        absl::StrCat("keeper ", id_, " is being closed")));
  }
  PendingBegin begin = {
      {}, MonotonicNow() + start_.begin_timeout, std::move(done)};
  absl::Status status;
  for (const ProcessSpec& spec : specs) {
    if (processes_.contains(spec.key())) continue;
    processes_[spec.key()].records.log_dir = spec.log_dir;
    begin.which.push_back(spec.key());
    status = WriteSpec(start_.dir, spec);
    if (!status.ok()) break;
  }
  if (begin.which.empty()) return std::move(begin.done)(absl::OkStatus());
  if (status.ok() && state_ == State::kNone) status = Spawn();
  if (!status.ok()) return Refuse(std::move(begin), status);
  AddBegin(std::move(begin));
}

absl::Status KeeperLink::Spawn() {
  // PR-2: what ended under an earlier keeper is not begun by the new one, also
  // when this daemon is restarted.
  for (const auto& [key, process] : processes_) {
    const std::string path =
        absl::StrCat(start_.dir, "/", keeper::EndedFile(key));
    if (process.records.ended && access(path.c_str(), F_OK) != 0) {
      COHORT_RETURN_IF_ERROR(RecordEnded(start_.dir, *process.records.exit));
    }
  }
  COHORT_ASSIGN_OR_RETURN(const LockedKeeperDir locked,
                          LockKeeperDir(start_.dir));
  COHORT_ASSIGN_OR_RETURN(const UniqueFd listener,
                          ListenForKeeper(start_.place));
  COHORT_ASSIGN_OR_RETURN(connection_, ConnectToKeeper(start_.place));
  COHORT_ASSIGN_OR_RETURN(KeeperProcess process,
                          SpawnKeeper(start_, locked, listener));
  pidfd_ = std::move(process.pidfd);
  keeper_pid_ = process.pid;
  keeper_.reset();
  keeper_died_ = false;
  keeper_killed_ = false;
  state_ = State::kStarting;
  return absl::OkStatus();
}

void KeeperLink::AddBegin(PendingBegin begin) {
  const int64_t number = next_begin_++;
  SendBegin(number, begins_[number] = std::move(begin));
}

void KeeperLink::SendBegin(int64_t number, const PendingBegin& begin) {
  Send({Command::Kind::kBegin, number, 0, begin.which});
}

void KeeperLink::Refuse(PendingBegin begin, const absl::Status& status) {
  if (!begin.done) {
    for (const ProcessKey& key : begin.which) {
      EndLost(key, std::string(status.message()));
    }
    return TellAll();
  }
  COHORT_LOG(kWarning, "begin_refused", {"keeper", id_}, {"status", status});
  for (const ProcessKey& key : begin.which) {
    processes_.erase(key);
    const absl::Status removed = RemoveRecords(start_.dir, key);
    if (!removed.ok()) {
      COHORT_LOG(kWarning, "records_not_removed", {"keeper", id_},
                 {"process", key.ToString()}, {"status", removed});
    }
  }
  if (!processes_.empty() || !begins_.empty()) {
    return std::move(begin.done)(status);
  }
  // Nothing of it remains (KH-2).
  Close([done = std::move(begin.done), status](const absl::Status&) mutable {
    std::move(done)(status);
  });
}

void KeeperLink::RefuseAll(const absl::Status& status) {
  while (!begins_.empty()) {
    auto begin = begins_.extract(begins_.begin());
    Refuse(std::move(begin.mapped()), status);
  }
}

void KeeperLink::Close(KeeperHost::DoneCallback done) {
  if (close_done_) {
    return std::move(done)(absl::UnavailableError(
        absl::StrCat("keeper ", id_, " is being closed")));
  }
  if (!AllEnded() || !begins_.empty()) {
    return std::move(done)(absl::FailedPreconditionError(
        absl::StrCat("processes of keeper ", id_, " run: Stop them first")));
  }
  close_done_ = std::move(done);
  close_by_ = MonotonicNow() + kTimeout;
  if (state_ == State::kNone) return FinishClose();
  Send({.kind = Command::Kind::kClose});
}

void KeeperLink::FinishClose() {
  absl::Status status = RemoveKeeperDir(start_.dir);
  status.Update(RemoveKeeperDir(start_.place));
  closed_ = status.ok();
  std::exchange(close_done_, nullptr)(status);
}

absl::Status KeeperLink::Forget(const std::vector<ProcessKey>& which) {
  for (const ProcessKey& key : which) {
    const auto it = processes_.find(key);
    if (it != processes_.end() && !it->second.records.ended) {
      return absl::FailedPreconditionError(absl::StrCat(
          "process ", key.ToString(), " still runs: Stop it first"));
    }
  }
  for (const ProcessKey& key : which) {
    if (!processes_.contains(key)) continue;
    COHORT_RETURN_IF_ERROR(RemoveRecords(start_.dir, key));
    processes_.erase(key);
  }
  Send({.kind = Command::Kind::kForget, .processes = which});
  return absl::OkStatus();
}

void KeeperLink::Stop(const std::vector<ProcessKey>& which,
                      absl::Duration kill_at) {
  std::vector<ProcessKey> changed;
  for (const ProcessKey& key : which) {
    const auto it = processes_.find(key);
    if (it == processes_.end() || it->second.records.ended) continue;
    std::optional<absl::Duration>& earlier = it->second.kill_at;
    if (earlier && *earlier <= kill_at) continue;
    earlier = kill_at;
    changed.push_back(key);
  }
  if (!changed.empty()) SendStop(changed, kill_at);
}

void KeeperLink::SendStop(const std::vector<ProcessKey>& which,
                          absl::Duration kill_at) {
  const absl::Duration grace =
      std::max(kill_at - MonotonicNow(), absl::ZeroDuration());
  Send({Command::Kind::kStop, 0, absl::ToInt64Milliseconds(grace), which});
}

void KeeperLink::Send(Command command) {
  if (!connection_) return;
  std::vector<ProcessKey> which = std::move(command.processes);
  do {
    const size_t part = std::min(which.size(), keeper::kProcessesMax);
    const auto end = which.begin() + static_cast<ptrdiff_t>(part);
    command.processes.assign(which.begin(), end);
    which.erase(which.begin(), end);
    const std::string packet = keeper::Encode(command);
    // Failing means a broken connection: sent again on the next one.
    send(connection_.get(), packet.data(), packet.size(), MSG_NOSIGNAL);
  } while (!which.empty());
}

// ---- adoption ----

absl::StatusOr<AdoptedKeeper> KeeperLink::Adopt() {
  absl::StatusOr<KeeperSurvey> survey = SurveyKeeper(start_.dir);
  if (!survey.ok()) {
    if (absl::IsNotFound(survey.status())) return survey.status();
    // With its keeper, which has the mark.
    return absl::UnavailableError(
        absl::StrCat(survey.status().message(), EndLeftovers()));
  }
  AdoptedKeeper adopted;
  for (const auto& [key, records] : survey->processes) {
    processes_[key];
    adopted.known.push_back(key);
  }
  Learn(*survey);
  if (!survey->locked && !AllEnded()) adopted.message = LossOf(*survey);
  COHORT_LOG(kInfo, "keeper_adopt", {"keeper", id_},
             {"processes", adopted.known.size()}, {"alive", survey->locked},
             {"message", adopted.message});
  state_ = State::kRunning;
  adopted_ = *std::move(survey);
  return adopted;
}

void KeeperLink::FollowAdopted() {
  const KeeperSurvey survey = *std::exchange(adopted_, {});
  TellAll();
  if (!survey.locked) return OnKeeperLost(LossOf(survey));
  // The earlier daemon may not have come to it; done already it is nothing.
  PendingBegin again = {{}, MonotonicNow() + start_.begin_timeout, nullptr};
  for (const auto& [key, process] : processes_) {
    const ProcessRecords& records = process.records;
    if (!records.started && !records.exit) again.which.push_back(key);
  }
  if (!again.which.empty()) AddBegin(std::move(again));
  if (survey.keeper) WatchKeeper(*survey.keeper);
  Reconnect();
}

// ---- what is heard ----

void KeeperLink::OnConnectionReady() {
  while (connection_) {
    char buffer[keeper::kPacketBytesMax];
    const ssize_t n = recv(connection_.get(), buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      connection_.Reset();
      // One that just started and hangs up is dying: its pidfd says more.
      if (state_ == State::kRunning) LookAgain();
      return;
    }
    OnPacket(std::string(buffer, static_cast<size_t>(n)));
  }
}

void KeeperLink::OnPacket(const std::string& bytes) {
  std::string error;
  if (const auto hello = keeper::Parse<keeper::KeeperReport>(bytes, &error)) {
    return OnHello(*hello);
  }
  if (const auto answer = keeper::Parse<keeper::Answer>(bytes, &error)) {
    return OnAnswer(*answer);
  }
  if (const auto started =
          keeper::Parse<keeper::StartedReport>(bytes, &error)) {
    ProcessRecords* const records = ReportedOn(started->process);
    if (records != nullptr) records->started = started;
  } else if (const auto exited =
                 keeper::Parse<keeper::ExitReport>(bytes, &error)) {
    ProcessRecords* const records = ReportedOn(exited->process);
    if (records != nullptr) records->exit = exited;
  } else if (const auto ended =
                 keeper::Parse<keeper::EndedReport>(bytes, &error)) {
    ProcessRecords* const records = ReportedOn(ended->process);
    if (records != nullptr) records->ended = records->exit.has_value();
  } else {
    COHORT_LOG(kWarning, "keeper_packet_refused", {"keeper", id_},
               {"kind", keeper::RecordKind(bytes)}, {"error", error});
  }
  TellAll();
}

ProcessRecords* KeeperLink::ReportedOn(const ProcessKey& key) {
  const auto it = processes_.find(key);
  const bool known = it != processes_.end();
  if (known && !it->second.records.ended) return &it->second.records;
  // It was refused or told as lost and was begun all the same, or it has lost
  // its files: nobody knows that it runs.
  const bool lost =
      !known || it->second.records.exit->cause == ExitCause::kKeeperLost;
  if (lost) SendStop({key}, absl::ZeroDuration());
  if (!known) Send({.kind = Command::Kind::kForget, .processes = {key}});
  return nullptr;
}

void KeeperLink::OnHello(const keeper::KeeperReport& hello) {
  retry_delay_ = kRetryFirst;
  keeper_ = hello;
  COHORT_LOG(kInfo, "keeper_hello", {"keeper", id_}, {"pid", hello.pid},
             {"cgroup", hello.cgroup});
  if (!pidfd_) WatchKeeper(hello);
  state_ = State::kRunning;
}

void KeeperLink::OnAnswer(const keeper::Answer& answer) {
  auto begin = begins_.extract(answer.number);
  if (begin.empty()) return;
  if (!answer.error.empty()) {
    return Refuse(
        std::move(begin.mapped()),
        absl::InternalError(absl::StrCat("keeper ", id_, ": ", answer.error)));
  }
  if (begin.mapped().done) std::move(begin.mapped().done)(absl::OkStatus());
}

void KeeperLink::WatchKeeper(const keeper::KeeperReport& report) {
  absl::StatusOr<int> pidfd = OpenPidfd(
      {report.pid, static_cast<uint64_t>(report.start_time), report.boot_id});
  // Gone already: the connection's end leads to the same look.
  keeper_died_ = absl::IsNotFound(pidfd.status());
  if (pidfd.ok()) pidfd_ = UniqueFd(*pidfd);
}

void KeeperLink::OnPidfdReady() {
  // What it said before it ended is still in the socket.
  OnConnectionReady();
  if (!pidfd_) return;
  const std::string how = Reap();
  if (children_) ReapOrphans(children_());
  if (state_ == State::kStarting) {
    state_ = State::kNone;
    connection_.Reset();
    const std::string words = ReadKeeperLog(start_.dir);
    RefuseAll(absl::InternalError(absl::StrCat(
        "keeper ", id_, " ended before it took its processes: ",
        words.empty() ? absl::StrCat(how, " and no word in ", start_.dir)
                      : words)));
    if (close_done_) FinishClose();
  } else if (state_ == State::kRunning) {
    keeper_died_ = true;
    retry_delay_ = kRetryFirst;
    LookAgain();
  }
}

std::string KeeperLink::Reap() {
  siginfo_t ended{};
  // Fails for one that an earlier daemon started: not our child.
  waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(pidfd_.get()),
         &ended, WEXITED | WNOHANG);
  pidfd_.Reset();
  keeper_pid_ = 0;
  return absl::StrCat(ended.si_code == CLD_EXITED ? "status " : "signal ",
                      ended.si_status);
}

void KeeperLink::AwaitKeeper() {
  if (!pidfd_) return;
  pollfd leaving = {pidfd_.get(), POLLIN, 0};
  poll(&leaving, 1, kLeaveTimeout_ms);
  Reap();
}

void KeeperLink::KillKeeper() {
  keeper_killed_ = true;
  COHORT_LOG(kWarning, "keeper_killed", {"keeper", id_},
             {"reason", "it does not answer, or its processes do not end"});
  syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
}

absl::Duration KeeperLink::TimeoutEnds() const {
  absl::Duration ends = absl::InfiniteDuration();
  if (state_ == State::kNone || keeper_killed_) return ends;
  if (close_done_) ends = close_by_;
  for (const auto& [key, process] : processes_) {
    if (process.kill_at && !process.records.ended) {
      ends = std::min(ends, *process.kill_at + kTimeout);
    }
  }
  return ends;
}

absl::Duration KeeperLink::wake_at() const {
  absl::Duration at = std::min(retry_at_, TimeoutEnds());
  for (const auto& [number, begin] : begins_) at = std::min(at, begin.deadline);
  return at;
}

void KeeperLink::OnWake() {
  const absl::Duration now = MonotonicNow();
  if (now >= TimeoutEnds()) return KillKeeper();
  for (auto it = begins_.begin(); it != begins_.end();) {
    const auto current = it++;
    if (now < current->second.deadline) continue;
    auto late = begins_.extract(current);
    if (state_ == State::kStarting && !keeper_killed_) KillKeeper();
    // Taken all the same, they are ended: ReportedOn.
    Refuse(std::move(late.mapped()),
           absl::DeadlineExceededError(absl::StrCat(
               "keeper ", id_, " did not take its processes in time")));
  }
  if (now < retry_at_) return;
  retry_at_ = absl::InfiniteDuration();
  if (state_ == State::kRunning) LookAgain();
}

// ---- the directory, when nothing is to be heard ----

void KeeperLink::LookAgain() {
  const absl::StatusOr<KeeperSurvey> survey = SurveyKeeper(start_.dir);
  if (survey.ok()) {
    Learn(*survey);
    TellAll();
    if (!survey->locked) return OnKeeperLost(LossOf(*survey));
    if (!pidfd_ && survey->keeper) WatchKeeper(*survey->keeper);
    return Reconnect();
  }
  if (!std::exchange(told_unreadable_, true)) {
    COHORT_LOG(kWarning, "keeper_directory_unreadable", {"keeper", id_},
               {"status", survey.status()});
  }
  if (!keeper_died_) return Reconnect();
  const bool all_exited = std::all_of(
      processes_.begin(), processes_.end(),
      [](const auto& entry) { return entry.second.records.exit.has_value(); });
  // It may know more as soon as it can be read, as without free descriptors.
  const bool may_come_back =
      absl::IsUnavailable(survey.status()) && retry_delay_ < kRetryMax;
  if (!all_exited && may_come_back) return TryLater();
  OnKeeperLost(absl::StrCat("the keeper died; ", survey.status().message()));
}

void KeeperLink::Reconnect() {
  if (connection_) return;
  absl::StatusOr<UniqueFd> connection = ConnectToKeeper(start_.place);
  if (connection.ok()) {
    connection_ = *std::move(connection);
    for (const auto& [number, begin] : begins_) SendBegin(number, begin);
    for (const auto& [key, process] : processes_) {
      if (process.kill_at && !process.records.ended) {
        SendStop({key}, *process.kill_at);
      }
    }
    if (close_done_) Send({.kind = Command::Kind::kClose});
    return;
  }
  // Its socket is gone but it lives: a signal is the other way to stop it, if
  // only as a whole.
  const absl::Duration kill_at = TimeoutEnds() - kTimeout;
  if (kill_at < absl::InfiniteDuration() && pidfd_) {
    const int signal = kill_at <= MonotonicNow() ? SIGKILL : SIGTERM;
    syscall(SYS_pidfd_send_signal, pidfd_.get(), signal, nullptr, 0);
  }
  TryLater();
}

void KeeperLink::TryLater() {
  retry_at_ = MonotonicNow() + retry_delay_;
  retry_delay_ = std::min(2 * retry_delay_, kRetryMax);
}

void KeeperLink::Learn(const KeeperSurvey& survey) {
  if (survey.keeper) keeper_ = survey.keeper;
  for (const auto& [key, found] : survey.processes) {
    const auto it = processes_.find(key);
    if (it == processes_.end()) continue;
    ProcessRecords& known = it->second.records;
    if (found.started) known.started = found.started;
    if (found.exit) known.exit = found.exit;
    known.ended = known.ended || found.ended;
    if (!known.log_dir.empty()) continue;
    known.log_dir = found.log_dir;
    if (logs_dir_.empty() || found.log_dir.empty()) continue;
    // The spec has its name of when the process began; the keeper follows it.
    const std::filesystem::path told = found.log_dir;
    known.log_dir = std::filesystem::path(logs_dir_) /
                    told.parent_path().filename() / told.filename();
  }
}

void KeeperLink::TellAll() {
  std::multimap<int64_t, Process*> exits;
  for (auto& [key, process] : processes_) {
    const ProcessRecords& records = process.records;
    if (records.started && !process.told_started && !process.told_exited) {
      process.told_started = true;
      sink_(ProcessStarted{key, records.started->pid});
    }
    if (records.exit && !process.told_exited) {
      exits.emplace(records.exit->ended_wall_ns, &process);
    }
  }
  // In the order that they happened: the first failure is the one that counts.
  for (const auto& [ended, process] : exits) {
    process->told_exited = true;
    sink_(*process->records.exit);
  }
  for (auto& [key, process] : processes_) {
    if (!process.records.ended || !process.told_exited) continue;
    if (!std::exchange(process.told_ended, true)) sink_(ProcessEnded{key});
  }
}

// ---- a keeper that is no more ----

std::string KeeperLink::LossOf(const KeeperSurvey& survey) const {
  if (survey.keeper && survey.keeper->boot_id != keeper::ReadBootId()) {
    return "the machine restarted";
  }
  const std::string log = ReadKeeperLog(start_.dir);
  return log.empty() ? "the keeper died"
                     : absl::StrCat("the keeper died; its last words: ", log);
}

bool KeeperLink::AllEnded() const {
  return std::all_of(
      processes_.begin(), processes_.end(),
      [](const auto& entry) { return entry.second.records.ended; });
}

void KeeperLink::OnKeeperLost(const std::string& why) {
  AwaitKeeper();
  state_ = State::kNone;
  retry_at_ = absl::InfiniteDuration();
  connection_.Reset();
  if (AllEnded()) {
    // Killed just after it had written that, it had no time to do it.
    if (keeper_) RemoveCgroup(keeper_->cgroup);
    COHORT_LOG(kInfo, "keeper_ended", {"keeper", id_});
  } else {
    const std::string left = EndLeftovers();
    COHORT_LOG(kWarning, "keeper_lost", {"keeper", id_},
               {"message", absl::StrCat(why, left)});
    std::erase_if(begins_,
                  [](const auto& begin) { return !begin.second.done; });
    RefuseAll(absl::InternalError(
        absl::StrCat("keeper ", id_, " did not take its processes: ", why)));
    for (const auto& [key, process] : processes_) {
      if (!process.records.ended) EndLost(key, absl::StrCat(why, left));
    }
    TellAll();
  }
  if (close_done_) FinishClose();
}

void KeeperLink::EndLost(const ProcessKey& key, const std::string& why) {
  ProcessRecords& records = processes_.at(key).records;
  Seal(key);
  if (!records.exit) {
    keeper::ExitReport lost;
    lost.process = key;
    lost.cause = ExitCause::kKeeperLost;
    lost.signal = SIGKILL;
    lost.ended_wall_ns = keeper::WallNow_ns();
    if (records.started) {
      lost.ran_ms =
          absl::ToInt64Milliseconds(RanSoFar(keeper_, *records.started));
    }
    lost.message = why;
    records.exit = lost;
  }
  records.ended = true;
  const absl::Status recorded = RecordEnded(start_.dir, *records.exit);
  if (!recorded.ok()) {
    COHORT_LOG(kWarning, "end_not_recorded", {"keeper", id_},
               {"process", key.ToString()}, {"status", recorded});
  }
}

void KeeperLink::Seal(const ProcessKey& key) {
  const std::string& log_dir = processes_.at(key).records.log_dir;
  const absl::Status sealed = SealLogs(log_dir, key.slot, key.incarnation);
  // NotFound: the keeper had not come as far as to make the directory.
  if (!sealed.ok() && !absl::IsNotFound(sealed)) {
    COHORT_LOG(kWarning, "log_not_sealed", {"keeper", id_},
               {"process", key.ToString()}, {"status", sealed});
  }
}

std::string KeeperLink::EndLeftovers() {
  LeftoverQuery query;
  query.place = start_.place;
  if (keeper_) query.cgroup = keeper_->cgroup;
  for (const auto& [key, process] : processes_) {
    const auto& started = process.records.started;
    if (!keeper_ || !started || process.records.ended) continue;
    query.leaders.push_back({started->pid,
                             static_cast<uint64_t>(started->start_time),
                             keeper_->boot_id});
  }
  if (children_) query.children = children_();
  const absl::StatusOr<int> killed = KillLeftovers(query, kLeftoversTimeout);
  RemoveCgroup(query.cgroup);
  return killed.ok() ? "" : absl::StrCat("; ", killed.status().message());
}

}  // namespace cohort::worker

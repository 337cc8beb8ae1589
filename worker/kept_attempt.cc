#include "worker/kept_attempt.h"

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
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/log.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "worker/keeper/proc.h"
#include "worker/keeper/record.h"
#include "worker/keeper_spawn.h"
#include "worker/log_reader.h"
#include "worker/process_tree.h"

namespace cohort::worker {
namespace {

using keeper::UniqueFd;

// A keeper that cannot be reached is dying (milliseconds) or its socket is gone
// (for good).
constexpr absl::Duration kRetryFirst = absl::Milliseconds(5);
constexpr absl::Duration kRetryMax = absl::Seconds(1);
// Only a process in uninterruptible sleep takes longer.
constexpr absl::Duration kLeftoversTimeout = absl::Seconds(2);
// After its last event a keeper has nothing left to do.
constexpr int kLeaveTimeout_ms = 2000;
// From the time to kill to the end of it all; a keeper that takes longer is
// stopped, stuck on a disk, or waits for a process that cannot die.
constexpr absl::Duration kPatience = absl::Seconds(5);

// Whether a directory in which an attempt began can still tell of it.
absl::Status Readable(const absl::StatusOr<AttemptSurvey>& survey) {
  if (!survey.ok()) return survey.status();
  switch (survey->phase) {
    case AttemptPhase::kNoSpec:
      return absl::NotFoundError("its attempt directory has lost its spec");
    case AttemptPhase::kSpecDamaged:
      return absl::DataLossError(survey->message);
    default:
      return absl::OkStatus();
  }
}

// From a rank's start until now; zero when it started before the machine did.
absl::Duration RanSoFar(const AttemptSurvey& survey,
                        const keeper::StartedReport& started) {
  if (!survey.keeper || survey.keeper->boot_id != keeper::ReadBootId()) {
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

KeptAttempt::KeptAttempt(std::string name, std::string dir,
                         std::string logs_dir,
                         const std::string& node_runtime_dir, EventSink sink,
                         AskChildren children)
    : name_(std::move(name)),
      dir_(std::move(dir)),
      logs_dir_(std::move(logs_dir)),
      sink_(std::move(sink)),
      children_(std::move(children)),
      runtime_dir_(absl::StrCat(node_runtime_dir, "/", name_)),
      retry_delay_(kRetryFirst) {}

KeptAttempt::~KeptAttempt() {
  // Do not leave a zombie of a keeper that is just leaving.
  if (ended()) AwaitKeeper();
}

void KeptAttempt::Start(const std::string& program, const KeeperSpec& spec,
                        absl::Duration deadline,
                        KeeperHost::DoneCallback done) {
  state_ = State::kBorn;
  start_done_ = std::move(done);
  wake_at_ = deadline;
  const absl::Status status = Spawn(program, spec);
  if (!status.ok()) FinishStart(status);
}

absl::Status KeptAttempt::Spawn(const std::string& program,
                                const KeeperSpec& spec) {
  heard_.spec = spec;
  runtime_dir_ = spec.runtime_dir;
  for (const keeper::RankSpec& rank : spec.ranks) heard_.ranks[rank.rank];
  absl::StatusOr<NewAttemptDir> made = MakeAttemptDir(dir_, spec);
  if (!made.ok()) return made.status();
  const absl::Status status = [&]() -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(const UniqueFd listener,
                            ListenForKeeper(spec.runtime_dir));
    COHORT_ASSIGN_OR_RETURN(connection_, ConnectToKeeper(spec.runtime_dir));
    COHORT_ASSIGN_OR_RETURN(
        KeeperProcess process,
        SpawnKeeper(program, dir_, {name_, runtime_dir_}, *made, listener));
    pidfd_ = std::move(process.pidfd);
    keeper_pid_ = process.pid;
    return absl::OkStatus();
  }();
  if (!status.ok()) RemoveAttemptDir(dir_).IgnoreError();
  return status;
}

void KeptAttempt::FinishStart(const absl::Status& status) {
  wake_at_ = absl::InfiniteDuration();
  state_ = status.ok() ? State::kRunning : State::kEnded;
  failed_ = !status.ok();
  if (failed_) connection_.Reset();
  std::exchange(start_done_, nullptr)(status);
  COHORT_LOG(kInfo, "keeper_start", {"attempt", name_}, {"status", status});
}

absl::StatusOr<AdoptedAttempt> KeptAttempt::Adopt() {
  absl::StatusOr<AttemptSurvey> survey = Survey();
  if (!survey.ok()) {
    if (absl::IsNotFound(survey.status())) return survey.status();
    // With its keeper, which has the mark.
    return absl::UnavailableError(
        absl::StrCat(survey.status().message(), EndLeftovers({})));
  }
  adopted_ = *std::move(survey);
  heard_ = *adopted_;
  AdoptedAttempt adopted;
  adopted.phase = adopted_->phase;
  adopted.message = adopted_->message;
  if (!adopted_->spec.runtime_dir.empty()) {
    runtime_dir_ = adopted_->spec.runtime_dir;
  }
  switch (adopted.phase) {
    case AttemptPhase::kSpecDamaged:
      if (!adopted_->locked) adopted.message += EndLeftovers(*adopted_);
      [[fallthrough]];
    case AttemptPhase::kNoSpec:
    case AttemptPhase::kNotStarted:
      state_ = State::kEnded;
      break;
    case AttemptPhase::kRunning:
    case AttemptPhase::kKeeperLost:
    case AttemptPhase::kDone:
      state_ = State::kRunning;
  }
  COHORT_LOG(kInfo, "keeper_adopt", {"attempt", name_},
             {"phase", static_cast<int>(adopted.phase)},
             {"message", adopted.message});
  return adopted;
}

void KeptAttempt::TellStory() {
  const std::optional<AttemptSurvey> survey = std::exchange(adopted_, {});
  if (!ended()) Follow(*survey);
}

void KeptAttempt::Stop(absl::Duration kill_at) {
  if (ended() || (kill_at_ && *kill_at_ <= kill_at)) return;
  kill_at_ = kill_at;
  patience_ends_ = kill_at + kPatience;
  SendStop();
}

void KeptAttempt::SendStop() {
  if (!kill_at_ || !connection_) return;
  const absl::Duration grace =
      std::max(*kill_at_ - MonotonicNow(), absl::ZeroDuration());
  const std::string packet =
      keeper::Encode(keeper::StopCommand{absl::ToInt64Milliseconds(grace)});
  // Failing means a broken connection: sent again on the next one.
  send(connection_.get(), packet.data(), packet.size(), MSG_NOSIGNAL);
}

void KeptAttempt::OnConnectionReady() {
  while (connection_) {
    char buffer[keeper::kPacketBytesMax];
    const ssize_t n = recv(connection_.get(), buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      connection_.Reset();
      // A newborn that hangs up is dying: its pidfd says more.
      if (state_ == State::kRunning) LookAgain();
      return;
    }
    OnPacket(std::string(buffer, static_cast<size_t>(n)));
  }
}

void KeptAttempt::OnPacket(const std::string& bytes) {
  const std::string kind = keeper::RecordKind(bytes);
  std::string error;
  if (kind == keeper::kKeeperKind) {
    const auto hello = keeper::ParseKeeper(bytes, &error);
    if (hello) return OnHello(*hello);
  } else if (kind == keeper::kStartedKind) {
    const auto started = keeper::ParseStarted(bytes, &error);
    if (started) {
      heard_.ranks[started->rank].started = started;
      return TellStarted(*started);
    }
  } else if (kind == keeper::kExitKind) {
    const auto exited = keeper::ParseExit(bytes, &error);
    if (exited) {
      heard_.ranks[exited->rank].exit = exited;
      return TellExited(exited->rank, ToExitStatus(*exited));
    }
  } else if (kind == keeper::kDoneKind) {
    if (keeper::ParseDone(bytes, &error)) return TellEnd(AllDone{});
  }
  COHORT_LOG(kWarning, "keeper_packet_refused", {"attempt", name_},
             {"kind", kind}, {"error", error});
}

void KeptAttempt::OnHello(const keeper::KeeperReport& hello) {
  retry_delay_ = kRetryFirst;
  heard_.keeper = hello;
  COHORT_LOG(kInfo, "keeper_hello", {"attempt", name_}, {"pid", hello.pid},
             {"cgroup", hello.cgroup},
             {"no_cgroup_because", hello.cgroup_missing});
  if (!pidfd_) WatchKeeper(hello);
  if (start_done_) FinishStart(absl::OkStatus());
}

void KeptAttempt::WatchKeeper(const keeper::KeeperReport& report) {
  absl::StatusOr<int> pidfd = OpenPidfd(
      {report.pid, static_cast<uint64_t>(report.start_time), report.boot_id});
  // Gone already: the connection's end leads to the same look.
  keeper_died_ = absl::IsNotFound(pidfd.status());
  if (pidfd.ok()) pidfd_ = UniqueFd(*pidfd);
}

void KeptAttempt::OnPidfdReady() {
  // What it said before it ended is still in the socket.
  OnConnectionReady();
  const std::string how = Reap();
  if (children_) ReapOrphans(children_());
  if (state_ == State::kBorn) {
    absl::Status error = start_error_;
    if (error.ok()) {
      const std::string words = ReadKeeperLog(dir_);
      error = absl::InternalError(absl::StrCat(
          "the keeper of attempt ", name_, " ended before it took its spec: ",
          words.empty() ? absl::StrCat(how, " and no word in ", dir_) : words));
    }
    RemoveAttemptDir(dir_).IgnoreError();
    FinishStart(error);
  } else if (state_ == State::kRunning) {
    keeper_died_ = true;
    retry_delay_ = kRetryFirst;
    LookAgain();
  }
}

std::string KeptAttempt::Reap() {
  siginfo_t ended{};
  // Fails for one that an earlier daemon started: not our child.
  waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(pidfd_.get()),
         &ended, WEXITED | WNOHANG);
  pidfd_.Reset();
  keeper_pid_ = 0;
  return absl::StrCat(ended.si_code == CLD_EXITED ? "status " : "signal ",
                      ended.si_status);
}

void KeptAttempt::AwaitKeeper() {
  if (!pidfd_) return;
  pollfd leaving = {pidfd_.get(), POLLIN, 0};
  poll(&leaving, 1, kLeaveTimeout_ms);
  Reap();
}

void KeptAttempt::KillKeeper() {
  patience_ends_ = absl::InfiniteDuration();
  COHORT_LOG(kWarning, "keeper_killed", {"attempt", name_},
             {"reason", "its ranks have not ended in time"});
  syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
}

void KeptAttempt::OnWake() {
  if (MonotonicNow() >= patience_ends_) return KillKeeper();
  wake_at_ = absl::InfiniteDuration();
  if (state_ == State::kBorn) {
    start_error_ = absl::DeadlineExceededError(absl::StrCat(
        "the keeper of attempt ", name_, " did not take its spec in time"));
    syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
  } else if (state_ == State::kRunning) {
    LookAgain();
  }
}

void KeptAttempt::LookAgain() {
  const absl::StatusOr<AttemptSurvey> survey = Survey();
  const absl::Status readable = Readable(survey);
  if (readable.ok()) return Follow(*survey);
  if (!std::exchange(told_unreadable_, true)) {
    COHORT_LOG(kWarning, "attempt_directory_unreadable", {"attempt", name_},
               {"status", readable});
  }
  GoOnWithout(readable);
}

void KeptAttempt::GoOnWithout(const absl::Status& directory) {
  if (!keeper_died_) return Reconnect();
  const bool all_ended = std::all_of(
      heard_.ranks.begin(), heard_.ranks.end(),
      [](const auto& rank) { return rank.second.exit.has_value(); });
  // It may know more as soon as it can be read, as without free descriptors.
  const bool may_come_back =
      absl::IsUnavailable(directory) && retry_delay_ < kRetryMax;
  if (!all_ended && may_come_back) return TryLater();
  heard_.message = absl::StrCat("the keeper died; ", directory.message());
  if (!all_ended) return TellLost(heard_);
  EndLeftovers(heard_);
  Seal(heard_);
  TellRecords(heard_);
  TellEnd(AllDone{});
}

void KeptAttempt::Follow(const AttemptSurvey& survey) {
  switch (survey.phase) {
    case AttemptPhase::kRunning:
      if (!pidfd_ && survey.keeper) WatchKeeper(*survey.keeper);
      return Reconnect();
    case AttemptPhase::kDone:
      // Killed just after it had written that, it had no time to do it.
      if (survey.keeper) RemoveCgroup(survey.keeper->cgroup);
      Seal(survey);
      TellRecords(survey);
      return TellEnd(AllDone{});
    case AttemptPhase::kNoSpec:
    case AttemptPhase::kSpecDamaged:
    case AttemptPhase::kNotStarted:
    case AttemptPhase::kKeeperLost:
      return TellLost(survey);
  }
}

void KeptAttempt::Reconnect() {
  if (connection_) return;
  absl::StatusOr<UniqueFd> connection = ConnectToKeeper(runtime_dir_);
  if (connection.ok()) {
    connection_ = *std::move(connection);
    return SendStop();
  }
  // Its socket is gone but it lives: a signal is the other way to stop it.
  if (kill_at_ && pidfd_) {
    const int signal = *kill_at_ <= MonotonicNow() ? SIGKILL : SIGTERM;
    syscall(SYS_pidfd_send_signal, pidfd_.get(), signal, nullptr, 0);
  }
  TryLater();
}

void KeptAttempt::TryLater() {
  wake_at_ = MonotonicNow() + retry_delay_;
  retry_delay_ = std::min(2 * retry_delay_, kRetryMax);
}

void KeptAttempt::TellRecords(const AttemptSurvey& survey) {
  std::multimap<int64_t, const keeper::ExitReport*> exits;
  for (const auto& [rank, records] : survey.ranks) {
    if (records.started) TellStarted(*records.started);
    if (records.exit) {
      exits.emplace(records.exit->ended_wall_ns, &*records.exit);
    }
  }
  // In the order that they happened: the first failure is the one that counts.
  for (const auto& [ended, exit] : exits) {
    TellExited(exit->rank, ToExitStatus(*exit));
  }
}

void KeptAttempt::TellStarted(const keeper::StartedReport& report) {
  if (told_started_.insert(report.rank).second) {
    sink_(RankStarted{report.rank, report.pid});
  }
}

void KeptAttempt::TellExited(int rank, const ExitStatus& status) {
  if (told_exited_.insert(rank).second) sink_(RankExited{rank, status});
}

void KeptAttempt::TellLost(const AttemptSurvey& survey) {
  const std::string why = survey.message.empty()
                              ? "the keeper died before it started a rank"
                              : survey.message;
  const std::string message = absl::StrCat(why, EndLeftovers(survey));
  TellRecords(survey);
  Seal(survey);
  for (const auto& [rank, records] : survey.ranks) {
    ExitStatus status;
    status.signal = SIGKILL;
    status.cause = ExitStatus::Cause::kKeeperLost;
    status.message = why;
    if (records.started) {
      status.ran = RanSoFar(survey, *records.started);
    }
    TellExited(rank, status);
  }
  COHORT_LOG(kWarning, "keeper_lost", {"attempt", name_}, {"message", message});
  TellEnd(KeeperLost{message});
}

absl::StatusOr<AttemptSurvey> KeptAttempt::Survey() const {
  COHORT_ASSIGN_OR_RETURN(AttemptSurvey survey, SurveyAttempt(dir_));
  // The spec has its name of when the attempt began; the keeper follows it.
  const std::filesystem::path told = survey.spec.log_dir;
  if (!logs_dir_.empty() && !told.empty()) {
    survey.spec.log_dir = std::filesystem::path(logs_dir_) /
                          told.parent_path().filename() / told.filename();
  }
  return survey;
}

void KeptAttempt::Seal(const AttemptSurvey& survey) {
  for (const auto& [rank, records] : survey.ranks) {
    const absl::Status sealed = SealLogs(survey.spec.log_dir, rank);
    // NotFound: the keeper had not come as far as to make the directory.
    if (!sealed.ok() && !absl::IsNotFound(sealed)) {
      COHORT_LOG(kWarning, "log_not_sealed", {"attempt", name_}, {"rank", rank},
                 {"status", sealed});
    }
  }
}

void KeptAttempt::TellEnd(const KeeperEvent& event) {
  state_ = State::kEnded;
  wake_at_ = absl::InfiniteDuration();
  patience_ends_ = absl::InfiniteDuration();
  connection_.Reset();
  sink_(event);
}

LeftoverQuery KeptAttempt::QueryFor(const AttemptSurvey& survey) const {
  LeftoverQuery query;
  query.part = {name_, runtime_dir_};
  if (!survey.keeper) return query;
  query.cgroup = survey.keeper->cgroup;
  for (const auto& [rank, records] : survey.ranks) {
    if (!records.started) continue;
    query.ranks.push_back({records.started->pid,
                           static_cast<uint64_t>(records.started->start_time),
                           survey.keeper->boot_id});
  }
  return query;
}

std::string KeptAttempt::EndLeftovers(const AttemptSurvey& survey) {
  LeftoverQuery query = QueryFor(survey);
  if (children_) {
    // It lets go of the lock just before it lets go of its children.
    AwaitKeeper();
    query.children = children_();
  }
  const absl::StatusOr<int> killed = KillLeftovers(query, kLeftoversTimeout);
  if (survey.keeper) RemoveCgroup(survey.keeper->cgroup);
  return killed.ok() ? "" : absl::StrCat("; ", killed.status().message());
}

}  // namespace cohort::worker

#include "trainer/comm/testing/process_gang.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "common/real_clock.h"
#include "common/status_macros.h"
#include "trainer/comm/shm_comm.h"
#include "trainer/comm/testing/exchange_over.h"

namespace cohort::trainer {
namespace {

// How a line begins: what the body told, or how it ended.
constexpr char kTold = 't';
constexpr char kEnded = 'e';

void WriteLine(int fd, char kind, absl::string_view text) {
  const std::string line =
      absl::StrCat(absl::string_view(&kind, 1),
                   absl::StrReplaceAll(text, {{"\n", " "}}), "\n");
  // Up to PIPE_BUF bytes go in whole or not at all; a starter that is gone
  // wants no more.
  const ssize_t written = write(fd, line.data(), line.size());
  static_cast<void>(written);
}

absl::Status RunBody(const std::string& directory, int rank, int fd,
                     const ProcessGang::Body& body) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<shm::ArenaPlace> place,
                          shm::ArenaPlace::Claim(directory, rank));
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Comm> control,
                          ShmComm::Create(*place, ProcessGang::kEpoch));
  ProcessGang::Place mine = {
      .control = *control,
      .exchange = ExchangeOver(*control),
      .tell = [fd](absl::string_view text) { WriteLine(fd, kTold, text); }};
  return body(mine);
}

}  // namespace

ProcessGang::ProcessGang(std::string directory)
    : directory_(std::move(directory)) {}

absl::StatusOr<std::unique_ptr<ProcessGang>> ProcessGang::Start(
    int world, const Body& body) {
  std::string directory = "/dev/shm/cohort-gang-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) {
    return absl::ErrnoToStatus(errno, directory);
  }
  std::unique_ptr<ProcessGang> gang(new ProcessGang(directory));
  COHORT_ASSIGN_OR_RETURN(
      gang->arena_, shm::Arena::Create(directory, {.attempt = "process-gang",
                                                   .epoch = kEpoch,
                                                   .local_world = world}));
  for (int rank = 0; rank < world; ++rank) {
    COHORT_RETURN_IF_ERROR(gang->StartRank(body));
  }
  return gang;
}

ProcessGang::~ProcessGang() {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    Kill(static_cast<int>(rank));
  }
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

absl::Status ProcessGang::StartRank(const Body& body) {
  int ends[2];
  if (pipe(ends) != 0) return absl::ErrnoToStatus(errno, "pipe");
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const int rank = static_cast<int>(ranks_.size());
  const pid_t parent = getpid();
  // What is buffered would be printed twice.
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid < 0) return absl::ResourceExhaustedError("fork");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    signal(SIGPIPE, SIG_IGN);
    // Or a rank that ends would not be seen while another lives.
    ranks_.clear();
    BeRank(rank, body, std::move(write_end));
  }
  ranks_.push_back({.pid = pid, .lines = std::move(read_end)});
  return absl::OkStatus();
}

void ProcessGang::BeRank(int rank, const Body& body, UniqueFd lines) {
  const absl::Status ended = RunBody(directory_, rank, lines.get(), body);
  WriteLine(lines.get(), kEnded,
            absl::StrCat(ended.raw_code(), " ", ended.message()));
  std::fflush(nullptr);
  // Nothing of the starter's is destroyed here.
  _exit(0);
}

absl::StatusOr<std::string> ProcessGang::NextLine(int rank,
                                                  absl::Duration deadline) {
  Rank& from = ranks_[rank];
  const MachineClock clock;
  const absl::Duration until = clock.Monotonic() + deadline;
  while (true) {
    if (const size_t end = from.heard.find('\n'); end != std::string::npos) {
      std::string line = from.heard.substr(0, end);
      from.heard.erase(0, end + 1);
      return line;
    }
    const absl::Duration left = until - clock.Monotonic();
    pollfd ready = {.fd = from.lines.get(), .events = POLLIN, .revents = 0};
    const int found =
        left > absl::ZeroDuration()
            ? poll(&ready, 1,
                   static_cast<int>(absl::ToInt64Milliseconds(left)) + 1)
            : 0;
    if (found < 0 && errno == EINTR) continue;
    if (found <= 0) {
      return absl::DeadlineExceededError(absl::StrCat(
          "rank ", rank, " said nothing for ", absl::FormatDuration(deadline)));
    }
    char bytes[4096];
    const ssize_t got = read(from.lines.get(), bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return absl::UnavailableError(absl::StrCat("rank ", rank, " has ended"));
    }
    from.heard.append(bytes, static_cast<size_t>(got));
  }
}

absl::StatusOr<std::string> ProcessGang::Hear(int rank,
                                              absl::Duration deadline) {
  COHORT_ASSIGN_OR_RETURN(const std::string line, NextLine(rank, deadline));
  if (line.starts_with(kTold)) return line.substr(1);
  // For End.
  ranks_[rank].heard.insert(0, line + "\n");
  return absl::UnavailableError(
      absl::StrCat("rank ", rank, " has ended: ", line.substr(1)));
}

void ProcessGang::Reap(int rank) {
  Rank& ended = ranks_[rank];
  if (ended.is_reaped) return;
  while (waitpid(ended.pid, &ended.wait_status, 0) < 0 && errno == EINTR) {
  }
  ended.is_reaped = true;
}

void ProcessGang::Kill(int rank) {
  if (ranks_[rank].is_reaped) return;
  kill(ranks_[rank].pid, SIGKILL);
  Reap(rank);
}

void ProcessGang::Stop(int rank) {
  kill(ranks_[rank].pid, SIGSTOP);
  int status = 0;
  while (waitpid(ranks_[rank].pid, &status, WUNTRACED) < 0 && errno == EINTR) {
  }
}

absl::Status ProcessGang::End(int rank, absl::Duration deadline) {
  while (true) {
    const absl::StatusOr<std::string> line = NextLine(rank, deadline);
    if (absl::IsDeadlineExceeded(line.status())) {
      Kill(rank);
      return line.status();
    }
    if (!line.ok()) break;
    if (line->starts_with(kTold)) continue;
    Reap(rank);
    const std::vector<std::string> fields =
        absl::StrSplit(line->substr(1), absl::MaxSplits(' ', 1));
    int code = 0;
    if (fields.size() != 2 || !absl::SimpleAtoi(fields[0], &code)) break;
    return absl::Status(static_cast<absl::StatusCode>(code), fields[1]);
  }
  Reap(rank);
  const int status = ranks_[rank].wait_status;
  return absl::AbortedError(
      WIFSIGNALED(status)
          ? absl::StrCat("rank ", rank, " was killed by signal ",
                         WTERMSIG(status))
          : absl::StrCat("rank ", rank, " ended with status ",
                         WEXITSTATUS(status)));
}

absl::Status ProcessGang::EndAll(absl::Duration deadline) {
  absl::Status first;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const absl::Status ended = End(static_cast<int>(rank), deadline);
    if (first.ok() && !ended.ok()) {
      first = absl::Status(ended.code(),
                           absl::StrCat("rank ", rank, ": ", ended.message()));
      // The others may wait for it.
      Revoke();
    }
  }
  return first;
}

}  // namespace cohort::trainer

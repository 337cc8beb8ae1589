#include "worker/keeper_client.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/real_clock.h"
#include "common/status_util.h"
#include "worker/attempt_dir.h"
#include "worker/keeper_spawn.h"

namespace cohort::worker {
namespace {

using keeper::UniqueFd;

// From spawn to hello; takes 2 ms on an idle node.  Below every timeout of the
// head, so that the cause is told by who knows it.
constexpr absl::Duration kStartTimeout = absl::Seconds(10);
// Of CheckProgram, during which nothing else is heard of keepers: takes 1 ms.
constexpr absl::Duration kCheckTimeout = absl::Seconds(1);

int PollTimeout_ms(absl::Duration wake_at) {
  if (wake_at == absl::InfiniteDuration()) return -1;
  const absl::Duration left =
      std::max(wake_at - MonotonicNow(), absl::ZeroDuration());
  // Rounded up: a timer that wakes early would spin until its time.
  const int64_t ms = absl::ToInt64Milliseconds(left) + 1;
  return static_cast<int>(
      std::min<int64_t>(ms, std::numeric_limits<int>::max()));
}

}  // namespace

std::string KeeperBesideThisProgram() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof(path));
  if (size <= 0) return "cohort-keeper";
  const std::string program(path, static_cast<size_t>(size));
  return absl::StrCat(program.substr(0, program.rfind('/')), "/cohort-keeper");
}

absl::StatusOr<std::unique_ptr<KeeperClient>> KeeperClient::Create(
    KeeperClientOptions options, Executor& executor, Listener listener) {
  // Keepers start in another directory than ours.
  if (options.attempts_dir.rfind('/', 0) != 0 ||
      options.keeper_program.rfind('/', 0) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("not absolute: ", options.attempts_dir, " or ",
                     options.keeper_program));
  }
  const std::string error = keeper::MakeDirectories(options.attempts_dir);
  if (!error.empty()) return absl::UnavailableError(error);
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return ErrnoStatus(errno, "make an eventfd");
  Children children;
  if (options.takes_orphans) {
    children.before = ReadChildren();
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
      return ErrnoStatus(errno, "become the parent of orphans");
    }
  }
  return absl::WrapUnique(new KeeperClient(std::move(options), executor,
                                           std::move(listener), std::move(wake),
                                           std::move(children)));
}

KeeperClient::KeeperClient(KeeperClientOptions options, Executor& executor,
                           Listener listener, UniqueFd wake, Children children)
    : options_(std::move(options)),
      executor_(executor),
      listener_(std::make_shared<Listener>(std::move(listener))),
      wake_(std::move(wake)),
      children_(std::move(children)),
      thread_([this] { RunThread(); }) {}

KeeperClient::~KeeperClient() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  Enqueue([] {});
  thread_.join();
}

void KeeperClient::Start(KeeperSpec spec, DoneCallback done) {
  Enqueue([this, spec = std::move(spec), done = std::move(done)]() mutable {
    StartNow(spec, std::move(done));
  });
}

void KeeperClient::Adopt(absl::string_view attempt, AdoptCallback done) {
  Enqueue(
      [this, attempt = std::string(attempt), done = std::move(done)]() mutable {
        AdoptNow(attempt, std::move(done));
      });
}

void KeeperClient::Stop(absl::string_view attempt, absl::Duration grace) {
  Enqueue(
      [this, attempt = std::string(attempt), kill_at = MonotonicNow() + grace] {
        const auto it = attempts_.find(attempt);
        if (it != attempts_.end()) it->second->Stop(kill_at);
      });
}

void KeeperClient::Kill(absl::string_view attempt) {
  Stop(attempt, absl::ZeroDuration());
}

void KeeperClient::Remove(absl::string_view attempt, DoneCallback done) {
  Enqueue(
      [this, attempt = std::string(attempt), done = std::move(done)]() mutable {
        Answer(std::move(done), RemoveNow(attempt));
      });
}

void KeeperClient::CheckProgram(DoneCallback done) {
  // On the client's thread, which alone knows what its children are.
  Enqueue([this, done = std::move(done)]() mutable {
    Answer(std::move(done),
           CheckKeeper(options_.keeper_program, kCheckTimeout, left_check_));
  });
}

void KeeperClient::Enqueue(Task task) {
  {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  // Cannot fail short of 2^64 unread wake-ups.
  eventfd_write(wake_.get(), 1);
}

std::string KeeperClient::DirOf(const std::string& attempt) const {
  return absl::StrCat(options_.attempts_dir, "/", attempt);
}

void KeeperClient::RunThread() {
  while (RunTasks()) Wait();
}

bool KeeperClient::RunTasks() {
  std::vector<Task> tasks;
  {
    MutexLock lock(mutex_);
    if (stopping_) return false;
    tasks.swap(tasks_);
  }
  for (Task& task : tasks) {
    std::move(task)();
    ForgetFailed();
  }
  return true;
}

void KeeperClient::ForgetFailed() {
  std::erase_if(attempts_,
                [](const auto& entry) { return entry.second->failed(); });
}

void KeeperClient::Wait() {
  absl::Duration wake_at = absl::InfiniteDuration();
  std::vector<pollfd> files = {{wake_.get(), POLLIN, 0}};
  std::vector<KeptAttempt*> attempts;
  for (const auto& [name, attempt] : attempts_) {
    attempts.push_back(attempt.get());
    files.push_back({attempt->connection(), POLLIN, 0});
    files.push_back({attempt->pidfd(), POLLIN, 0});
    wake_at = std::min(wake_at, attempt->wake_at());
  }
  poll(files.data(), files.size(), PollTimeout_ms(wake_at));
  eventfd_t ignored = 0;
  if (files[0].revents != 0) eventfd_read(wake_.get(), &ignored);
  for (size_t i = 0; i < attempts.size(); ++i) {
    // Each may change the other's descriptor: look at what it is now.
    KeptAttempt& attempt = *attempts[i];
    if (files[1 + 2 * i].revents != 0) attempt.OnConnectionReady();
    if (files[2 + 2 * i].revents != 0 && attempt.pidfd() >= 0) {
      attempt.OnPidfdReady();
    }
    if (MonotonicNow() >= attempt.wake_at()) attempt.OnWake();
  }
  ForgetFailed();
}

std::unique_ptr<KeptAttempt> KeeperClient::MakeAttempt(
    const std::string& attempt) {
  KeptAttempt::AskChildren children;
  if (options_.takes_orphans) children = [this] { return ChildrenNow(); };
  return std::make_unique<KeptAttempt>(
      attempt, DirOf(attempt), options_.logs_dir, options_.runtime_dir,
      [this, attempt](const KeeperEvent& event) {
        executor_.Post([listener = listener_, attempt, event] {
          (*listener)(attempt, event);
        });
      },
      std::move(children));
}

Children KeeperClient::ChildrenNow() const {
  Children children = children_;
  for (const auto& [name, attempt] : attempts_) {
    if (attempt->keeper_pid() != 0) children.own.insert(attempt->keeper_pid());
  }
  if (left_check_.pid != 0) children.own.insert(left_check_.pid);
  return children;
}

template <typename Callback, typename Result>
void KeeperClient::Answer(Callback done, Result result) {
  executor_.Post(
      [done = std::move(done), result = std::move(result)]() mutable {
        std::move(done)(std::move(result));
      });
}

void KeeperClient::StartNow(const KeeperSpec& spec, DoneCallback done) {
  const std::string wrong = keeper::Validate(spec);
  if (!wrong.empty()) {
    return Answer(std::move(done), absl::InvalidArgumentError(absl::StrCat(
                                       "attempt cannot be started: ", wrong)));
  }
  if (attempts_.count(spec.attempt) != 0) {
    return Answer(std::move(done),
                  absl::AlreadyExistsError(absl::StrCat(
                      "attempt ", spec.attempt, " was started already")));
  }
  std::unique_ptr<KeptAttempt>& attempt = attempts_[spec.attempt];
  attempt = MakeAttempt(spec.attempt);
  attempt->Start(options_.keeper_program, spec, MonotonicNow() + kStartTimeout,
                 [this, done = std::move(done)](absl::Status status) mutable {
                   Answer(std::move(done), std::move(status));
                 });
}

void KeeperClient::AdoptNow(const std::string& attempt, AdoptCallback done) {
  if (attempts_.count(attempt) != 0) {
    return Answer(
        std::move(done),
        absl::StatusOr<AdoptedAttempt>(absl::AlreadyExistsError(
            absl::StrCat("attempt ", attempt, " is started or adopted"))));
  }
  std::unique_ptr<KeptAttempt> kept = MakeAttempt(attempt);
  absl::StatusOr<AdoptedAttempt> adopted =
      keeper::IsAttemptId(attempt)
          ? kept->Adopt()
          : absl::NotFoundError(absl::StrCat("no attempt ", attempt));
  const bool follow = adopted.ok() && !kept->ended();
  Answer(std::move(done), std::move(adopted));
  if (!follow) return;
  kept->TellStory();
  attempts_[attempt] = std::move(kept);
}

absl::Status KeeperClient::RemoveNow(const std::string& attempt) {
  if (!keeper::IsAttemptId(attempt)) return absl::OkStatus();
  const auto running = absl::FailedPreconditionError(
      absl::StrCat("attempt ", attempt, " is still running: Stop it first"));
  const auto it = attempts_.find(attempt);
  if (it != attempts_.end() && !it->second->ended()) return running;
  const absl::StatusOr<AttemptSurvey> survey = SurveyAttempt(DirOf(attempt));
  // It may live: its directory is not removed under it.
  if (!survey.ok() && !absl::IsNotFound(survey.status())) {
    return survey.status();
  }
  const bool alive = survey.ok() && survey->locked;
  // A keeper that has written `done` has nothing left to write here.
  if (alive && survey->phase != AttemptPhase::kDone) return running;
  if (it != attempts_.end()) attempts_.erase(it);
  return RemoveAttemptDir(DirOf(attempt));
}

}  // namespace cohort::worker

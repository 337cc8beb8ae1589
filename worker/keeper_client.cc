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

#include "common/gang_limits.h"
#include "common/real_clock.h"
#include "common/status_util.h"
#include "worker/keeper_dir.h"
#include "worker/keeper_spawn.h"

namespace cohort::worker {
namespace {

using keeper::UniqueFd;

// What the head places on a node of one attempt.
static_assert(kProcessesPerNodeMax <= keeper::kProcessesMax);

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
  if (options.keepers_dir.rfind('/', 0) != 0 ||
      options.keeper_program.rfind('/', 0) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "not absolute: ", options.keepers_dir, " or ", options.keeper_program));
  }
  const std::string error = keeper::MakeDirectories(options.keepers_dir);
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

void KeeperClient::Begin(std::string keeper, std::vector<ProcessSpec> specs,
                         DoneCallback done) {
  Enqueue([this, keeper = std::move(keeper), specs = std::move(specs),
           done = std::move(done)]() mutable {
    BeginNow(keeper, specs, std::move(done));
  });
}

void KeeperClient::Adopt(std::string keeper, AdoptCallback done) {
  Enqueue([this, keeper = std::move(keeper), done = std::move(done)]() mutable {
    AdoptNow(keeper, std::move(done));
  });
}

void KeeperClient::Stop(const std::string& keeper,
                        std::vector<ProcessKey> which, absl::Duration grace) {
  Enqueue([this, keeper, which = std::move(which),
           kill_at = MonotonicNow() + grace] {
    if (KeeperLink* const link = LinkOf(keeper)) link->Stop(which, kill_at);
  });
}

void KeeperClient::Kill(const std::string& keeper,
                        std::vector<ProcessKey> which) {
  Stop(keeper, std::move(which), absl::ZeroDuration());
}

void KeeperClient::Forget(const std::string& keeper,
                          std::vector<ProcessKey> which, DoneCallback done) {
  Enqueue([this, keeper, which = std::move(which),
           done = std::move(done)]() mutable {
    KeeperLink* const link = LinkOf(keeper);
    Answer(std::move(done), link != nullptr
                                ? link->Forget(which)
                                : absl::NotFoundError(absl::StrCat(
                                      "there is no keeper ", keeper)));
  });
}

void KeeperClient::Close(const std::string& keeper, DoneCallback done) {
  Enqueue([this, keeper, done = std::move(done)]() mutable {
    CloseNow(keeper, std::move(done));
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
    DropClosed();
  }
  return true;
}

void KeeperClient::DropClosed() {
  std::erase_if(links_,
                [](const auto& entry) { return entry.second->closed(); });
}

void KeeperClient::Wait() {
  absl::Duration wake_at = absl::InfiniteDuration();
  std::vector<pollfd> files = {{wake_.get(), POLLIN, 0}};
  std::vector<KeeperLink*> links;
  for (const auto& [keeper, link] : links_) {
    links.push_back(link.get());
    files.push_back({link->connection(), POLLIN, 0});
    files.push_back({link->pidfd(), POLLIN, 0});
    wake_at = std::min(wake_at, link->wake_at());
  }
  poll(files.data(), files.size(), PollTimeout_ms(wake_at));
  eventfd_t ignored = 0;
  if (files[0].revents != 0) eventfd_read(wake_.get(), &ignored);
  for (size_t i = 0; i < links.size(); ++i) {
    // Each may change the other's descriptor: look at what it is now.
    KeeperLink& link = *links[i];
    if (files[1 + 2 * i].revents != 0) link.OnConnectionReady();
    if (files[2 + 2 * i].revents != 0 && link.pidfd() >= 0) link.OnPidfdReady();
    if (MonotonicNow() >= link.wake_at()) link.OnWake();
  }
  DropClosed();
}

KeeperStart KeeperClient::StartOf(const std::string& keeper) const {
  return {.program = options_.keeper_program,
          .dir = absl::StrCat(options_.keepers_dir, "/", keeper),
          .place = KeeperPlace(options_.runtime_dir, keeper),
          .cgroup_parent = options_.cgroup_parent,
          .idle_timeout = options_.keeper_idle_timeout,
          .begin_timeout = options_.begin_timeout};
}

std::unique_ptr<KeeperLink> KeeperClient::MakeLink(const std::string& keeper) {
  KeeperLink::AskChildren children;
  if (options_.takes_orphans) children = [this] { return ChildrenNow(); };
  return std::make_unique<KeeperLink>(
      keeper, StartOf(keeper), options_.logs_dir,
      [this, keeper](const KeeperEvent& event) {
        executor_.Post([listener = listener_, keeper, event] {
          (*listener)(keeper, event);
        });
      },
      std::move(children));
}

KeeperLink* KeeperClient::LinkOf(const std::string& keeper) const {
  const auto it = links_.find(keeper);
  return it == links_.end() ? nullptr : it->second.get();
}

Children KeeperClient::ChildrenNow() const {
  Children children = children_;
  for (const auto& [keeper, link] : links_) {
    if (link->keeper_pid() != 0) children.own.insert(link->keeper_pid());
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

void KeeperClient::BeginNow(const std::string& keeper,
                            const std::vector<ProcessSpec>& specs,
                            DoneCallback done) {
  std::string wrong;
  if (!keeper::IsKeeperId(keeper)) {
    wrong = absl::StrCat("invalid keeper id \"", keeper, "\"");
  } else if (specs.size() > keeper::kProcessesMax) {
    wrong = absl::StrCat(specs.size(), " processes; a keeper runs at most ",
                         keeper::kProcessesMax);
  }
  for (const ProcessSpec& spec : specs) {
    if (wrong.empty()) wrong = keeper::Validate(spec);
  }
  if (!wrong.empty()) {
    return Answer(std::move(done), absl::InvalidArgumentError(wrong));
  }
  auto answer = [this, done = std::move(done)](absl::Status status) mutable {
    Answer(std::move(done), std::move(status));
  };
  KeeperLink* link = LinkOf(keeper);
  if (link == nullptr) {
    std::unique_ptr<KeeperLink> made = MakeLink(keeper);
    const absl::StatusOr<AdoptedKeeper> adopted = made->Adopt();
    if (!adopted.ok() && !absl::IsNotFound(adopted.status())) {
      return std::move(answer)(adopted.status());
    }
    link = (links_[keeper] = std::move(made)).get();
    if (adopted.ok()) link->FollowAdopted();
  }
  link->Begin(specs, std::move(answer));
}

void KeeperClient::AdoptNow(const std::string& keeper, AdoptCallback done) {
  absl::StatusOr<AdoptedKeeper> adopted =
      absl::NotFoundError(absl::StrCat("no keeper ", keeper));
  if (LinkOf(keeper) != nullptr) {
    adopted = absl::AlreadyExistsError(
        absl::StrCat("keeper ", keeper, " was begun or adopted here"));
    return Answer(std::move(done), std::move(adopted));
  }
  std::unique_ptr<KeeperLink> link = MakeLink(keeper);
  if (keeper::IsKeeperId(keeper)) adopted = link->Adopt();
  const bool follow = adopted.ok();
  Answer(std::move(done), std::move(adopted));
  if (!follow) return;
  (links_[keeper] = std::move(link))->FollowAdopted();
}

void KeeperClient::CloseNow(const std::string& keeper, DoneCallback done) {
  if (KeeperLink* const link = LinkOf(keeper)) {
    return link->Close([this, done = std::move(done)](absl::Status s) mutable {
      Answer(std::move(done), std::move(s));
    });
  }
  const KeeperStart start = StartOf(keeper);
  const absl::StatusOr<KeeperSurvey> survey = SurveyKeeper(start.dir);
  absl::Status status = survey.status();
  // It may live: its directory is not removed under it.
  if (survey.ok() && survey->locked) {
    status = absl::FailedPreconditionError(
        absl::StrCat("keeper ", keeper, " lives and was not adopted"));
  }
  if (absl::IsNotFound(status)) status = absl::OkStatus();
  if (status.ok() && keeper::IsKeeperId(keeper)) {
    status = RemoveKeeperDir(start.dir);
    status.Update(RemoveKeeperDir(start.place));
  }
  Answer(std::move(done), std::move(status));
}

}  // namespace cohort::worker

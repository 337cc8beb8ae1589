#include "worker/keeper/child.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "worker/keeper/proc.h"

namespace cohort::keeper {
namespace {

// Fewer wake-ups for a process that prints much; what the kernel allows a user.
constexpr int kPipeBytes = 1 << 20;

// What a shell searches when PATH is not set.
// Of a program that is open for writing: 2 s.
constexpr int kBusyTriesMax = 400;
constexpr int kBusyWaitMs = 5;

constexpr char kDefaultPath[] = "/usr/local/bin:/usr/bin:/bin";

// What RaiseOwnFileLimit found; the children's.
rlimit inherited_file_limit = {RLIM_INFINITY, RLIM_INFINITY};
bool file_limit_raised = false;

struct PipePair {
  UniqueFd read;
  UniqueFd write;
};

bool MakePipe(PipePair* made) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return false;
  made->read = UniqueFd(fds[0]);
  made->write = UniqueFd(fds[1]);
  // Our end only: the process's has to block.
  return fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0;
}

std::vector<std::string> MarkedEnvironment(const ProcessSpec& spec,
                                           const std::string& place) {
  const std::pair<std::string, std::string> marks[] = {
      {kAttemptVariable, spec.attempt},
      {kPlaceVariable, place},
      {kProcessVariable, spec.key().ToString()}};
  std::vector<std::string> environment;
  for (const std::string& variable : spec.env) {
    const std::string name = variable.substr(0, variable.find('='));
    if (std::none_of(
            std::begin(marks), std::end(marks),
            [&name](const auto& mark) { return mark.first == name; })) {
      environment.push_back(variable);
    }
  }
  for (const auto& [name, value] : marks) {
    environment.push_back(name + "=" + value);
  }
  return environment;
}

std::vector<char*> Pointers(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) {
    pointers.push_back(const_cast<char*>(word.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

// The child's side, from fork to exec.  Never returns.
class Child {
 public:
  Child(const ProcessSpec& spec, const std::string& place, int failure_pipe)
      : spec_(spec),
        environment_(MarkedEnvironment(spec, place)),
        failure_pipe_(failure_pipe) {}

  // `cgroup`: as in StartChild, -1 for one that was made in it.
  [[noreturn]] void Run(pid_t keeper, int cgroup, int stdout_pipe,
                        int stderr_pipe) {
    DieWithKeeper(keeper);
    setsid();
    if (cgroup >= 0) Enter(cgroup);
    ResetSignals();
    ConnectStdio(stdout_pipe, stderr_pipe);
    if (file_limit_raised) setrlimit(RLIMIT_NOFILE, &inherited_file_limit);
    Pin();
    if (spec_.user) Become(*spec_.user, keeper);
    if (chdir(spec_.cwd.c_str()) != 0) Fail(ChildFailure::kDirectory);
    // Marked, not closed: a failing exec still has to be told.
    syscall(SYS_close_range, 3, ~0u, 1u << 2 /* CLOSE_RANGE_CLOEXEC */);
    Exec();
  }

 private:
  void DieWithKeeper(pid_t keeper) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // It may have died before the call above: then nobody would tell us.
    if (getppid() != keeper) _exit(126);
  }

  void Enter(int cgroup) {
    const int procs = openat(cgroup, "cgroup.procs", O_WRONLY | O_CLOEXEC);
    if (procs < 0 || write(procs, "0", 1) != 1) Fail(ChildFailure::kCgroup);
  }

  void ResetSignals() {
    // The kernel's struct sigaction, all zero: SIG_DFL.  Not by sigaction(3),
    // which leaves out the two signals that glibc keeps for itself; ignored
    // ones are inherited over exec and break the threads of the program.
    const uint64_t by_default[4] = {};
    for (int signal = 1; signal < NSIG; ++signal) {
      // Fails for SIGKILL and SIGSTOP.
      syscall(SYS_rt_sigaction, signal, by_default, nullptr, sizeof(uint64_t));
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
  }

  void ConnectStdio(int stdout_pipe, int stderr_pipe) {
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(stdout_pipe, 1) < 0 ||
        dup2(stderr_pipe, 2) < 0) {
      Fail(ChildFailure::kInput);
    }
  }

  // Nearness is a matter of speed: what cannot be is left as it is.
  void Pin() {
    if (spec_.cpus.empty()) return;
    cpu_set_t own;
    if (sched_getaffinity(0, sizeof(own), &own) != 0) return;
    cpu_set_t near;
    CPU_ZERO(&near);
    for (const int cpu : spec_.cpus) {
      if (cpu < CPU_SETSIZE && CPU_ISSET(cpu, &own)) CPU_SET(cpu, &near);
    }
    if (CPU_COUNT(&near) > 0) sched_setaffinity(0, sizeof(near), &near);
  }

  // For good: nothing that it runs gets other rights.
  void Become(const ProcessSpec::User& user, pid_t keeper) {
    // What it makes is its own alone, unless it says otherwise.
    umask(077);
    if (setgroups(user.groups.size(), user.groups.data()) != 0 ||
        setresgid(user.gid, user.gid, user.gid) != 0 ||
        setresuid(user.uid, user.uid, user.uid) != 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
      Fail(ChildFailure::kUser);
    }
    DieWithKeeper(keeper);  // the kernel forgets it with the old rights
  }

  [[noreturn]] void Exec() {
    const std::string& program = spec_.argv[0];
    if (program.find('/') != std::string::npos) {
      ExecFile(program);
    } else {
      SearchPath(program);
    }
    if (errno == ENOENT && !found_.empty()) Fail(ChildFailure::kInterpreter);
    Fail(ChildFailure::kProgram);
  }

  void ExecFile(const std::string& file) {
    // The worker has written it, and processes that it was forking then have it
    // open for writing until they exec.
    for (int tries = 0; tries < kBusyTriesMax; ++tries) {
      execve(file.c_str(), Pointers(spec_.argv).data(),
             Pointers(environment_).data());
      if (errno != ETXTBSY) break;
      poll(nullptr, 0, kBusyWaitMs);
    }
    const int error = errno;
    if (access(file.c_str(), F_OK) == 0) found_ = file;
    errno = error;
  }

  void SearchPath(const std::string& program) {
    std::string path = kDefaultPath;
    for (const std::string& variable : environment_) {
      if (variable.compare(0, 5, "PATH=") == 0) path = variable.substr(5);
    }
    int error = ENOENT;
    for (size_t at = 0; at <= path.size();) {
      const size_t end = std::min(path.find(':', at), path.size());
      // An empty entry is the current directory.
      const std::string dir = end == at ? "." : path.substr(at, end - at);
      ExecFile(dir + "/" + program);
      // As a shell: look on, but remember a file that may not be run.
      if (errno == EACCES) error = EACCES;
      if (errno != EACCES && errno != ENOENT && errno != ENOTDIR) return;
      if (errno == ENOENT && !found_.empty()) return;
      found_.clear();
      at = end + 1;
    }
    errno = error;
  }

  [[noreturn]] void Fail(ChildFailure::Step step) {
    ChildFailure failure;
    failure.step = step;
    failure.error = errno;
    // Fits into the empty pipe: cannot block or be cut.
    [[maybe_unused]] const ssize_t n =
        write(failure_pipe_, &failure, sizeof(failure));
    _exit(failure.exit_code());
  }

  const ProcessSpec& spec_;
  const std::vector<std::string> environment_;
  const int failure_pipe_;
  std::string found_;  // a file that is there but did not run
};

// As fork, into `cgroup`: who enters one later waits for the whole machine,
// some 15 ms.  -1 where the kernel will not.
pid_t ForkInto(int cgroup) {
  clone_args how = {};
  how.flags = CLONE_INTO_CGROUP;
  how.exit_signal = SIGCHLD;
  how.cgroup = static_cast<uint64_t>(cgroup);
  // Not by the library, which knows nothing of it: there is one thread, and the
  // child does little before its exec.
  return static_cast<pid_t>(syscall(SYS_clone3, &how, sizeof(how)));
}

}  // namespace

int ChildFailure::exit_code() const {
  return (step == kProgram || step == kInterpreter) && error == ENOENT ? 127
                                                                       : 126;
}

std::string Describe(const ChildFailure& failure, const ProcessSpec& spec) {
  const std::string reason = std::strerror(failure.error);
  const std::string cannot = "cannot run \"" + spec.argv[0] + "\": " + reason;
  switch (failure.step) {
    case ChildFailure::kPipe:
      return "cannot make pipes for the process: " + reason;
    case ChildFailure::kFork:
      return "cannot start a process: " + reason +
             " (check the limits of processes and memory)";
    case ChildFailure::kCgroup:
      return "cannot enter the process's cgroup: " + reason;
    case ChildFailure::kInput:
      return "cannot connect stdin, stdout, stderr: " + reason;
    case ChildFailure::kUser:
      return "cannot become user " + std::to_string(spec.user->uid) + ": " +
             reason;
    case ChildFailure::kDirectory:
      return "cannot enter the working directory \"" + spec.cwd +
             "\": " + reason;
    case ChildFailure::kInterpreter:
      return cannot + " (the file is there: its interpreter or loader is not)";
    case ChildFailure::kProgram:
      if (failure.error == ENOEXEC) {
        return cannot + " (a script needs a first line such as #!/bin/sh)";
      }
      if (failure.error == EACCES) {
        return cannot + " (is it a file with the execute permission?)";
      }
      return cannot;
  }
  return cannot;
}

void RaiseOwnFileLimit() {
  if (file_limit_raised ||
      getrlimit(RLIMIT_NOFILE, &inherited_file_limit) != 0) {
    return;
  }
  const rlimit raised = {inherited_file_limit.rlim_max,
                         inherited_file_limit.rlim_max};
  file_limit_raised = setrlimit(RLIMIT_NOFILE, &raised) == 0;
}

std::optional<pid_t> StartChild(const ProcessSpec& spec,
                                const std::string& place, int cgroup,
                                ChildEnds* ends, ChildFailure* failure) {
  PipePair out;
  PipePair err;
  PipePair failed;
  failure->step = ChildFailure::kPipe;
  if (!MakePipe(&out) || !MakePipe(&err) || !MakePipe(&failed)) {
    failure->error = errno;
    return std::nullopt;
  }
  fcntl(out.read.get(), F_SETPIPE_SZ, kPipeBytes);
  fcntl(err.read.get(), F_SETPIPE_SZ, kPipeBytes);
  if (spec.user) {
    // Programs open /dev/stderr, which is the pipe by its name.
    for (const int pipe : {out.write.get(), err.write.get()}) {
      if (fchown(pipe, spec.user->uid, spec.user->gid) != 0) {
        failure->error = errno;
        return std::nullopt;
      }
    }
  }
  const pid_t keeper = getpid();
  pid_t pid = cgroup >= 0 ? ForkInto(cgroup) : -1;
  const bool entered = pid >= 0;
  if (!entered) pid = fork();
  if (pid == 0) {
    Child(spec, place, failed.write.get())
        .Run(keeper, entered ? -1 : cgroup, out.write.get(), err.write.get());
  }
  if (pid < 0) {
    failure->step = ChildFailure::kFork;
    failure->error = errno;
    return std::nullopt;
  }
  ends->stdout_pipe = std::move(out.read);
  ends->stderr_pipe = std::move(err.read);
  ends->failure_pipe = std::move(failed.read);
  return pid;
}

std::optional<ChildFailure> ReadFailure(int failure_pipe, bool* closed) {
  ChildFailure failure;
  const ssize_t n = read(failure_pipe, &failure, sizeof(failure));
  *closed = n >= 0 || (errno != EAGAIN && errno != EINTR);
  if (n == static_cast<ssize_t>(sizeof(failure))) return failure;
  return std::nullopt;
}

}  // namespace cohort::keeper

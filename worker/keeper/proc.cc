#include "worker/keeper/proc.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "worker/keeper/files.h"
#include "worker/keeper/record.h"

namespace cohort::keeper {
namespace {

constexpr size_t kStatBytesMax = 4096;
// The kernel lets an environment be this large (a quarter of the stack limit).
constexpr size_t kEnvironmentBytesMax = 8 << 20;

std::string ProcPath(pid_t pid, const char* file) {
  return "/proc/" + std::to_string(pid) + "/" + file;
}

}  // namespace

std::optional<ProcessStat> ParseProcessStat(const std::string& text) {
  // The second field is the program's name in parentheses and may hold blanks
  // and parentheses itself: fields are counted from its end.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  ProcessStat stat;
  int pid = 0;
  int parent = 0;
  int group = 0;
  int session = 0;
  unsigned long long start_time = 0;
  if (std::sscanf(text.c_str(), "%d", &pid) != 1) return std::nullopt;
  const int fields = std::sscanf(
      text.c_str() + name_end + 1,
      " %c %d %d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
      "%*d %llu",
      &stat.state, &parent, &group, &session, &start_time);
  if (fields != 5) return std::nullopt;
  stat.pid = pid;
  stat.parent = parent;
  stat.group = group;
  stat.session = session;
  stat.start_time = start_time;
  return stat;
}

std::optional<ProcessStat> ReadProcessStat(pid_t pid) {
  int error = 0;
  const std::optional<std::string> text =
      ReadWhole(ProcPath(pid, "stat"), kStatBytesMax, &error);
  return text ? ParseProcessStat(*text) : std::nullopt;
}

std::map<pid_t, ProcessStat> ReadProcesses() {
  std::map<pid_t, ProcessStat> processes;
  int error = 0;
  for (const std::string& name : ListDirectory("/proc", &error)) {
    const std::optional<int64_t> pid = ParseDecimal(name);
    if (!pid) continue;
    const std::optional<ProcessStat> stat =
        ReadProcessStat(static_cast<pid_t>(*pid));
    if (stat) processes[stat->pid] = *stat;
  }
  return processes;
}

std::vector<std::string> ReadEnvironment(pid_t pid) {
  int error = 0;
  const std::optional<std::string> text =
      ReadWhole(ProcPath(pid, "environ"), kEnvironmentBytesMax, &error);
  std::vector<std::string> environment;
  if (!text) return environment;
  for (size_t at = 0; at < text->size();) {
    const size_t end = std::min(text->find('\0', at), text->size());
    environment.push_back(text->substr(at, end - at));
    at = end + 1;
  }
  return environment;
}

std::string ReadBootId() {
  int error = 0;
  const std::optional<std::string> text =
      ReadWhole("/proc/sys/kernel/random/boot_id", 128, &error);
  return text ? text->substr(0, text->find('\n')) : "";
}

std::string ValueOf(const std::vector<std::string>& environment,
                    const std::string& name) {
  const std::string prefix = name + "=";
  for (const std::string& variable : environment) {
    if (variable.compare(0, prefix.size(), prefix) == 0) {
      return variable.substr(prefix.size());
    }
  }
  return "";
}

bool SignalExactly(const ProcessStat& process, int signal) {
  // A pidfd holds on to one process; looking again after it was opened makes
  // sure that it is the right one.
  const UniqueFd pidfd(
      static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
  if (!pidfd) return false;
  const std::optional<ProcessStat> now = ReadProcessStat(process.pid);
  return now && now->start_time == process.start_time &&
         syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0) == 0;
}

std::vector<pid_t> DescendantsOf(
    pid_t ancestor, const std::map<pid_t, ProcessStat>& processes) {
  std::multimap<pid_t, pid_t> children;
  for (const auto& [pid, stat] : processes) children.emplace(stat.parent, pid);
  std::vector<pid_t> found;
  std::vector<pid_t> open = {ancestor};
  std::set<pid_t> seen = {ancestor};
  while (!open.empty()) {
    const auto [begin, end] = children.equal_range(open.back());
    open.pop_back();
    for (auto child = begin; child != end; ++child) {
      // The snapshot is not of one moment: a reused pid could close a circle.
      if (!seen.insert(child->second).second) continue;
      found.push_back(child->second);
      open.push_back(child->second);
    }
  }
  return found;
}

}  // namespace cohort::keeper

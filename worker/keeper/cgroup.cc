#include "worker/keeper/cgroup.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "worker/keeper/record.h"

namespace cohort::keeper {
namespace {

void WriteControl(const std::string& path, const std::string& value) {
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  [[maybe_unused]] const ssize_t n =
      write(fd.get(), value.data(), value.size());
}

}  // namespace

std::string Cgroup::Create(const std::string& parent, const std::string& name,
                           Cgroup* created) {
  struct statfs file_system {};
  if (statfs(parent.c_str(), &file_system) != 0) {
    return ErrnoText("look at cgroup", parent, errno);
  }
  if (file_system.f_type != CGROUP2_SUPER_MAGIC) {
    return parent + " is not a cgroup v2 directory";
  }
  const std::string path = parent + "/" + name;
  if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) {
    return ErrnoText("make cgroup", path, errno);
  }
  if (access((path + "/cgroup.procs").c_str(), W_OK) != 0) {
    return ErrnoText("use cgroup", path, errno);
  }
  created->path_ = path;
  return "";
}

void Cgroup::EnableControllersBelow() {
  if (path_.empty()) return;
  // One by one: a write that names one which is not there enables none.
  for (const char* const controller : kCgroupControllers) {
    WriteControl(path_ + "/cgroup.subtree_control",
                 std::string("+") + controller);
  }
}

void Cgroup::Limit(const Limits& limits) {
  if (path_.empty()) return;
  if (limits.memory_bytes > 0) {
    WriteControl(path_ + "/memory.max", std::to_string(limits.memory_bytes));
    WriteControl(path_ + "/memory.swap.max", "0");
    WriteControl(path_ + "/memory.oom.group", "1");
  }
  if (limits.cpu_weight > 0) {
    WriteControl(path_ + "/cpu.weight", std::to_string(limits.cpu_weight));
  }
  WriteControl(path_ + "/pids.max", std::to_string(limits.tasks));
}

UniqueFd Cgroup::Open() const {
  if (path_.empty()) return UniqueFd();
  return UniqueFd(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

void Cgroup::Kill() const {
  if (!path_.empty()) WriteControl(path_ + "/cgroup.kill", "1");
}

int64_t Cgroup::MemoryEvents(const std::string& name) const {
  if (path_.empty()) return 0;
  int error = 0;
  const std::optional<std::string> events =
      ReadWhole(path_ + "/memory.events", 4096, &error);
  const std::string key = "\n" + name + " ";
  const size_t at = events ? events->find(key) : std::string::npos;
  if (at == std::string::npos) return 0;
  const size_t number = at + key.size();
  return ParseDecimal(
             events->substr(number, events->find('\n', number) - number))
      .value_or(0);
}

void Cgroup::Remove() {
  if (!path_.empty()) rmdir(path_.c_str());
}

}  // namespace cohort::keeper

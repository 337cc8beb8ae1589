#include "worker/delegated_cgroup.h"

#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "common/status_util.h"
#include "worker/keeper/files.h"

namespace cohort::worker {
namespace {

constexpr size_t kProcBytesMax = 1 << 20;

std::string ReadProc(const std::string& path) {
  int error = 0;
  return keeper::ReadWhole(path, kProcBytesMax, &error).value_or("");
}

bool IsDelegatedBySystemd(const std::string& dir) {
  for (const char* const name : {"trusted.delegate", "user.delegate"}) {
    char value = 0;
    if (getxattr(dir.c_str(), name, &value, 1) == 1 && value == '1') {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string CgroupPathIn(const std::string& proc_cgroup) {
  for (absl::string_view line : absl::StrSplit(proc_cgroup, '\n')) {
    if (absl::ConsumePrefix(&line, "0::")) return std::string(line);
  }
  return "";
}

std::string CgroupMountIn(const std::string& mountinfo) {
  for (const absl::string_view line : absl::StrSplit(mountinfo, '\n')) {
    // id parent major:minor root mount-point options ... - type source options
    if (!absl::StrContains(line, " - cgroup2 ")) continue;
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
    if (fields.size() > 4) return std::string(fields[4]);
  }
  return "";
}

std::string OwnCgroup() {
  const std::string path = CgroupPathIn(ReadProc("/proc/self/cgroup"));
  const std::string mount = CgroupMountIn(ReadProc("/proc/self/mountinfo"));
  if (path.empty() || mount.empty()) return "";
  return path == "/" ? mount : absl::StrCat(mount, path);
}

absl::StatusOr<std::string> DelegatedCgroup() {
  const std::string dir = OwnCgroup();
  if (dir.empty()) {
    return absl::FailedPreconditionError("cgroup v2 is not mounted here");
  }
  const bool is_root = CgroupPathIn(ReadProc("/proc/self/cgroup")) == "/";
  if (getuid() == 0 && !is_root && !IsDelegatedBySystemd(dir)) {
    return absl::FailedPreconditionError(
        absl::StrCat(dir, " is not delegated to us (systemd: Delegate=yes)"));
  }
  // The only sure way to learn whether we may.
  const std::string probe = absl::StrCat(dir, "/cohort-probe-", getpid());
  if (access(absl::StrCat(dir, "/cgroup.procs").c_str(), W_OK) != 0 ||
      mkdir(probe.c_str(), 0755) != 0) {
    return absl::FailedPreconditionError(
        ErrnoStatus(errno, absl::StrCat("make cgroups in ", dir)).message());
  }
  rmdir(probe.c_str());
  return dir;
}

}  // namespace cohort::worker

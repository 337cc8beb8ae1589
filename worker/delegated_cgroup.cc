#include "worker/delegated_cgroup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "common/status_macros.h"
#include "common/status_util.h"
#include "worker/keeper/cgroup.h"
#include "worker/keeper/files.h"

namespace cohort::worker {
namespace {

constexpr size_t kProcBytesMax = 1 << 20;

// Empty when it cannot be read.
std::string ReadWhole(const std::string& path) {
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

// In its mount, without a kDaemonGroup at its end, which is told by `inside`;
// empty without cgroup v2.
std::string OwnPath(bool* inside = nullptr) {
  const std::string path = CgroupPathIn(ReadWhole("/proc/self/cgroup"));
  absl::string_view above = path;
  const bool is_inside =
      absl::ConsumeSuffix(&above, absl::StrCat("/", kDaemonGroup));
  if (inside != nullptr) *inside = is_inside;
  return is_inside && above.empty() ? "/" : std::string(above);
}

absl::Status WriteControl(const std::string& path, absl::string_view value) {
  const keeper::UniqueFd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd || write(fd.get(), value.data(), value.size()) < 0) {
    return ErrnoStatus(errno, absl::StrCat("write ", value, " to ", path));
  }
  return absl::OkStatus();
}

// Each process of `dir` into its kDaemonGroup.  One that is forked meanwhile
// is found by the next look.
absl::Status MoveProcessesBelow(const std::string& dir) {
  constexpr int kLooks = 10;
  const std::string below = absl::StrCat(dir, "/", kDaemonGroup);
  if (mkdir(below.c_str(), 0755) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("make cgroup ", below));
  }
  for (int look = 0; look < kLooks; ++look) {
    const std::string pids = ReadWhole(absl::StrCat(dir, "/cgroup.procs"));
    if (pids.empty()) return absl::OkStatus();
    for (const absl::string_view pid :
         absl::StrSplit(pids, '\n', absl::SkipEmpty())) {
      const absl::Status moved =
          WriteControl(absl::StrCat(below, "/cgroup.procs"), pid);
      if (!moved.ok() && !absl::IsNotFound(moved)) return moved;
    }
  }
  return absl::UnavailableError(
      absl::StrCat("processes keep on being started in ", dir));
}

// FailedPrecondition, with the reason, where `dir` does not let groups below it
// have the controllers.
absl::Status LetControllersBelow(const std::string& dir) {
  const std::string missing =
      ControllersMissing(ReadWhole(absl::StrCat(dir, "/cgroup.controllers")));
  if (!missing.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        dir, " has no cgroup v2 controllers for ", missing,
        " (cgroup v1 has them, or the group above does not pass them on)"));
  }
  const std::string control = absl::StrCat(dir, "/cgroup.subtree_control");
  if (ControllersMissing(ReadWhole(control)).empty()) return absl::OkStatus();
  bool inside = false;
  OwnPath(&inside);
  if (!inside && absl::EndsWith(dir, ".service")) {
    return absl::FailedPreconditionError(absl::StrCat(
        "systemd could not start a service again whose group ", dir,
        " has controllers below (set DelegateSubgroup=", kDaemonGroup,
        ", or let systemd-run --scope start the worker)"));
  }
  // The root of the machine has no such rule.
  if (access(absl::StrCat(dir, "/cgroup.type").c_str(), F_OK) == 0) {
    COHORT_RETURN_IF_ERROR(MoveProcessesBelow(dir));
  }
  return WriteControl(control, "+memory +cpu +pids");
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

std::string ControllersMissing(const std::string& controllers) {
  const std::set<std::string> there =
      absl::StrSplit(controllers, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  std::vector<std::string> missing;
  for (const char* const controller : keeper::kCgroupControllers) {
    if (!there.contains(controller)) missing.push_back(controller);
  }
  return absl::StrJoin(missing, ", ");
}

std::string OwnCgroup() {
  const std::string path = OwnPath();
  const std::string mount = CgroupMountIn(ReadWhole("/proc/self/mountinfo"));
  if (path.empty() || mount.empty()) return "";
  return absl::StrCat(mount, path == "/" ? "" : path);
}

absl::StatusOr<std::string> DelegatedCgroup() {
  const std::string dir = OwnCgroup();
  if (dir.empty()) {
    return absl::FailedPreconditionError("cgroup v2 is not mounted here");
  }
  const bool is_root = OwnPath() == "/";
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

CgroupParent TakeCgroupParent() {
  const absl::StatusOr<std::string> dir = DelegatedCgroup();
  if (!dir.ok()) {
    return {.dir = "", .unenforced = std::string(dir.status().message())};
  }
  return {.dir = *dir,
          .unenforced = std::string(LetControllersBelow(*dir).message())};
}

}  // namespace cohort::worker

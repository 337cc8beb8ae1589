#include "worker/process_mark.h"

#include <unistd.h>

#include <cstddef>
#include <optional>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "common/mutex.h"
#include "worker/keeper/files.h"
#include "worker/keeper/proc.h"
#include "worker/keeper/spec.h"

namespace cohort::worker {
namespace {

constexpr size_t kStatusBytesMax = 64 << 10;

struct BelievedUsers {
  Mutex mutex;
  std::set<uid_t> users ABSL_GUARDED_BY(mutex);
};
BelievedUsers& Believed() {
  static auto* const believed = new BelievedUsers;
  return *believed;
}

// The real one; nothing when the process is gone.
std::optional<uid_t> UserOf(pid_t pid) {
  int error = 0;
  const std::optional<std::string> status = keeper::ReadWhole(
      absl::StrCat("/proc/", pid, "/status"), kStatusBytesMax, &error);
  if (!status.has_value()) return std::nullopt;
  for (absl::string_view line : absl::StrSplit(*status, '\n')) {
    // Uid: real effective saved file-system
    if (!absl::ConsumePrefix(&line, "Uid:\t")) continue;
    uid_t user = 0;
    if (absl::SimpleAtoi(line.substr(0, line.find('\t')), &user)) return user;
  }
  return std::nullopt;
}

}  // namespace

std::string PlaceOf(pid_t pid) {
  const std::string place =
      keeper::ValueOf(keeper::ReadEnvironment(pid), keeper::kPlaceVariable);
  return place.empty() || IsOfOurUsers(pid) ? place : "";
}

MarkedAs HowMarked(pid_t pid, absl::string_view place) {
  if (keeper::ValueOf(keeper::ReadEnvironment(pid), keeper::kPlaceVariable) !=
      place) {
    return MarkedAs::kNot;
  }
  return IsOfOurUsers(pid) ? MarkedAs::kMarked : MarkedAs::kUnsure;
}

std::string ProcessInCgroup(absl::string_view proc_cgroup) {
  std::string innermost;
  for (absl::string_view line : absl::StrSplit(proc_cgroup, '\n')) {
    if (!absl::ConsumePrefix(&line, "0::")) continue;  // cgroup v2
    for (absl::string_view name : absl::StrSplit(line, '/')) {
      if (!absl::ConsumePrefix(&name, "cohort-")) continue;
      // " (deleted)" may follow.
      const std::optional<keeper::ProcessKey> process =
          keeper::ParseProcessKey(std::string(name.substr(0, name.find(' '))));
      if (process) innermost = process->ToString();
    }
  }
  return innermost;
}

std::string ProcessOfCgroup(pid_t pid) {
  int error = 0;
  return ProcessInCgroup(
      keeper::ReadWhole(absl::StrCat("/proc/", pid, "/cgroup"), kStatusBytesMax,
                        &error)
          .value_or(""));
}

void BelieveMarksOf(std::set<uid_t> users) {
  BelievedUsers& believed = Believed();
  MutexLock lock(believed.mutex);
  believed.users = std::move(users);
}

bool IsOfOurUsers(pid_t pid) {
  const std::optional<uid_t> user = UserOf(pid);
  if (!user.has_value() || *user == geteuid()) return user.has_value();
  BelievedUsers& believed = Believed();
  MutexLock lock(believed.mutex);
  return believed.users.contains(*user);
}

bool IsOfThisUser(pid_t pid) { return UserOf(pid) == geteuid(); }

}  // namespace cohort::worker

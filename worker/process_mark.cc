#include "worker/process_mark.h"

#include <unistd.h>

#include <cstddef>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "worker/keeper/files.h"
#include "worker/keeper/proc.h"
#include "worker/keeper/spec.h"

namespace cohort::worker {
namespace {

constexpr size_t kStatusBytesMax = 64 << 10;

}  // namespace

std::string PlaceOf(pid_t pid) {
  const std::string place =
      keeper::ValueOf(keeper::ReadEnvironment(pid), keeper::kPlaceVariable);
  return place.empty() || IsOfThisUser(pid) ? place : "";
}

MarkedAs HowMarked(pid_t pid, absl::string_view place) {
  if (keeper::ValueOf(keeper::ReadEnvironment(pid), keeper::kPlaceVariable) !=
      place) {
    return MarkedAs::kNot;
  }
  return IsOfThisUser(pid) ? MarkedAs::kMarked : MarkedAs::kUnsure;
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

bool IsOfThisUser(pid_t pid) {
  int error = 0;
  const std::optional<std::string> status = keeper::ReadWhole(
      absl::StrCat("/proc/", pid, "/status"), kStatusBytesMax, &error);
  if (!status.has_value()) return false;
  for (absl::string_view line : absl::StrSplit(*status, '\n')) {
    // Uid: real effective saved file-system
    if (!absl::ConsumePrefix(&line, "Uid:\t")) continue;
    uid_t user = 0;
    return absl::SimpleAtoi(line.substr(0, line.find('\t')), &user) &&
           user == geteuid();
  }
  return false;
}

}  // namespace cohort::worker

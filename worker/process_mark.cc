#include "worker/process_mark.h"

#include <unistd.h>

#include <cstddef>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "common/strong_id.h"
#include "worker/keeper/files.h"
#include "worker/keeper/proc.h"

namespace cohort::worker {
namespace {

constexpr size_t kStatusBytesMax = 64 << 10;

std::string ValueOf(const std::vector<std::string>& environment,
                    absl::string_view name) {
  for (const std::string& entry : environment) {
    absl::string_view value = entry;
    if (absl::ConsumePrefix(&value, name) && absl::ConsumePrefix(&value, "=")) {
      return std::string(value);
    }
  }
  return "";
}

}  // namespace

AttemptPart PartIn(const std::vector<std::string>& environment) {
  AttemptPart part = {ValueOf(environment, keeper::kAttemptVariable), ""};
  if (!part.attempt.empty()) {
    part.place = ValueOf(environment, keeper::kPlaceVariable);
  }
  return part;
}

AttemptPart ReadPart(pid_t pid) {
  const AttemptPart part = PartIn(keeper::ReadEnvironment(pid));
  return part.attempt.empty() || IsOfThisUser(pid) ? part : AttemptPart();
}

std::string AttemptInCgroup(absl::string_view proc_cgroup) {
  std::string attempt;
  for (absl::string_view line : absl::StrSplit(proc_cgroup, '\n')) {
    if (!absl::ConsumePrefix(&line, "0::")) continue;  // cgroup v2
    for (absl::string_view name : absl::StrSplit(line, '/')) {
      if (!absl::ConsumePrefix(&name, "cohort-")) continue;
      // The node's part follows, or " (deleted)".
      const std::string id(name.substr(0, name.find_first_of("- ")));
      if (AttemptId::FromHex(id).ok()) attempt = id;
    }
  }
  return attempt;
}

std::string AttemptOfCgroup(pid_t pid) {
  int error = 0;
  return AttemptInCgroup(
      keeper::ReadWhole(absl::StrCat("/proc/", pid, "/cgroup"), kStatusBytesMax,
                        &error)
          .value_or(""));
}

MarkedAs HowMarked(pid_t pid, const AttemptPart& part) {
  const AttemptPart marked = PartIn(keeper::ReadEnvironment(pid));
  if (marked.attempt.empty() || marked.attempt != part.attempt) {
    return MarkedAs::kNot;
  }
  if (marked.place.empty()) return MarkedAs::kUnsure;
  if (marked.place != part.place) return MarkedAs::kNot;
  return IsOfThisUser(pid) ? MarkedAs::kPart : MarkedAs::kUnsure;
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

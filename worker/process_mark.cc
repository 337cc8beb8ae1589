#include "worker/process_mark.h"

#include <unistd.h>

#include <cstddef>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "common/file.h"
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
  if (part.attempt.empty()) return part;
  part.place = ValueOf(environment, keeper::kPlaceVariable);
  const std::string socket = ValueOf(environment, "COHORT_WORKER_SOCKET");
  if (part.place.empty() && !socket.empty()) {
    part.place = absl::StrCat(ParentDirectory(socket), "/", part.attempt);
  }
  return part;
}

AttemptPart ReadPart(pid_t pid) {
  const AttemptPart part = PartIn(keeper::ReadEnvironment(pid));
  return part.attempt.empty() || IsOfThisUser(pid) ? part : AttemptPart();
}

MarkedAs HowMarked(pid_t pid, const AttemptPart& part) {
  const AttemptPart marked = PartIn(keeper::ReadEnvironment(pid));
  if (marked.attempt.empty() || marked.attempt != part.attempt) {
    return MarkedAs::kNot;
  }
  if (marked.place.empty() || part.place.empty()) return MarkedAs::kUnsure;
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

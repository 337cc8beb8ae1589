#include "worker/device_occupants.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "common/file.h"
#include "common/printable_text.h"
#include "common/size_text.h"
#include "worker/keeper/proc.h"
#include "worker/process_identity.h"
#include "worker/process_mark.h"

namespace cohort::worker {

bool IsSameProcess(const Occupant& before, const Occupant& now) {
  return before.pid == now.pid &&
         (now.start_time == 0 || before.start_time == now.start_time);
}

void InspectProcess(Occupant& occupant) {
  const absl::StatusOr<ProcessIdentity> identity = IdentityOf(occupant.pid);
  if (!identity.ok()) return;
  occupant.start_time = identity->start_time;
  const std::string directory = absl::StrCat("/proc/", occupant.pid);
  const auto command = ReadFile(absl::StrCat(directory, "/comm"));
  if (command.ok()) {
    occupant.command = std::string(absl::StripSuffix(*command, "\n"));
  }
  const auto pid = static_cast<pid_t>(occupant.pid);
  const std::vector<std::string> environment = keeper::ReadEnvironment(pid);
  occupant.process = keeper::ValueOf(environment, keeper::kProcessVariable);
  if (occupant.process.empty()) occupant.process = ProcessOfCgroup(pid);
  occupant.untold = occupant.process.empty() && environment.empty() &&
                    (geteuid() == 0 || IsOfThisUser(pid));
}

std::optional<std::vector<Occupant>> OccupantsOf(
    DeviceSource& source, const std::string& id,
    const InspectFunction& inspect) {
  const std::optional<std::vector<DeviceProcess>> processes =
      source.Processes(id);
  if (!processes.has_value()) return std::nullopt;
  std::vector<Occupant> occupants;
  for (const DeviceProcess& process : *processes) {
    const bool known = std::any_of(
        occupants.begin(), occupants.end(),
        [&](const Occupant& each) { return each.pid == process.pid; });
    if (known) continue;
    Occupant& occupant = occupants.emplace_back();
    occupant.pid = process.pid;
    occupant.bytes = process.bytes;
    inspect(occupant);
  }
  return occupants;
}

std::string OccupantText(const Occupant& occupant) {
  return absl::StrCat("process ", occupant.pid,
                      occupant.command.empty()
                          ? ""
                          : absl::StrCat(" (", Shown(occupant.command), ")"),
                      occupant.bytes.has_value()
                          ? absl::StrCat(" with ", SizeToText(*occupant.bytes))
                          : "");
}

}  // namespace cohort::worker

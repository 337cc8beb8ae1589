#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

#include "client/cli/command.h"
#include "client/cli/driver_text.h"
#include "client/json.h"
#include "common/exit_code.h"
#include "common/real_clock.h"
#include "common/status_macros.h"

// `cohort drivers` and `cohort tasks`: programs that own actors, and the tasks
// that they count.
namespace cohort::cli {
namespace {

absl::StatusOr<int> ShowDrivers(
    const Invocation& invocation, std::string (*json)(const DriverList&),
    const std::function<std::string(const DriverList&)>& table) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const DriverList drivers, cluster->Drivers());
  COHORT_RETURN_IF_ERROR(invocation.json ? Print(json(drivers))
                                         : PrintRaw(table(drivers)));
  const auto shown = static_cast<uint64_t>(drivers.drivers_size());
  if (!invocation.json && shown < drivers.total()) {
    Say(absl::StrCat("these are the newest ", shown, " of ", drivers.total(),
                     " drivers"));
  }
  return kExitOk;
}

// `cohort NOUN`, and `cohort NOUN list`, which is the same.
void AddLister(CLI::App& cohort, const std::string& noun,
               const std::string& description, Invocation& invocation,
               const std::function<absl::StatusOr<int>()>& list) {
  CLI::App* const nouns =
      AddCommand(cohort, noun, description, invocation, list);
  AddOutputFlags(*nouns, invocation);
  // Runs after that of `list`, whose word holds.
  nouns->callback([&invocation, nouns, list] {
    if (nouns->get_subcommands().empty()) invocation.run = list;
  });
  AddOutputFlags(
      *AddCommand(*nouns, "list", absl::StrCat("As `cohort ", noun, "`"),
                  invocation, list),
      invocation);
}

}  // namespace

void AddDrivers(CLI::App& cohort, Invocation& invocation) {
  AddLister(cohort, "drivers",
            "List programs that own actors or run tasks, newest first",
            invocation, [&invocation] {
              return ShowDrivers(
                  invocation, DriversJson, [&](const DriverList& drivers) {
                    return DriversTable(drivers, MachineClock().Wall(),
                                        ViewFor(invocation));
                  });
            });
}

void AddTasks(CLI::App& cohort, Invocation& invocation) {
  AddLister(cohort, "tasks",
            "Count the tasks of each driver, by request and state", invocation,
            [&invocation] {
              return ShowDrivers(
                  invocation, TasksJson, [&](const DriverList& drivers) {
                    return TasksTable(drivers, ViewFor(invocation));
                  });
            });
}

}  // namespace cohort::cli

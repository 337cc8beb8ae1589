#include "client/cli/driver_text.h"

#include "absl/strings/str_cat.h"

#include "client/cli/job_text.h"
#include "client/message_text.h"
#include "rpc/wire_values.h"

namespace cohort::cli {
namespace {

std::string DriverIdText(const Driver& driver, const TableView& view) {
  return view.wide ? IdText(driver.driver_id()) : ShortId(driver.driver_id());
}

std::string DriverState(const Driver& driver) {
  if (driver.ending()) return "ENDING";
  return driver.connected() ? "CONNECTED" : "AWAY";
}

}  // namespace

std::string DriversTable(const DriverList& drivers, absl::Time now,
                         const TableView& view) {
  Table table({"ID", "NAME", "STATE", "AGE", "ACTORS", "WAITING", "RUNNING",
               "FINISHED", "FAILED", "EXECUTORS", "BY"});
  for (const Driver& driver : drivers.drivers()) {
    v1::TaskCounts sum;
    for (const v1::TaskCounts& each : driver.tasks()) {
      sum.set_waiting(sum.waiting() + each.waiting());
      sum.set_running(sum.running() + each.running());
      sum.set_finished(sum.finished() + each.finished());
      sum.set_failed(sum.failed() + each.failed());
      sum.set_executors(sum.executors() + each.executors());
    }
    table.Add({DriverIdText(driver, view), driver.name(), DriverState(driver),
               RoundedAge(now - rpc::FromWire(driver.opened_at())),
               absl::StrCat(driver.actors()), absl::StrCat(sum.waiting()),
               absl::StrCat(sum.running()), absl::StrCat(sum.finished()),
               absl::StrCat(sum.failed()), absl::StrCat(sum.executors()),
               driver.principal()});
  }
  return table.ToString(view.columns);
}

std::string TasksTable(const DriverList& drivers, const TableView& view) {
  Table table({"DRIVER", "NAME", "SHAPE", "WAITING", "RUNNING", "FINISHED",
               "FAILED", "EXECUTORS"});
  for (const Driver& driver : drivers.drivers()) {
    for (const v1::TaskCounts& each : driver.tasks()) {
      table.Add({DriverIdText(driver, view), driver.name(), each.shape(),
                 absl::StrCat(each.waiting()), absl::StrCat(each.running()),
                 absl::StrCat(each.finished()), absl::StrCat(each.failed()),
                 absl::StrCat(each.executors())});
    }
  }
  return table.ToString(view.columns);
}

}  // namespace cohort::cli

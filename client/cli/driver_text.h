#pragma once

#include <string>

#include "absl/time/time.h"

#include "client/cli/table.h"
#include "client/node.h"

// Drivers and their tasks as people read them.
namespace cohort::cli {

// A line a driver; ages as of `now`.
std::string DriversTable(const DriverList& drivers, absl::Time now,
                         const TableView& view);
// A line for each shape of each driver's tasks.
std::string TasksTable(const DriverList& drivers, const TableView& view);

}  // namespace cohort::cli

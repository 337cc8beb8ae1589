#pragma once

#include <string>

#include "client/cli/table.h"
#include "client/cluster.h"

// Events as people read them.
namespace cohort::cli {

// One line, without its end: number, time in UTC, kind, by whom unless the
// head, what it is about, what happened.  Wide lines also have the year,
// milliseconds, whole ids, the attempt and the cause.
std::string EventLine(const Event& event, const TableView& view);

}  // namespace cohort::cli

#include "client/cli/event_text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"

#include "client/cli/job_text.h"
#include "client/message_text.h"
#include "common/printable_text.h"
#include "rpc/wire_values.h"

namespace cohort::cli {
namespace {

std::string WhatText(const Event& event, bool wide) {
  std::vector<std::string> parts;
  if (!event.job_id().empty()) {
    parts.push_back(absl::StrCat(
        "job ", wide ? IdText(event.job_id()) : ShortId(event.job_id())));
  }
  if (wide && !event.attempt_id().empty()) {
    parts.push_back(absl::StrCat("attempt ", IdText(event.attempt_id())));
  }
  if (!event.node_id().empty()) {
    const std::string id = IdText(event.node_id());
    const bool has_name = !event.node_name().empty();
    parts.push_back(
        absl::StrCat("node ",
                     has_name ? event.node_name()
                     : wide   ? id
                              : ShortId(event.node_id()),
                     wide && has_name ? absl::StrCat(" (", id, ")") : ""));
  }
  return absl::StrJoin(parts, " ");
}

}  // namespace

std::string EventLine(const Event& event, const TableView& view) {
  const bool wide = view.wide;
  std::vector<std::string> parts = {
      absl::StrCat(event.number()),
      wide ? TimeText(event.at())
           : absl::FormatTime("%m-%d %H:%M:%S", rpc::FromWire(event.at()),
                              absl::UTCTimeZone()),
      event.kind()};
  if (!event.principal().empty() || wide) {
    parts.push_back(absl::StrCat(
        "by ", event.principal().empty() ? "head" : event.principal()));
  }
  for (const std::string& part : {WhatText(event, wide), event.text()}) {
    if (!part.empty()) parts.push_back(part);
  }
  if (wide && event.cause() != 0) {
    parts.push_back(absl::StrCat("(because of ", event.cause(), ")"));
  }
  for (std::string& part : parts) part = OneLine(part);
  const std::string line = absl::StrJoin(parts, "  ");
  return view.columns > 0 && ColumnsOf(line) > view.columns
             ? Cut(line, view.columns)
             : line;
}

}  // namespace cohort::cli

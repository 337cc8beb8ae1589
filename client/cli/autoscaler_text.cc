#include "client/cli/autoscaler_text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "client/cli/job_text.h"
#include "client/message_text.h"
#include "common/duration_text.h"
#include "common/printable_text.h"
#include "rpc/enum_text.h"

namespace cohort::cli {
namespace {

std::string AgeOf(int64_t since_us, absl::Time now) {
  return RoundedAge(now - absl::FromUnixMicros(since_us));
}

std::string FailureOf(const v1::NodeTypeStatus& status, absl::Time now) {
  const absl::Duration left =
      absl::FromUnixMicros(status.tried_again_at_us()) - now;
  return absl::StrCat(
      status.failures(), status.failures() == 1 ? " launch" : " launches",
      " failed: ", status.failure(),
      left > absl::ZeroDuration()
          ? absl::StrCat(" (again in ",
                         DurationToText(absl::Ceil(left, absl::Seconds(1))),
                         ")")
          : "");
}

std::string TypesTable(const Autoscaling& autoscaling, const TableView& view) {
  Table table({"TYPE", "MIN", "MAX", "RUNNING", "LAUNCHING", "ENDING",
               "LAUNCH TAKES", "RESOURCES"});
  for (const v1::NodeTypeStatus& status : autoscaling.node_types()) {
    const v1::NodeType& type = status.type();
    table.Add({type.name(), absl::StrCat(type.min()), absl::StrCat(type.max()),
               absl::StrCat(status.running()), absl::StrCat(status.launching()),
               absl::StrCat(status.ending()),
               status.usual_launch_us() == 0
                   ? "-"
                   : RoundedAge(absl::Microseconds(status.usual_launch_us())),
               ResourcesOf(type.resources()).ToString()});
  }
  return table.ToString(view.columns);
}

std::string InstancesTable(const Autoscaling& autoscaling, absl::Time now,
                           const TableView& view) {
  Table table({"INSTANCE", "TYPE", "STATE", "SINCE", "NODE", "JOB", "REASON"});
  const auto id = [&view](const std::string& bytes) {
    return view.wide ? IdText(bytes) : ShortId(bytes);
  };
  for (const v1::Instance& instance : autoscaling.instances()) {
    table.Add({id(instance.instance_id()), instance.node_type(),
               EnumText(instance.state()), AgeOf(instance.since_us(), now),
               id(instance.node_id()), id(instance.job_id()),
               instance.reason()});
  }
  return table.ToString(view.columns);
}

}  // namespace

std::string CapacityTable(const Autoscaling& autoscaling, absl::Time now,
                          const TableView& view) {
  Table table({"REQUEST", "OWNER", "BUNDLES", "ENDS IN"});
  for (const CapacityRequest& request : autoscaling.requests()) {
    std::vector<std::string> bundles;
    for (const auto& bundle : request.bundles()) {
      bundles.push_back(absl::StrCat(bundle.count(), " x {",
                                     ResourcesOf(bundle.resources()).ToString(),
                                     "}"));
    }
    table.Add({request.name(), request.owner(), absl::StrJoin(bundles, " + "),
               request.expires_at_us() == 0
                   ? "-"
                   : RoundedAge(absl::FromUnixMicros(request.expires_at_us()) -
                                now)});
  }
  return table.ToString(view.columns);
}

std::string AutoscalingText(const Autoscaling& autoscaling, absl::Time now,
                            const TableView& view) {
  if (!autoscaling.is_configured()) {
    std::string text =
        "the autoscaler is off: there is no cluster file (cohort autoscaler "
        "apply FILE)\n";
    for (const std::string& next : autoscaling.next()) {
      absl::StrAppend(&text, OneLine(next), "\n");
    }
    return text;
  }
  std::string text = absl::StrCat(
      "provider ", autoscaling.provider(), ", at most ",
      autoscaling.file().max_nodes(), " nodes",
      autoscaling.is_dry_run() ? "; dry run: nothing is launched or ended" : "",
      "\n");
  if (!autoscaling.provider_error().empty()) {
    absl::StrAppend(&text, "the provider's last answer was an error: ",
                    OneLine(autoscaling.provider_error()), "\n");
  }
  absl::StrAppend(&text, "\n", TypesTable(autoscaling, view));
  for (const v1::NodeTypeStatus& status : autoscaling.node_types()) {
    if (status.failures() == 0) continue;
    absl::StrAppend(&text, "\n", status.type().name(), ": ",
                    OneLine(FailureOf(status, now)), "\n");
  }
  if (!autoscaling.instances().empty()) {
    absl::StrAppend(&text, "\n", InstancesTable(autoscaling, now, view));
  }
  if (!autoscaling.requests().empty()) {
    absl::StrAppend(&text, "\n", CapacityTable(autoscaling, now, view));
  }
  if (autoscaling.served() > 0) {
    absl::StrAppend(&text, "\n", autoscaling.served(),
                    autoscaling.served() == 1 ? " job waits" : " jobs wait",
                    " for nodes that are on the way\n");
  }
  for (const v1::Unserved& each : autoscaling.unserved()) {
    absl::StrAppend(&text, "\n", each.job_id().empty() ? "request " : "job ",
                    OneLine(each.name()),
                    " gets no node: ", OneLine(each.why()));
  }
  if (!autoscaling.unserved().empty()) text += "\n";
  for (const std::string& next : autoscaling.next()) {
    absl::StrAppend(&text, "\n", OneLine(next));
  }
  if (!autoscaling.next().empty()) text += "\n";
  return text;
}

}  // namespace cohort::cli

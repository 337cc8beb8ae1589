#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "client/cli/command.h"
#include "client/cli/table.h"
#include "client/json.h"
#include "client/message_text.h"
#include "common/exit_code.h"
#include "common/printable_text.h"
#include "common/status_macros.h"

namespace cohort::cli {
namespace {

std::string CountsText(
    const google::protobuf::Map<std::string, int64_t>& counts) {
  std::vector<std::string> parts;
  const std::map<std::string, int64_t> sorted(counts.begin(), counts.end());
  for (const auto& [state, count] : sorted) {
    if (count > 0) parts.push_back(absl::StrCat(count, " ", state));
  }
  return parts.empty() ? "none" : absl::StrJoin(parts, ", ");
}

std::string OrphansText(const ClusterStatus& status) {
  const auto& orphans = status.orphans();
  if (orphans.empty()) return "";
  Table table({"ORPHAN", "JOB", "STATE", "NODES", "SINCE"});
  for (const v1::OrphanAttempt& each : orphans) {
    table.Add({IdText(each.attempt_id()), IdText(each.job_id()), each.state(),
               absl::StrJoin(each.node_names(), ","), TimeText(each.since())});
  }
  const bool open = std::any_of(
      orphans.begin(), orphans.end(),
      [](const v1::OrphanAttempt& each) { return each.state() != "ENDING"; });
  const int64_t more = status.orphan_count() - orphans.size();
  return absl::StrCat("\n", table.ToString(),
                      more > 0 ? absl::StrCat("and ", more, " more\n") : "",
                      open ? "`cohort adopt ORPHAN` goes on with one that the "
                             "backup has, `cohort end ORPHAN` ends it.\n"
                           : "");
}

std::string StatusText(const ClusterStatus& status) {
  return absl::StrCat(
      "cluster:  ", IdText(status.stamp().cluster_id()),
      "\nhead:     ", status.address(), " (pid ", status.head_pid(), ", term ",
      status.stamp().term(), ")\n",
      status.http_address().empty()
          ? ""
          : absl::StrCat("http:     http://", status.http_address(), "\n"),
      status.read_only()
          ? absl::StrCat("store:    ", status.read_only_why(), "\n")
          : "",
      "nodes:    ", CountsText(status.nodes_by_state()),
      "\njobs:     ", CountsText(status.jobs_by_state()), "\n",
      status.settling()
          ? "restored: nothing starts before the nodes were heard "
            "of\n"
          : "",
      status.later_store_why().empty()
          ? ""
          : absl::StrCat("store:    ", OneLine(status.later_store_why()), "\n"),
      OrphansText(status));
}

absl::StatusOr<int> RunStatus(const Invocation& invocation) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const ClusterStatus status, cluster->Status());
  COHORT_RETURN_IF_ERROR(invocation.json ? Print(ToJson(status))
                                         : PrintRaw(StatusText(status)));
  return kExitOk;
}

}  // namespace

void AddStatus(CLI::App& cohort, Invocation& invocation) {
  CLI::App* status = AddCommand(
      cohort, "status", "Show the head, and counts of nodes and jobs",
      invocation, [&invocation] { return RunStatus(invocation); });
  AddJsonFlag(*status, invocation);
}

}  // namespace cohort::cli

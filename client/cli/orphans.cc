#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "client/json.h"
#include "client/message_text.h"
#include "common/exit_code.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::cli {
namespace {

// The outcome of a person's decision about an orphan.
struct Said {
  std::string job;
  std::string text;  // "is adopted"
  std::string json;
};
using Speak = absl::StatusOr<Said> (*)(Cluster&, const AttemptId&);

absl::StatusOr<Said> Adopt(Cluster& cluster, const AttemptId& attempt) {
  COHORT_ASSIGN_OR_RETURN(const Adoption adoption, cluster.Adopt(attempt));
  const std::string json = ToJsonLine(adoption);
  const std::string job = IdText(adoption.job_id());
  const auto& lost = adoption.lost_node_names();
  if (lost.empty()) return Said{job, "is adopted", json};
  return Said{
      job,
      absl::StrCat("is adopted and ends: ", absl::StrJoin(lost, " and "),
                   lost.size() == 1 ? " is" : " are",
                   " lost, so its ranks elsewhere end too, and the "
                   "job goes on as after a lost node"),
      json};
}

absl::StatusOr<Said> End(Cluster& cluster, const AttemptId& attempt) {
  COHORT_ASSIGN_OR_RETURN(const JobId job, cluster.End(attempt));
  return Said{job.ToText(), "ends", IdJson(job)};
}

absl::StatusOr<int> Run(const Invocation& invocation, const std::string& text,
                        Speak speak) {
  if (text.empty()) {
    return UsageError("the attempt's id is empty: `cohort status` shows ids");
  }
  const absl::StatusOr<AttemptId> attempt = AttemptId::FromHex(text);
  if (!attempt.ok()) {
    return SetReason(
        absl::NotFoundError(absl::StrCat(
            "there is no attempt ", Shown(text),
            ": an id is 32 hex digits; `cohort status` shows them")),
        "unknown_attempt");
  }
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kChangeDeadline));
  COHORT_ASSIGN_OR_RETURN(const Said said, speak(*cluster, *attempt));
  COHORT_RETURN_IF_ERROR(
      Print(invocation.json
                ? said.json
                : OneLine(absl::StrCat("attempt ", attempt->ToHex(), " of job ",
                                       said.job, " ", said.text))));
  return kExitOk;
}

void Add(CLI::App& cohort, Invocation& invocation, const std::string& name,
         const std::string& description, Speak speak,
         const std::string& footer) {
  auto attempt = std::make_shared<std::string>();
  CLI::App* command = AddCommand(cohort, name, description, invocation,
                                 [&invocation, attempt, speak] {
                                   return Run(invocation, *attempt, speak);
                                 });
  command
      ->add_option("ATTEMPT", *attempt, "Its id, as `cohort status` shows it")
      ->required();
  AddJsonFlag(*command, invocation);
  command->footer(footer);
}

}  // namespace

void AddOrphans(CLI::App& cohort, Invocation& invocation) {
  Add(cohort, invocation, "adopt",
      "Continue an orphan: an attempt that started before a restore", &Adopt,
      "Its job continues with it as if nothing had been restored.  If one of "
      "its\n"
      "nodes is dead, it ends as after the loss of a node, and the answer says "
      "so.\n"
      "An orphan that the backup does not have cannot be adopted: let it end, "
      "or\n"
      "end it.");
  Add(cohort, invocation, "end",
      "End an orphan: an attempt that started before a restore", &End,
      "SIGTERM to its ranks, SIGKILL after the job's --grace (at once if the\n"
      "backup does not have the job). Its job starts again from its last\n"
      "committed checkpoint, uncharged unless it had failed already; `cohort "
      "jobs stop\n"
      "JOB` prevents that.");
}

}  // namespace cohort::cli

#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"

#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "client/json.h"
#include "common/exit_code.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::cli {
namespace {

using Speak = absl::StatusOr<JobId> (Cluster::*)(AttemptId,
                                                 std::optional<absl::Duration>);

absl::StatusOr<int> Run(const Invocation& invocation, const std::string& text,
                        Speak speak, absl::string_view done) {
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
  COHORT_ASSIGN_OR_RETURN(const JobId job,
                          ((*cluster).*speak)(*attempt, std::nullopt));
  COHORT_RETURN_IF_ERROR(Print(
      invocation.json ? IdJson(job)
                      : absl::StrCat("attempt ", attempt->ToHex(), " of job ",
                                     job.ToText(), " ", done)));
  return kExitOk;
}

void Add(CLI::App& cohort, Invocation& invocation, const std::string& name,
         const std::string& description, Speak speak, const char* done,
         const std::string& footer) {
  auto attempt = std::make_shared<std::string>();
  CLI::App* command =
      AddCommand(cohort, name, description, invocation,
                 [&invocation, attempt, speak, done] {
                   return Run(invocation, *attempt, speak, done);
                 });
  command
      ->add_option("ATTEMPT", *attempt, "Its id, as `cohort status` shows it")
      ->required();
  AddJsonFlag(*command, invocation);
  command->footer(footer);
}

}  // namespace

void AddUnclaimed(CLI::App& cohort, Invocation& invocation) {
  Add(cohort, invocation, "adopt",
      "Go on with an attempt that is unclaimed after a restore",
      &Cluster::Adopt, "is adopted",
      "Its job goes on with it as if nothing had been restored. One that the\n"
      "backup did not have needs all of its nodes, and its job gets a new "
      "record\n"
      "where there is none.");
  Add(cohort, invocation, "end",
      "End an attempt that is unclaimed after a restore", &Cluster::End, "ends",
      "SIGTERM to its ranks, SIGKILL after 10 s (at once to those of one that "
      "the\n"
      "backup did not have). Its job starts again from its last committed\n"
      "checkpoint, uncharged; `cohort jobs stop JOB` keeps it from that.");
}

}  // namespace cohort::cli

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "client/cli/actor_text.h"
#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "client/cli/job_list.h"
#include "client/cli/job_name.h"
#include "client/cli/progress.h"
#include "client/json.h"
#include "client/message_text.h"
#include "common/exit_code.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"

// `cohort actors` and `cohort groups`: jobs that are actors.
namespace cohort::cli {
namespace {

struct ActorFlags {
  JobScope scope;
  std::vector<std::string> names;
};

JobScope ActorScope() {
  return {.noun = "actor", .kinds = {v1::JOB_KIND_ACTOR, v1::JOB_KIND_GROUP}};
}

JobScope GroupScope() {
  return {.noun = "group", .kinds = {v1::JOB_KIND_GROUP}};
}

// A whole id may be of any job.
absl::Status CheckIsActor(const Job& job, const std::string& noun) {
  const v1::ActorSpec& actor = job.spec().actor();
  if (job.spec().has_actor() &&
      (noun == "actor" || !actor.dimensions().empty())) {
    return absl::OkStatus();
  }
  return SetReason(
      absl::NotFoundError(absl::StrCat(
          "there is no ", noun, " ", IdText(job.job_id()),
          job.spec().has_actor() ? ": it is an actor (`cohort actors get`)"
                                 : ": it is a job (`cohort jobs get`)")),
      absl::StrCat("unknown_", noun));
}

absl::StatusOr<Job> GetActor(const Cluster& cluster, const ActorFlags& flags,
                             const std::string& name) {
  COHORT_ASSIGN_OR_RETURN(const JobId id, FindJob(cluster, name, flags.scope));
  COHORT_ASSIGN_OR_RETURN(Job job, cluster.Get(id));
  COHORT_RETURN_IF_ERROR(CheckIsActor(job, flags.scope.noun));
  return job;
}

absl::StatusOr<int> GetActors(const Invocation& invocation,
                              const ActorFlags& flags) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  std::vector<Job> actors;
  for (const std::string& name : flags.names) {
    COHORT_ASSIGN_OR_RETURN(actors.emplace_back(),
                            GetActor(*cluster, flags, name));
  }
  if (invocation.json) {
    COHORT_RETURN_IF_ERROR(Print(actors.size() == 1 ? ActorJson(actors.front())
                                                    : ActorsJson(actors)));
    return kExitOk;
  }
  const TableView view = ViewFor(invocation);
  COHORT_RETURN_IF_ERROR(PrintRaw(
      absl::StrJoin(actors, "\n", [&view](std::string* out, const Job& actor) {
        absl::StrAppend(out, ActorText(actor, view));
      })));
  return kExitOk;
}

// Each is tried; the first that could not be killed is the error.
absl::StatusOr<int> KillActors(const Invocation& invocation,
                               const ActorFlags& flags) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kChangeDeadline));
  std::vector<JobId> killed;
  const auto kill = [&](const std::string& name) -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(const Job actor, GetActor(*cluster, flags, name));
    COHORT_ASSIGN_OR_RETURN(const JobId id, JobId::FromBytes(actor.job_id()));
    COHORT_RETURN_IF_ERROR(cluster->Stop(id));
    killed.push_back(id);
    if (invocation.json) return absl::OkStatus();
    COHORT_ASSIGN_OR_RETURN(const Job job, cluster->Get(id));
    return Print(OneLine(JobLine(job)));
  };
  absl::Status first_failure;
  for (const std::string& name : flags.names) first_failure.Update(kill(name));
  if (invocation.json && (first_failure.ok() || !killed.empty())) {
    COHORT_RETURN_IF_ERROR(Print(
        flags.names.size() == 1 ? IdJson(killed.front()) : IdsJson(killed)));
  }
  COHORT_RETURN_IF_ERROR(first_failure);
  return kExitOk;
}

CLI::App* AddActorsCommand(
    CLI::App& parent, const std::string& name, const std::string& description,
    const JobScope& scope, Invocation& invocation,
    std::function<absl::StatusOr<int>(const ActorFlags&)> run) {
  auto flags = std::make_shared<ActorFlags>(ActorFlags{.scope = scope});
  CLI::App* command =
      AddCommand(parent, name, description, invocation,
                 [flags, run = std::move(run)] { return run(*flags); });
  AddScopedArguments(*command, flags->names, flags->scope);
  return command;
}

// `cohort actors`, which lists them, and what every noun of actors has.
CLI::App* AddNoun(CLI::App& cohort, const std::string& description,
                  const JobScope& scope, const Listing& listing,
                  Invocation& invocation) {
  auto flags = std::make_shared<ListFlags>();
  const auto list = [&invocation, flags, listing] {
    return ListJobs(invocation, *flags, listing);
  };
  const std::string noun = scope.noun + "s";
  CLI::App* const nouns =
      AddCommand(cohort, noun, description, invocation, list);
  AddListFlags(*nouns, *flags, invocation);
  // Runs after those of its commands, whose word holds.
  nouns->callback([&invocation, nouns, list] {
    if (nouns->get_subcommands().empty()) invocation.run = list;
  });
  AddListFlags(
      *AddCommand(*nouns, "list", absl::StrCat("As `cohort ", noun, "`"),
                  invocation, list),
      *flags, invocation);
  return nouns;
}

}  // namespace

void AddActors(CLI::App& cohort, Invocation& invocation) {
  CLI::App* const actors = AddNoun(
      cohort, "List actors, show or kill them, read their logs", ActorScope(),
      {.kinds = ActorScope().kinds, .table = ActorsTable, .json = ActorsJson},
      invocation);
  AddOutputFlags(
      *AddActorsCommand(*actors, "get", "Show actors", ActorScope(), invocation,
                        [&invocation](const ActorFlags& flags) {
                          return GetActors(invocation, flags);
                        }),
      invocation);
  AddJsonFlag(
      *AddActorsCommand(*actors, "kill",
                        "End actors for good, a group as a whole: SIGTERM, and "
                        "SIGKILL after their grace",
                        ActorScope(), invocation,
                        [&invocation](const ActorFlags& flags) {
                          return KillActors(invocation, flags);
                        }),
      invocation);
  AddLogs(*actors, ActorScope(), invocation);
}

void AddGroups(CLI::App& cohort, Invocation& invocation) {
  CLI::App* const groups = AddNoun(
      cohort, "List groups of actors; show one, with the places of its actors",
      GroupScope(),
      {.kinds = GroupScope().kinds, .table = GroupsTable, .json = ActorsJson},
      invocation);
  AddOutputFlags(
      *AddActorsCommand(*groups, "get", "Show groups and their actors",
                        GroupScope(), invocation,
                        [&invocation](const ActorFlags& flags) {
                          return GetActors(invocation, flags);
                        }),
      invocation);
}

}  // namespace cohort::cli

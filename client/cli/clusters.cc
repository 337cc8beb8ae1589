#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "client/cli/command.h"
#include "client/cli/table.h"
#include "client/connection.h"
#include "client/saved_clusters.h"
#include "common/exit_code.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "rpc/credential.h"

// `cohort login` and `cohort config`: which cluster a user's commands mean.
namespace cohort::cli {
namespace {

// Nothing is saved that does not work.
absl::StatusOr<int> LogIn(const Invocation& invocation,
                          const std::string& name) {
  COHORT_ASSIGN_OR_RETURN(const std::string address,
                          client::FindAddress(invocation.address));
  COHORT_ASSIGN_OR_RETURN(const rpc::Credential credential,
                          client::FindCredential(invocation.credential_file));
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_RETURN_IF_ERROR(cluster->Status().status());
  COHORT_RETURN_IF_ERROR(client::SaveCluster(name, address, credential));
  COHORT_RETURN_IF_ERROR(
      Print(absl::StrCat("commands use cluster ", name, ", at ", address)));
  return kExitOk;
}

absl::StatusOr<int> List() {
  COHORT_ASSIGN_OR_RETURN(const std::vector<client::SavedCluster> saved,
                          client::SavedClusters());
  Table table({"NAME", "ADDRESS", "IN USE"});
  for (const client::SavedCluster& each : saved) {
    table.Add({each.name, OneLine(each.address), each.in_use ? "yes" : "-"});
  }
  COHORT_RETURN_IF_ERROR(PrintRaw(table.ToString()));
  return kExitOk;
}

absl::StatusOr<int> Use(const std::string& name) {
  COHORT_RETURN_IF_ERROR(client::UseCluster(name));
  COHORT_RETURN_IF_ERROR(Print(absl::StrCat("commands use cluster ", name)));
  return kExitOk;
}

// A command about the user's own files, which asks no head.
CLI::App* AddLocal(CLI::App& parent, const std::string& name,
                   const std::string& description, Invocation& invocation,
                   std::function<absl::StatusOr<int>()> run) {
  CLI::App* const command = parent.add_subcommand(name, description);
  command->callback(
      [&invocation, run = std::move(run)] { invocation.run = run; });
  return command;
}

}  // namespace

void AddClusters(CLI::App& cohort, Invocation& invocation) {
  auto name = std::make_shared<std::string>();
  const auto add_name = [name](CLI::App& command) {
    command.add_option("NAME", *name, "The cluster")->required();
  };
  add_name(*AddCommand(
      cohort, "login",
      "Save a cluster by a name, and let commands use it from now on",
      invocation, [&invocation, name] { return LogIn(invocation, *name); }));

  CLI::App* const config = cohort.add_subcommand(
      "config", "List the clusters of `cohort login`, and choose one");
  config->require_subcommand(1);
  AddLocal(*config, "list", "List them", invocation, List);
  add_name(*AddLocal(*config, "use", "Let commands use another one", invocation,
                     [name] { return Use(*name); }));
  add_name(*AddLocal(*config, "remove",
                     "Forget one and its credential; commands then use what "
                     "`cohort up` runs here",
                     invocation, [name]() -> absl::StatusOr<int> {
                       COHORT_RETURN_IF_ERROR(client::ForgetCluster(*name));
                       return kExitOk;
                     }));
}

}  // namespace cohort::cli

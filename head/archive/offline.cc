#include "head/archive/offline.h"

#include <csignal>
#include <cstdio>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/exit_code.h"
#include "common/file.h"
#include "common/local_files.h"
#include "common/options/daemon_options.h"
#include "common/os_user.h"
#include "common/random.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "head/archive/inspect.h"
#include "head/archive/restore.h"
#include "head/state/cluster_file.h"

namespace cohort::head {
namespace {

absl::Status PrintRaw(absl::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size()) {
    return absl::OkStatus();
  }
  return absl::UnavailableError("cannot write to standard output");
}

void AddStateDirectory(CLI::App& app, std::string& state_dir) {
  app.add_option("--state-dir", state_dir,
                 "The head's state directory, or a backup (default: " +
                     DefaultStateDirectoryText("head") + ")");
}

absl::Status SetDefault(std::string& state_dir) {
  if (!state_dir.empty()) return absl::OkStatus();
  COHORT_ASSIGN_OR_RETURN(state_dir, DefaultStateDirectory("head"));
  return absl::OkStatus();
}

auto ComplainAs(const CLI::App& app) {
  return [name = app.get_name()](absl::string_view complaint) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(),
                 std::string(complaint).c_str());
  };
}

int RunInspect(int argc, const char* const* argv) {
  CLI::App app(
      "Prints the records of a control store: of a head that does not run, or "
      "of a backup. Changes nothing.",
      "cohort-head inspect");
  InspectOptions options;
  std::string table;
  bool json = false;
  app.add_option("TABLE", table, "One of " + TableNames() + " (default: all)");
  AddStateDirectory(app, options.state_dir);
  app.add_flag("--json", json, "Print one JSON object a record, one a line");
  app.footer("Fields that are zero or empty are not shown; ids are in hex.");
  if (const auto ended = ParseDaemonOptions(app, argc, argv)) return *ended;
  const absl::Status done = [&]() -> absl::Status {
    COHORT_RETURN_IF_ERROR(SetDefault(options.state_dir));
    if (!table.empty()) {
      COHORT_ASSIGN_OR_RETURN(options.table, ParseTable(table));
    }
    if (json) options.form = RecordForm::kJson;
    return Inspect(options, PrintRaw, ComplainAs(app));
  }();
  std::fflush(stdout);
  return done.ok() ? kExitOk : FailToStart(app, done);
}

int RunCheck(int argc, const char* const* argv) {
  CLI::App app(
      "Reads a whole control store, of a head that does not run or of a "
      "backup, and verifies all of it. Changes nothing.",
      "cohort-head check");
  std::string state_dir;
  bool json = false;
  AddStateDirectory(app, state_dir);
  app.add_flag("--json", json, "Print the counts as one JSON object");
  app.footer(
      "Exits 0 when all is whole, 125 when something is damaged: each damaged "
      "file or\nrow is named on standard error.");
  if (const auto ended = ParseDaemonOptions(app, argc, argv)) return *ended;
  const absl::Status done = [&]() -> absl::Status {
    COHORT_RETURN_IF_ERROR(SetDefault(state_dir));
    COHORT_ASSIGN_OR_RETURN(const CheckReport report,
                            Check(state_dir, ComplainAs(app)));
    return PrintRaw(json ? ToJson(report) : ToText(report));
  }();
  std::fflush(stdout);
  return done.ok() ? kExitOk : FailToStart(app, done);
}

std::string ReportText(const RestoreReport& report,
                       const std::string& state_dir, bool with_keys) {
  std::string text = absl::StrCat(
      "restored cluster ", report.cluster.ToHex(), " as of ",
      absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", report.backed_up_at,
                       absl::UTCTimeZone()),
      " to ", state_dir, "\ngeneration ", report.generation.ToHex(), ", term ",
      report.term, "\n", report.jobs, " jobs have not ended, ", report.orphans,
      " attempts are orphans\n");
  for (const std::string& hash : report.missing_packages) {
    absl::StrAppend(&text, "the backup lacks package ", hash,
                    ", which jobs need: they fail when they start\n");
  }
  if (!with_keys) {
    absl::StrAppend(
        &text,
        "Who was revoked since then is let in again: name the state directory "
        "of the head that ran with --keys, or revoke them again\n");
    if (!report.authority.empty()) {
      absl::StrAppend(
          &text, "Its certificate authority is the backup's, ",
          report.authority,
          ": nodes and clients that follow a later one refuse this "
          "head (other_authority), unless --keys brings it along\n");
    }
  }
  absl::StrAppend(
      &text, "Start the head: cohort head --state-dir ", state_dir,
      "\nThen `cohort status` lists the orphans; `cohort adopt ATTEMPT` "
      "goes on with one, `cohort end ATTEMPT` ends it.\n");
  return text;
}

int RunRestore(int argc, const char* const* argv) {
  CLI::App app(
      "Makes a backup the state directory of a new head, under a new "
      "generation; starts none. Ends no rank.",
      "cohort-head restore");
  std::string backup;
  std::string state_dir;
  std::string keys;
  app.add_option("DIR", backup, "The backup")->required();
  app.add_option("--state-dir", state_dir,
                 "The new state directory: must not exist, or be empty")
      ->required();
  app.add_option("--keys", keys,
                 "The state directory of the head that ran: its keys, and what "
                 "was revoked there since the backup, are taken along");
  if (const auto ended = ParseDaemonOptions(app, argc, argv)) return *ended;
  SystemRandom random;
  const absl::StatusOr<RestoreReport> report = RestoreBackup(
      backup, state_dir, keys, absl::StrCat("user/", OsUserName()),
      MachineClock(), random);
  if (!report.ok()) return FailToStart(app, report.status());
  const absl::Status printed =
      PrintRaw(ReportText(*report, state_dir, !keys.empty()));
  return printed.ok() ? kExitOk : FailToStart(app, printed);
}

int RunCheckClusterFile(int argc, const char* const* argv) {
  CLI::App app("Reads a cluster file as the head does; changes nothing.",
               "cohort-head check-cluster-file");
  std::string path;
  app.add_option("FILE", path, "The cluster file")->required();
  if (const auto ended = ParseDaemonOptions(app, argc, argv)) return *ended;
  const auto read = [&]() -> absl::StatusOr<ClusterFile> {
    COHORT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    return ParseClusterFile(text);
  };
  const absl::StatusOr<ClusterFile> file = read();
  if (!file.ok()) {
    return FailToStart(app, absl::InvalidArgumentError(absl::StrCat(
                                path, ": ", file.status().message())));
  }
  const absl::Status printed = PrintRaw(
      absl::StrCat(path, " is well: provider ", file->provider(), ", ",
                   file->node_types_size(),
                   file->node_types_size() == 1 ? " node type" : " node types",
                   ", at most ", file->max_nodes(), " nodes\n"));
  return printed.ok() ? kExitOk : FailToStart(app, printed);
}

}  // namespace

std::optional<int> RunOffline(int argc, const char* const* argv) {
  if (argc < 2) return std::nullopt;
  const absl::string_view command = argv[1];
  const auto run = command == "inspect"              ? &RunInspect
                   : command == "check"              ? &RunCheck
                   : command == "restore"            ? &RunRestore
                   : command == "check-cluster-file" ? &RunCheckClusterFile
                                                     : nullptr;
  if (run == nullptr) return std::nullopt;
  // `cohort head inspect | head` ends quietly, whatever the parent ignores.
  std::signal(SIGPIPE, SIG_DFL);
  return run(argc - 1, argv + 1);
}

}  // namespace cohort::head

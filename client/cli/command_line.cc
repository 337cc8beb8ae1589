#include "client/cli/command_line.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <sstream>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "client/cli/completion.h"
#include "client/cli/errors.h"
#include "client/cli/table.h"
#include "client/cli/torchrun_flags.h"
#include "common/exit_code.h"
#include "common/options/empty_options.h"
#include "common/options/help_text.h"
#include "common/options/misspelt_options.h"
#include "common/printable_text.h"
#include "common/status_macros.h"

namespace cohort::cli {
namespace {

// Longer lines are hard to read.
constexpr size_t kHelpColumnsMax = 120;

// Says what CLI11 does not know of: that a command follows "--".
class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(30); }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (!option->get_positional()) {
      return CLI::Formatter::make_option_opts(option);
    }
    return option->get_items_expected_max() > 1 ? " ..." : "";
  }

  std::string make_usage(const CLI::App* app, std::string name) const override {
    const bool takes_command = app->get_name() == "submit";
    const bool takes_program = app->get_name() == "run";
    std::string usage = absl::StrCat("Usage: ", name);
    if (!app->get_subcommands({}).empty()) absl::StrAppend(&usage, " COMMAND");
    for (const CLI::Option* option : app->get_options()) {
      if (!option->get_positional()) continue;
      const bool takes_several = option->get_items_expected_max() > 1;
      absl::StrAppend(&usage, takes_several ? " [" : " ", option->get_name(),
                      takes_several ? "...]" : "");
    }
    return absl::StrCat(usage, " [OPTIONS]",
                        takes_command ? " -- CMD [ARG]..." : "",
                        takes_program ? " PROGRAM [ARG]..." : "", "\n");
  }
};

// From `cohort` to the command that was being read.
std::vector<const CLI::App*> PathIn(const CLI::App& cohort) {
  std::vector<const CLI::App*> path = {&cohort};
  while (!path.back()->get_subcommands().empty()) {
    path.push_back(path.back()->get_subcommands().front());
  }
  return path;
}

// "cohort jobs get".
std::string CommandName(const CLI::App& cohort) {
  return absl::StrJoin(PathIn(cohort), " ",
                       [](std::string* out, const CLI::App* app) {
                         out->append(app->get_name());
                       });
}

// A flag of the command that was written before it; empty when none was.
std::string EarlyFlag(const CLI::App& cohort) {
  const std::vector<const CLI::App*> path = PathIn(cohort);
  for (const CLI::App* app : path) {
    if (app == path.back()) break;
    for (const std::string& word : app->remaining()) {
      std::string flag = word.substr(0, word.find('='));
      if (absl::StartsWith(flag, "-") &&
          path.back()->get_option_no_throw(flag) != nullptr) {
        return flag;
      }
    }
  }
  return "";
}

// A flag of one value that was given several; empty when none was.
std::string RepeatedFlag(const CLI::App& cohort) {
  for (const CLI::App* app : PathIn(cohort)) {
    for (const CLI::Option* option : app->get_options()) {
      const bool takes_one =
          option->get_items_expected_max() == 1 &&
          option->get_multi_option_policy() == CLI::MultiOptionPolicy::Throw;
      if (takes_one && option->count() > 1) return option->get_name();
    }
  }
  return "";
}

// A flag that `cohort nodes` takes says nothing to `cohort nodes get`.
absl::Status CheckFlagsComeLast(const CLI::App& cohort) {
  for (const CLI::App* app : PathIn(cohort)) {
    if (app == PathIn(cohort).back()) break;
    for (const CLI::Option* option : app->get_options()) {
      if (option->count() == 0) continue;
      const std::string name = CommandName(cohort);
      return UsageError(absl::StrCat("write ", option->get_name(), " after `",
                                     name, "`; see `", name, " --help`"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckNothingEmpty(const CLI::App& cohort) {
  for (const CLI::App* app : PathIn(cohort)) {
    COHORT_RETURN_IF_ERROR(CheckNoEmptyOptions(*app));
  }
  return absl::OkStatus();
}

// The command or flag that `word` may have meant below `app`; empty: none.
std::string Meant(const CLI::App& app, const std::string& word) {
  const bool is_flag = absl::StartsWith(word, "-");
  std::vector<std::string> names = NamesOf(app);
  const CLI::App* const parent = app.get_parent();
  if (parent == nullptr) names.insert(names.end(), {"help", "--version"});
  std::string nearest = NearestName(word, names);
  if (!nearest.empty() || is_flag) return nearest;
  if (parent != nullptr) {
    // `cohort nodes drain` for `cohort drain`.
    const bool is_command = !app.get_subcommands({}).empty() &&
                            absl::c_linear_search(NamesOf(*parent), word);
    return is_command ? absl::StrCat(parent->get_name(), " ", word) : "";
  }
  // `cohort stop` for `cohort jobs stop`.
  for (const CLI::App* command : app.get_subcommands({})) {
    if (absl::c_linear_search(NamesOf(*command), word)) {
      return absl::StrCat(command->get_name(), " ", word);
    }
  }
  return "";
}

absl::Status Misread(const CLI::App& app, const CLI::ParseError& error) {
  const std::string name = CommandName(app);
  std::string what = error.what();
  const bool lacks_command = absl::EndsWith(what, "subcommand is required");
  const std::vector<std::string> unread = app.remaining(/*recurse=*/true);
  if (const std::string flag = EarlyFlag(app); !flag.empty()) {
    what = absl::StrCat("write ", flag, " after `", name, "`");
  } else if (lacks_command && unread.empty()) {
    what = absl::StrCat("`", name, "` needs a command");
  } else if (lacks_command && absl::StartsWith(unread.front(), "-")) {
    const std::string meant = Meant(*PathIn(app).back(), unread.front());
    what =
        absl::StrCat("`", name, "` needs a command, and flags come after it");
    if (!meant.empty()) absl::StrAppend(&what, ": did you mean ", meant, "?");
  } else if (!unread.empty()) {
    what = absl::StrCat("`", name, "` does not know ", Shown(unread.front()));
    const std::string meant = Meant(*PathIn(app).back(), unread.front());
    if (!meant.empty()) absl::StrAppend(&what, ": did you mean ", meant, "?");
    if (name == "cohort submit" && !absl::StartsWith(unread.front(), "-")) {
      absl::StrAppend(&what, "; the command goes after --");
    }
  } else if (const std::string twice = RepeatedFlag(app); !twice.empty()) {
    what = absl::StrCat(twice, " is given more than once: give it once");
  }
  return UsageError(absl::StrCat(what, "; see `", name, " --help`"));
}

size_t HelpColumns() {
  const size_t columns = LineColumns(STDOUT_FILENO);
  return columns == 0 ? kHelpColumns : std::min(columns, kHelpColumnsMax);
}

// Whether help was asked for of a command that there is not.
bool NamesNoCommand(const CLI::App& cohort) {
  const std::vector<std::string> unread = cohort.remaining(/*recurse=*/true);
  return !unread.empty() && !absl::StartsWith(unread.front(), "-") &&
         !PathIn(cohort).back()->get_subcommands({}).empty();
}

}  // namespace

std::unique_ptr<CLI::App> NewApp(Invocation& invocation) {
  auto cohort = std::make_unique<CLI::App>(
      "Runs training jobs on a cluster: one head, a worker on each machine.",
      "cohort");
  // Before the commands, which inherit it.
  cohort->formatter(std::make_shared<HelpFormatter>());
  cohort->require_subcommand(1);
  AddRun(*cohort, invocation);
  AddUp(*cohort, invocation);
  AddDown(*cohort, invocation);
  AddSubmit(*cohort, invocation);
  AddJobs(*cohort, invocation);
  AddLogs(*cohort, JobScope(), invocation);
  AddActors(*cohort, invocation);
  AddGroups(*cohort, invocation);
  AddTasks(*cohort, invocation);
  AddDrivers(*cohort, invocation);
  AddExplain(*cohort, invocation);
  AddStack(*cohort, invocation);
  AddTimeline(*cohort, invocation);
  AddPlot(*cohort, invocation);
  AddCheckpoints(*cohort, invocation);
  AddStatus(*cohort, invocation);
  AddNodes(*cohort, invocation);
  AddGpus(*cohort, invocation);
  AddDrain(*cohort, invocation);
  AddAutoscaler(*cohort, invocation);
  AddTokens(*cohort, invocation);
  AddAuthorities(*cohort, invocation);
  AddAudit(*cohort, invocation);
  AddClusters(*cohort, invocation);
  AddResources(*cohort, invocation);
  AddEvents(*cohort, invocation);
  AddVersion(*cohort, invocation);
  AddOrphans(*cohort, invocation);
  AddHead(*cohort, invocation);
  // For the list of commands: main runs the daemons.
  cohort->add_subcommand(
      "worker", "Run the worker daemon (cohort-worker); takes its flags");
  cohort->footer(
      "`cohort help COMMAND` says more.  Exit codes: 0 success; 2 wrong "
      "command line; 124 a deadline passed; 125 cohort failed; otherwise the "
      "job's.");
  return cohort;
}

std::optional<int> ParseCommandLine(std::vector<std::string> arguments,
                                    Invocation& invocation) {
  if (!arguments.empty() && arguments.front() == "__complete") {
    arguments.erase(arguments.begin());
    PrintCompletions(*NewApp(invocation), arguments);
    return kExitOk;
  }
  const std::unique_ptr<CLI::App> cohort = NewApp(invocation);
  const bool is_run = !arguments.empty() && arguments.front() == "run";
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  if (is_run) {
    auto program = CutProgram(*cohort->get_subcommand("run"), arguments);
    if (!program.ok()) return Fail(program.status(), /*json=*/false);
    invocation.rest = *std::move(program);
  } else if (dashes != arguments.end()) {
    invocation.rest.emplace(std::make_move_iterator(dashes + 1),
                            std::make_move_iterator(arguments.end()));
    arguments.erase(dashes, arguments.end());
  }
  // Known early, so that a command line that cannot be read is answered as it
  // asks for.
  const bool json = AsksForJson(arguments);
  if (const absl::Status given = CheckNoEmptyAssignments(arguments);
      !given.ok()) {
    return Fail(UsageError(given.message()), json);
  }
  if (!arguments.empty() && arguments.front() == "help") {
    std::rotate(arguments.begin(), arguments.begin() + 1, arguments.end());
    arguments.back() = "--help";
  } else if (arguments == std::vector<std::string>{"--version"}) {
    arguments = {"version"};
  }
  const bool is_submit = !arguments.empty() && arguments.front() == "submit";
  std::reverse(arguments.begin(), arguments.end());
  try {
    cohort->parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0 || NamesNoCommand(*cohort)) {
      return Fail(Misread(*cohort, error), json);
    }
    std::ostringstream out;
    cohort->exit(error, out, out);
    const absl::Status printed = PrintRaw(WrapHelp(out.str(), HelpColumns()));
    return printed.ok() ? 0 : Fail(printed, json);
  }
  absl::Status given = CheckFlagsComeLast(*cohort);
  if (given.ok()) given = CheckNothingEmpty(*cohort);
  if (!given.ok()) return Fail(UsageError(given.message()), json);
  if (invocation.rest.has_value() && !is_submit && !is_run) {
    return Fail(UsageError(absl::StrCat(
                    "only `cohort submit` takes a command after --; see `",
                    CommandName(*cohort), " --help`")),
                json);
  }
  if (invocation.run == nullptr) {
    return Fail(UsageError("`head` and `worker` come first: `cohort head "
                           "[OPTIONS]`, `cohort worker [OPTIONS]`"),
                json);
  }
  return std::nullopt;
}

}  // namespace cohort::cli

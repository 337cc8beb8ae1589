#include "client/cli/command_line.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <sstream>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "client/cli/errors.h"
#include "client/cli/table.h"

namespace cohort::cli {
namespace {

// Says what CLI11 does not know of: that a command follows "--".
class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(30); }

  std::string make_usage(const CLI::App* app, std::string name) const override {
    const bool takes_command = app->get_name() == "submit";
    std::string usage = absl::StrCat("Usage: ", name);
    if (!app->get_subcommands({}).empty()) absl::StrAppend(&usage, " COMMAND");
    for (const CLI::Option* option : app->get_options()) {
      if (option->get_positional()) {
        absl::StrAppend(&usage, " ", option->get_name());
      }
    }
    return absl::StrCat(usage, " [OPTIONS]",
                        takes_command ? " -- CMD [ARG]..." : "", "\n");
  }
};

std::unique_ptr<CLI::App> NewApp(Invocation& invocation) {
  auto cohort = std::make_unique<CLI::App>(
      "Runs training jobs on a cluster: one head, a worker on each machine.",
      "cohort");
  // Before the commands, which inherit it.
  cohort->formatter(std::make_shared<HelpFormatter>());
  cohort->require_subcommand(1);
  AddUp(*cohort, invocation);
  AddSubmit(*cohort, invocation);
  AddJobs(*cohort, invocation);
  AddStatus(*cohort, invocation);
  AddNodes(*cohort, invocation);
  AddResources(*cohort, invocation);
  AddVersion(*cohort, invocation);
  // For the list of commands: main runs the daemons.
  for (const char* daemon : {"head", "worker"}) {
    cohort->add_subcommand(
        daemon, absl::StrCat("Run the ", daemon, " daemon (cohort-", daemon,
                             "); takes its flags"));
  }
  cohort->footer(
      "`cohort COMMAND --help` says more.  Exit codes: 0; 2 the command line "
      "is\n"
      "wrong; 124 a deadline passed; 125 cohort could not do it; else that of "
      "the job.");
  return cohort;
}

// "cohort jobs get": the command that was being read.
std::string CommandName(const CLI::App& app) {
  std::string name = app.get_name();
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    absl::StrAppend(&name, " ", at->get_name());
  }
  return name;
}

absl::Status Misread(const CLI::App& app, const CLI::ParseError& error) {
  const std::string name = CommandName(app);
  std::string what = error.what();
  const bool lacks_command = absl::EndsWith(what, "subcommand is required");
  const std::vector<std::string> unread = app.remaining(/*recurse=*/true);
  if (lacks_command && unread.empty()) {
    what = absl::StrCat("`", name, "` needs a command");
  } else if (!unread.empty()) {
    what = absl::StrCat("`", name, "` does not know ", OneLine(unread.front()));
    if (name == "cohort submit" && !absl::StartsWith(unread.front(), "-")) {
      absl::StrAppend(&what, "; the command goes after --");
    }
  }
  return UsageError(absl::StrCat(what, "; see `", name, " --help`"));
}

}  // namespace

std::optional<int> ParseCommandLine(std::vector<std::string> arguments,
                                    Invocation& invocation) {
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  if (dashes != arguments.end()) {
    invocation.rest.emplace(std::make_move_iterator(dashes + 1),
                            std::make_move_iterator(arguments.end()));
    arguments.erase(dashes, arguments.end());
  }
  // Known early, so that a command line that cannot be read is answered as it
  // asks for.
  const bool json = std::find(arguments.begin(), arguments.end(), "--json") !=
                    arguments.end();
  const std::unique_ptr<CLI::App> cohort = NewApp(invocation);
  const bool is_submit = !arguments.empty() && arguments.front() == "submit";
  std::reverse(arguments.begin(), arguments.end());
  try {
    cohort->parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return Fail(Misread(*cohort, error), json);
    std::ostringstream out;
    cohort->exit(error, out, out);
    const absl::Status printed = PrintRaw(out.str());
    return printed.ok() ? 0 : Fail(printed, json);
  }
  if (invocation.rest.has_value() && !is_submit) {
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

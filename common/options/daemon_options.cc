#include "common/options/daemon_options.h"

#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"

#include "common/build_info.h"
#include "common/exit_code.h"
#include "common/options/empty_options.h"
#include "common/options/help_text.h"
#include "common/options/misspelt_options.h"
#include "common/printable_text.h"
#include "common/status_macros.h"

namespace cohort {
namespace {

absl::Status Misread(const CLI::App& app, const CLI::ParseError& error) {
  COHORT_RETURN_IF_ERROR(CheckNoEmptyOptions(app));
  const std::vector<std::string> unread = app.remaining();
  std::string what = error.what();
  if (!unread.empty()) {
    what = absl::StrCat("it does not know ", Shown(unread.front()));
    const std::string meant = NearestName(unread.front(), NamesOf(app));
    if (!meant.empty()) absl::StrAppend(&what, ": did you mean ", meant, "?");
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, "; see `", app.get_name(), " --help`"));
}

}  // namespace

std::optional<int> ParseDaemonOptions(CLI::App& app, int argc,
                                      const char* const* argv) {
  const absl::Status assigned =
      CheckNoEmptyAssignments(std::vector<std::string>(argv + 1, argv + argc));
  if (!assigned.ok()) return FailToStart(app, assigned);
  app.set_version_flag("--version", std::string(GetBuildInfo().version));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      std::ostringstream out;
      const int code = app.exit(error, out, out);
      std::fputs(WrapHelp(out.str(), kHelpColumns).c_str(), stdout);
      return code;
    }
    return FailToStart(app, Misread(app, error));
  }
  const absl::Status given = CheckNoEmptyOptions(app);
  if (given.ok()) return std::nullopt;
  return FailToStart(app, given);
}

int FailToStart(const CLI::App& app, const absl::Status& status) {
  std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(),
               MessageLine(status.message()).c_str());
  return absl::IsInvalidArgument(status) ? kExitUsage : kExitFailure;
}

}  // namespace cohort

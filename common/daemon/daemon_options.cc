#include "common/daemon/daemon_options.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "common/build_info.h"
#include "common/exit_code.h"

namespace cohort {
namespace {

// The first flag that was given an empty value; empty when none was.
std::string EmptyFlag(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    const std::vector<std::string>& given = option->results();
    if (std::find(given.begin(), given.end(), "") != given.end()) {
      return option->get_name();
    }
  }
  return "";
}

absl::Status Empty(const std::string& flag) {
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " is empty: give a value, or leave the flag out"));
}

absl::Status Misread(const CLI::App& app, const CLI::ParseError& error) {
  if (const std::string empty = EmptyFlag(app); !empty.empty()) {
    return Empty(empty);
  }
  const std::vector<std::string> unread = app.remaining();
  const std::string what =
      unread.empty() ? error.what()
                     : absl::StrCat("it does not know ",
                                    absl::Utf8SafeCHexEscape(unread.front()));
  return absl::InvalidArgumentError(
      absl::StrCat(what, "; see `", app.get_name(), " --help`"));
}

}  // namespace

std::optional<int> ParseDaemonOptions(CLI::App& app, int argc,
                                      const char* const* argv) {
  app.set_version_flag("--version", std::string(GetBuildInfo().version));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return FailToStart(app, Misread(app, error));
  }
  const std::string empty = EmptyFlag(app);
  if (empty.empty()) return std::nullopt;
  return FailToStart(app, Empty(empty));
}

int FailToStart(const CLI::App& app, const absl::Status& status) {
  const std::string line = absl::StrReplaceAll(status.message(), {{"\n", " "}});
  std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), line.c_str());
  return absl::IsInvalidArgument(status) ? kExitUsage : kExitFailure;
}

}  // namespace cohort

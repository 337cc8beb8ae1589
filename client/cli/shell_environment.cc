#include "client/cli/shell_environment.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

#include "common/job_limits.h"

namespace cohort::cli {
namespace {

constexpr absl::string_view kOfSession[] = {
    "COLORTERM", "COLUMNS", "DISPLAY",         "LINES",    "LS_COLORS",
    "OLDPWD",    "PS1",     "PROMPT_COMMAND",  "PWD",      "SHLVL",
    "STY",       "TERM",    "WAYLAND_DISPLAY", "WINDOWID", "_"};
constexpr absl::string_view kPrefixes[] = {
    "COHORT_", "DBUS_", "GPG_", "OMPI_",         "PMIX_", "PMI_", "SLURM_",
    "SSH_",    "TERM_", "TMUX", "TORCHELASTIC_", "VTE_",  "XDG_"};

bool IsOfSession(absl::string_view name) {
  return absl::c_linear_search(kOfSession, name) ||
         absl::c_any_of(kPrefixes, [name](absl::string_view prefix) {
           return absl::StartsWith(name, prefix);
         });
}

}  // namespace

std::map<std::string, std::string> ShellEnvironment(char** variables) {
  std::map<std::string, std::string> kept;
  for (; *variables != nullptr; ++variables) {
    const std::string variable = *variables;
    const size_t equals = variable.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = variable.substr(0, equals);
    std::string value = variable.substr(equals + 1);
    if (IsOfSession(name) ||
        !cohort::CheckCommand({"x"}, {{name, value}}).ok()) {
      continue;
    }
    kept.emplace(name, std::move(value));
  }
  return kept;
}

}  // namespace cohort::cli

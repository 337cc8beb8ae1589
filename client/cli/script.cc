#include "client/cli/script.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "client/cli/errors.h"
#include "common/file.h"
#include "common/printable_text.h"
#include "common/status_macros.h"

namespace cohort::cli {
namespace {

bool IsFile(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

bool IsProgram(const std::string& path) {
  return IsFile(path) && access(path.c_str(), X_OK) == 0;
}

std::string VariableOf(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Links stay: where a virtual environment's leads is another Python.
std::string OnPath(const std::string& name) {
  const std::string program = FindProgram(VariableOf("PATH"), name);
  std::error_code error;
  return program.empty() ? "" : std::filesystem::absolute(program, error);
}

absl::StatusOr<std::string> FindPython() {
  for (const char* const variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const std::string prefix = VariableOf(variable);
    std::string python = prefix + "/bin/python3";
    if (!prefix.empty() && IsProgram(python)) return python;
  }
  std::string python = OnPath("python3");
  if (!python.empty()) return python;
  return UsageError(
      "there is no python3 on PATH: install it, or activate the environment "
      "that has it");
}

std::string Here() {
  std::error_code error;
  return std::filesystem::current_path(error).string();
}

absl::Status CheckProgram(const std::string& name) {
  if (name.find('/') == std::string::npos) {
    if (!OnPath(name).empty()) return absl::OkStatus();
    return UsageError(absl::StrCat(
        "there is no program ", Shown(name), " on PATH",
        IsFile(name) ? absl::StrCat(": for the file here write ./", Shown(name))
                     : ""));
  }
  if (IsProgram(name)) return absl::OkStatus();
  if (!IsFile(name)) {
    return UsageError(
        absl::StrCat("there is no program ", Shown(name), " in ", Here()));
  }
  return UsageError(absl::StrCat(
      Shown(name), " is not executable: chmod +x it, or run it as `python3 ",
      Shown(name), "`"));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> CommandFor(
    std::vector<std::string> program, ScriptKind kind) {
  const std::string& name = program.front();
  const bool is_script =
      kind == ScriptKind::kByName && absl::EndsWith(name, ".py");
  if (is_script && !IsFile(name)) {
    return UsageError(absl::StrCat(
        "there is no script ", Shown(name),
        absl::StartsWith(name, "/") ? "" : absl::StrCat(" in ", Here())));
  }
  if (!is_script && kind != ScriptKind::kModule) {
    COHORT_RETURN_IF_ERROR(CheckProgram(name));
    return program;
  }
  COHORT_ASSIGN_OR_RETURN(std::string python, FindPython());
  std::vector<std::string> command = {std::move(python)};
  if (kind == ScriptKind::kModule) command.emplace_back("-m");
  command.insert(command.end(), program.begin(), program.end());
  return command;
}

}  // namespace cohort::cli

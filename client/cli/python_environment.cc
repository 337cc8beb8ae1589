#include "client/cli/python_environment.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "common/printable_text.h"

namespace cohort::cli {
namespace {

constexpr char kNone[] = "none";

// A Python, and where it belongs to.
struct Python {
  std::filesystem::path program;
  std::filesystem::path prefix;  // above bin/
  bool is_program = false;       // named itself, not by its prefix
};

// Also of a program that only the workers have.
bool IsPythonName(const std::filesystem::path& path) {
  return absl::StartsWith(path.filename().string(), "python");
}

bool Exists(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

absl::StatusOr<Python> FindHere(const std::string& text) {
  std::error_code error;
  std::filesystem::path path =
      std::filesystem::absolute(text, error).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "venv/"
  const bool is_here = Exists(path);
  if (!is_here && text.front() != '/') {
    return UsageError(absl::StrCat(
        "--python ", Shown(text),
        ": no such file or directory (one that only the workers have is named "
        "with its absolute path)"));
  }
  const bool is_program = is_here ? !std::filesystem::is_directory(path, error)
                                  : IsPythonName(path);
  if (is_program) {
    return Python{.program = path,
                  .prefix = path.parent_path().parent_path(),
                  .is_program = true};
  }
  if (is_here && !Exists(path / "bin" / "python3")) {
    return UsageError(absl::StrCat(
        "--python ", Shown(text),
        ": the directory has no bin/python3 (name a venv, a conda prefix or a "
        "python program)"));
  }
  return Python{.program = path / "bin" / "python3", .prefix = path};
}

void Put(const Python& python, JobSpec& spec) {
  std::map<std::string, std::string>& environment = spec.environment;
  std::string& path = environment.emplace("PATH", "$PATH").first->second;
  path = absl::StrCat(python.program.parent_path().string(), ":", path);
  if (Exists(python.prefix / "conda-meta")) {
    environment.emplace("CONDA_PREFIX", python.prefix.string());
  } else if (!python.is_program || Exists(python.prefix / "pyvenv.cfg")) {
    environment.emplace("VIRTUAL_ENV", python.prefix.string());
  }
  // Its directory may have another one by these names.
  std::string& first = spec.command.front();
  if (python.is_program && (first == "python" || first == "python3")) {
    first = python.program.string();
  }
}

absl::Status PutShells(bool quiet, JobSpec& spec) {
  // A PATH that does not build on the node's chooses the Python itself.
  const auto path = spec.environment.find("PATH");
  if (path != spec.environment.end() &&
      !absl::StrContains(path->second, "$PATH") &&
      !absl::StrContains(path->second, "${PATH}")) {
    return absl::OkStatus();
  }
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const char* const prefix = std::getenv(variable);
    if (prefix == nullptr || *prefix != '/') continue;
    if (!Exists(prefix)) {
      if (!quiet) {
        Say(absl::StrCat("this shell's ", variable, ", ", prefix,
                         ", is not there"));
      }
      continue;
    }
    const absl::StatusOr<Python> python = FindHere(prefix);
    if (!python.ok()) continue;  // it was removed in part
    if (!quiet) {
      Say(absl::StrCat("the ranks' Python is that of this shell's ", variable,
                       ", ", prefix,
                       " (--python names another, --python none that of their "
                       "nodes)"));
    }
    // Only then it is sure to be meant.
    if (IsPythonName(spec.command.front())) {
      spec.environment.emplace("COHORT_PYTHON", python->program.string());
    }
    Put(*python, spec);
    break;
  }
  return absl::OkStatus();
}

}  // namespace

void AddPythonFlag(CLI::App& command, std::string& python) {
  command
      .add_option("--python", python,
                  "Python of the ranks, first on their PATH: a python program, "
                  "a venv or a conda prefix, at the same path on the workers; "
                  "none: that of their nodes (default: this shell's "
                  "VIRTUAL_ENV or CONDA_PREFIX, else none)")
      ->option_text("PATH|none");
}

absl::Status PutPython(const std::string& python, bool quiet, JobSpec& spec) {
  if (python == kNone) return absl::OkStatus();
  if (python.empty()) return PutShells(quiet, spec);
  const absl::StatusOr<Python> found = FindHere(python);
  if (!found.ok()) return found.status();
  spec.environment["COHORT_PYTHON"] = found->program.string();
  Put(*found, spec);
  return absl::OkStatus();
}

}  // namespace cohort::cli

#include "worker/python_interpreter.h"

#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "common/file.h"

namespace cohort::worker {
namespace {

// Of the variable `name`; empty when it is not set.
absl::string_view ValueOf(const std::vector<std::string>& environment,
                          const std::string& name) {
  for (const std::string& entry : environment) {
    absl::string_view value = entry;
    if (absl::ConsumePrefix(&value, absl::StrCat(name, "="))) return value;
  }
  return "";
}

}  // namespace

absl::StatusOr<std::string> DescribePython(
    const std::vector<std::string>& environment, const std::string& program) {
  const std::string named(ValueOf(environment, "COHORT_PYTHON"));
  if (!named.empty() && access(named.c_str(), X_OK) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the job's Python ", named,
        " is not on this node (install it there, or submit with another "
        "--python)"));
  }
  const std::string base = program.substr(program.rfind('/') + 1);
  const bool is_python = absl::StartsWith(base, "python");
  const bool is_path = is_python && base != program;
  const std::string name = is_python ? program : "python3";
  const std::string found =
      is_path ? program : FindProgram(ValueOf(environment, "PATH"), name);
  if (found.empty()) return absl::StrCat("no ", name, " is on its PATH");
  return absl::StrCat(is_python ? "its Python is " : "python3 on its PATH is ",
                      found);
}

}  // namespace cohort::worker

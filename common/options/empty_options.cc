#include "common/options/empty_options.h"

#include <algorithm>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/printable_text.h"

namespace cohort {
namespace {

absl::Status Empty(const std::string& flag) {
  return absl::InvalidArgumentError(
      absl::StrCat(Shown(flag), " is empty: give it a value or leave it out"));
}

}  // namespace

absl::Status CheckNoEmptyOptions(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    const std::vector<std::string>& values = option->results();
    const bool blank =
        std::any_of(values.begin(), values.end(), [](const std::string& value) {
          return absl::StripAsciiWhitespace(value).empty();
        });
    if (option->nonpositional() && blank) return Empty(option->get_name());
  }
  return absl::OkStatus();
}

absl::Status CheckNoEmptyAssignments(
    const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (absl::StartsWith(argument, "--") &&
        argument.find('=') == argument.size() - 1) {
      return Empty(argument.substr(0, argument.size() - 1));
    }
  }
  return absl::OkStatus();
}

}  // namespace cohort

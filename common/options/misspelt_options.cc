#include "common/options/misspelt_options.h"

#include <algorithm>
#include <cstddef>

#include "CLI/CLI.hpp"

namespace cohort {
namespace {

// A longer word is not a misspelt name.
constexpr size_t kWordBytesMax = 64;

// How many letters differ, are missing or too many, or change places with the
// next one (Damerau's distance, by adjacent exchanges).
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<std::vector<size_t>> of(a.size() + 1,
                                      std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        of[i][j] = i + j;
        continue;
      }
      const size_t changed = a[i - 1] == b[j - 1] ? 0 : 1;
      of[i][j] = std::min(
          {of[i - 1][j] + 1, of[i][j - 1] + 1, of[i - 1][j - 1] + changed});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        of[i][j] = std::min(of[i][j], of[i - 2][j - 2] + 1);
      }
    }
  }
  return of[a.size()][b.size()];
}

}  // namespace

std::string NearestName(absl::string_view word,
                        const std::vector<std::string>& names) {
  word = word.substr(0, word.find('='));
  if (word.size() > kWordBytesMax) return "";
  std::string nearest;
  size_t least = std::min<size_t>(2, word.size() / 3);
  for (const std::string& name : names) {
    const size_t distance = Distance(word, name);
    if (distance == 0 || distance > least) continue;
    if (distance < least || nearest.empty()) nearest = name;
    least = distance;
  }
  return nearest;
}

std::vector<std::string> NamesOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) {
    names.push_back(command->get_name());
  }
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) names.push_back(option->get_name());
  }
  return names;
}

}  // namespace cohort

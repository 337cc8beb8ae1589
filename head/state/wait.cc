#include "head/state/wait.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cohort::head {
namespace {

// Of a list of names.
constexpr size_t kNamesShown = 3;

}  // namespace

std::string NamesText(const std::vector<std::string>& names) {
  if (names.size() > kNamesShown) {
    const std::vector<std::string> shown(names.begin(),
                                         names.begin() + kNamesShown);
    return absl::StrCat(absl::StrJoin(shown, ", "), " and ",
                        names.size() - kNamesShown, " more");
  }
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    const bool last = i + 1 == names.size();
    absl::StrAppend(&text, i == 0 ? "" : last ? " and " : ", ", names[i]);
  }
  return text;
}

std::string RanksText(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return absl::StrCat("rank ", ranks.front());
  if (ranks.back() - ranks.front() + 1 == std::ssize(ranks)) {
    return absl::StrCat("ranks ", ranks.front(), " to ", ranks.back());
  }
  std::vector<std::string> names;
  for (const int rank : ranks) names.push_back(absl::StrCat(rank));
  return absl::StrCat("ranks ", NamesText(names));
}

}  // namespace cohort::head

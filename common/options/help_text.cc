#include "common/options/help_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace cohort {
namespace {

// Descriptions need so many columns to stay beside their flags.
constexpr size_t kDescriptionMin = 30;
constexpr size_t kBelowFlag = 6;

// Where the description begins that follows a flag; 0: nowhere.
size_t DescriptionIn(absl::string_view line) {
  const size_t begin = line.find_first_not_of(' ');
  if (begin >= kDescriptionMin) return begin;
  const size_t gap = begin == 2 ? line.find("  ", begin) : line.npos;
  return gap == line.npos ? 0 : line.find_first_not_of(' ', gap);
}

// `words` on lines that begin with `indent` spaces, the first after `begun`.
std::string Filled(std::string begun, absl::string_view words, size_t indent,
                   size_t columns) {
  std::string text;
  std::string line = std::move(begun);
  for (const absl::string_view word :
       absl::StrSplit(words, ' ', absl::SkipEmpty())) {
    const bool is_begun = line.size() > indent;
    if (is_begun && line.size() + 1 + word.size() > columns) {
      absl::StrAppend(&text, line, "\n");
      line.assign(indent, ' ');
    } else if (is_begun) {
      line.push_back(' ');
    }
    absl::StrAppend(&line, word);
  }
  return absl::StrCat(text, line);
}

std::string WrapLine(absl::string_view line, size_t columns) {
  const size_t description = DescriptionIn(line);
  if (description == 0) {
    const size_t indent = std::min(line.find_first_not_of(' '), line.size());
    return Filled(std::string(indent, ' '), line, indent, columns);
  }
  const absl::string_view words = line.substr(description);
  if (description + kDescriptionMin <= columns) {
    return Filled(std::string(line.substr(0, description)), words, description,
                  columns);
  }
  const absl::string_view flag =
      absl::StripTrailingAsciiWhitespace(line.substr(0, description));
  return absl::StrCat(
      flag, flag.empty() ? "" : "\n",
      Filled(std::string(kBelowFlag, ' '), words, kBelowFlag, columns));
}

}  // namespace

std::string WrapHelp(absl::string_view help, size_t columns) {
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(help, '\n')) {
    lines.push_back(line.size() <= columns ? std::string(line)
                                           : WrapLine(line, columns));
  }
  return absl::StrJoin(lines, "\n");
}

}  // namespace cohort

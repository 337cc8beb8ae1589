#include "client/ignore_rules.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace cohort::client {
namespace {

constexpr absl::string_view kAnyDepth = "**";

bool IsInClass(absl::string_view name, unsigned char c) {
  constexpr std::pair<absl::string_view, bool (*)(unsigned char)> kClasses[] = {
      {"alnum", absl::ascii_isalnum}, {"alpha", absl::ascii_isalpha},
      {"blank", absl::ascii_isblank}, {"cntrl", absl::ascii_iscntrl},
      {"digit", absl::ascii_isdigit}, {"graph", absl::ascii_isgraph},
      {"lower", absl::ascii_islower}, {"print", absl::ascii_isprint},
      {"punct", absl::ascii_ispunct}, {"space", absl::ascii_isspace},
      {"upper", absl::ascii_isupper}, {"xdigit", absl::ascii_isxdigit}};
  for (const auto& [known, contains] : kClasses) {
    if (known == name) return contains(c);
  }
  return false;
}

// The character at `at`, which a backslash may quote; moves beyond it.
// REQUIRES: at < glob.size().
unsigned char TakeChar(absl::string_view glob, size_t& at) {
  if (glob[at] == '\\' && at + 1 < glob.size()) ++at;
  return static_cast<unsigned char>(glob[at++]);
}

// As MatchOne, for a glob that begins with "[".  One that never ends matches
// nothing.
size_t MatchBracket(absl::string_view glob, unsigned char c) {
  size_t at = 1;
  const bool is_negated = glob.size() > 1 && (glob[1] == '!' || glob[1] == '^');
  if (is_negated) ++at;
  bool found = false;
  for (const size_t first = at; at < glob.size();) {
    // A "]" that comes first stands for itself.
    if (glob[at] == ']' && at > first) return found != is_negated ? at + 1 : 0;
    if (absl::StartsWith(glob.substr(at), "[:")) {
      const size_t end = glob.find(":]", at + 2);
      if (end == absl::string_view::npos) return 0;
      found |= IsInClass(glob.substr(at + 2, end - at - 2), c);
      at = end + 2;
      continue;
    }
    const unsigned char low = TakeChar(glob, at);
    unsigned char high = low;
    if (at + 1 < glob.size() && glob[at] == '-' && glob[at + 1] != ']') {
      ++at;
      high = TakeChar(glob, at);
    }
    found |= low <= c && c <= high;
  }
  return 0;
}

// How much of `glob`, which is not empty and begins with no "*", matches `c`; 0
// when it does not.
size_t MatchOne(absl::string_view glob, char c) {
  switch (glob[0]) {
    case '?':
      return 1;
    case '[':
      return MatchBracket(glob, static_cast<unsigned char>(c));
    case '\\':  // One that quotes nothing matches nothing.
      return glob.size() > 1 && glob[1] == c ? 2 : 0;
    default:
      return glob[0] == c ? 1 : 0;
  }
}

// Whether `glob` matches all of `text`, neither with a slash.  When the text
// after a "*" does not match, only the last "*" need take more of it.
bool MatchesPart(absl::string_view glob, absl::string_view text) {
  size_t g = 0;
  size_t after_star = absl::string_view::npos;
  size_t taken = 0;  // of the text, by that star
  for (size_t t = 0; t < text.size();) {
    if (g < glob.size() && glob[g] == '*') {
      after_star = ++g;
      taken = t;
      continue;
    }
    const size_t n = g < glob.size() ? MatchOne(glob.substr(g), text[t]) : 0;
    if (n > 0) {
      g += n;
      ++t;
    } else if (after_star != absl::string_view::npos) {
      g = after_star;
      t = ++taken;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

// The same, with parts for characters and "**" for "*".  The last of `globs` is
// never "**".
bool MatchesPath(const std::vector<std::string>& globs,
                 const std::vector<absl::string_view>& parts) {
  // For speed: most names end otherwise.
  if (!MatchesPart(globs.back(), parts.back())) return false;
  size_t g = 0;
  size_t after_star = absl::string_view::npos;
  size_t taken = 0;
  for (size_t p = 0; p < parts.size();) {
    if (g < globs.size() && globs[g] == kAnyDepth) {
      after_star = ++g;
      taken = p;
    } else if (g < globs.size() && MatchesPart(globs[g], parts[p])) {
      ++g;
      ++p;
    } else if (after_star != absl::string_view::npos) {
      g = after_star;
      p = ++taken;
    } else {
      return false;
    }
  }
  return g == globs.size();
}

// Without the spaces at its end that no backslash quotes.
absl::string_view WithoutTrailingSpaces(absl::string_view line) {
  size_t end = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const bool is_quoted = line[i] == '\\';
    if (is_quoted) ++i;
    if (is_quoted || line[i] != ' ') end = std::min(i + 1, line.size());
  }
  return line.substr(0, end);
}

}  // namespace

IgnoreRules::IgnoreRules(absl::string_view text) {
  absl::ConsumePrefix(&text, "\xef\xbb\xbf");  // A byte order mark.
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    absl::ConsumeSuffix(&line, "\r");
    if (absl::StartsWith(line, "#")) {
      ++lines_;
    } else {
      Add(WithoutTrailingSpaces(line));
    }
  }
}

void IgnoreRules::Add(absl::string_view pattern) {
  Rule rule = {.text = std::string(pattern), .line = ++lines_};
  rule.is_negated = absl::ConsumePrefix(&pattern, "!");
  rule.directories_only = absl::ConsumeSuffix(&pattern, "/");
  if (pattern.empty()) return;
  rule.parts = absl::StrSplit(pattern, '/');
  if (rule.parts.size() == 1) {
    rule.parts.insert(rule.parts.begin(), std::string(kAnyDepth));
  } else if (rule.parts.front().empty()) {
    rule.parts.erase(rule.parts.begin());
  }
  // What is in a directory, at any depth, and not the directory.
  if (rule.parts.back() == kAnyDepth) rule.parts.push_back("*");
  rules_.push_back(std::move(rule));
}

const IgnoreRules::Rule* IgnoreRules::Find(absl::string_view name,
                                           bool is_directory) const {
  if (rules_.empty()) return nullptr;
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '/');
  const auto found =
      std::find_if(rules_.rbegin(), rules_.rend(), [&](const Rule& rule) {
        return (is_directory || !rule.directories_only) &&
               MatchesPath(rule.parts, parts);
      });
  return found == rules_.rend() ? nullptr : &*found;
}

}  // namespace cohort::client

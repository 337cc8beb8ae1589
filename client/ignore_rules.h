#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace cohort::client {

// The patterns of one ignore file, as gitignore(5) has them.
//
// Names are bytes; case counts.  A match takes at most the product of the
// lengths of pattern and name.  Thread-compatible.
class IgnoreRules {
 public:
  struct Rule {
    std::string text;  // as it was written
    int line = 0;
    bool is_negated = false;        // "!": what matches is not left out
    bool directories_only = false;  // it ended in "/"
    // The pattern between its slashes; "**" stands for any number of
    // directories.  One without a slash matches at any depth: {"**", "*.o"}.
    std::vector<std::string> parts;
  };

  IgnoreRules() = default;
  // A whole file.
  explicit IgnoreRules(absl::string_view text);

  // One more pattern, stronger than those before it.
  void Add(absl::string_view pattern);

  // The one that decides on `name`, "a/b" below the directory of the file: the
  // last that matches.  Null: none does.
  const Rule* Find(absl::string_view name, bool is_directory) const;

 private:
  int lines_ = 0;
  std::vector<Rule> rules_;
};

}  // namespace cohort::client

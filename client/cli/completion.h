#pragma once

#include <string>
#include <vector>

#include "CLI/App.hpp"
#include "absl/strings/string_view.h"

namespace cohort::cli {

// Where a command line has a word to complete, and what may stand there.
struct CompletionPoint {
  std::vector<std::string> words;  // commands or flags; not yet by prefix
  bool takes_job = false;
  bool takes_node = false;
};

// Of the line `cohort WORD...`, whose last word is completed.
CompletionPoint FindCompletion(const CLI::App& cohort,
                               const std::vector<std::string>& words);

// `cohort __complete WORD...`, which tools/completion/ asks: prints what the
// last word may become, one a line.  Silent and quick without a head.
void PrintCompletions(const CLI::App& cohort,
                      const std::vector<std::string>& words);

}  // namespace cohort::cli

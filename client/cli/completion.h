#pragma once

#include <set>
#include <string>
#include <vector>

#include "CLI/App.hpp"
#include "absl/strings/string_view.h"

#include "client/job.h"

namespace cohort::cli {

// Where a command line has a word to complete, and what may stand there.
struct CompletionPoint {
  // Commands, flags or values; not yet by prefix.  Nothing at all: the shell
  // offers files.
  std::vector<std::string> words;
  // What is named there: JOB, ACTOR, GROUP, NODE, GPU, ATTEMPT.
  std::set<std::string> nouns;
  std::vector<JobState> states;  // which a JOB is in there; empty: any
  // The word that is completed: what of it stays, as "--state=RUNNING,", and
  // how what may stand after that begins.
  std::string kept;
  std::string begun;
};

// Lets completion offer these as the values of `option`, which help still shows
// by its option text.  Gives `option`.
CLI::Option* OfferValues(CLI::Option* option,
                         const std::vector<std::string>& values);

// Of the line `cohort WORD...`, whose last word is completed.  bash gives the
// "=" of "--flag=value" as a word of its own.
CompletionPoint FindCompletion(const CLI::App& cohort,
                               const std::vector<std::string>& words);

// `cohort __complete WORD...`, which tools/completion/ asks: prints what the
// last word may become, one a line.  Silent and quick without a head.
void PrintCompletions(const CLI::App& cohort,
                      const std::vector<std::string>& words);

}  // namespace cohort::cli

#pragma once

#include <string>
#include <vector>

#include "CLI/App.hpp"
#include "absl/strings/string_view.h"

// What a misspelt word of a command line may have meant.
namespace cohort {

// The one of `names` that is nearest to `word`, of a flag without its value,
// and differs in at most two letters and a third of them; empty: none does.
std::string NearestName(absl::string_view word,
                        const std::vector<std::string>& names);

// The commands and flags of `app`.
std::vector<std::string> NamesOf(const CLI::App& app);

}  // namespace cohort

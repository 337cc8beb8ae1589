#pragma once

#include <string>

#include "client/node.h"

namespace cohort::cli {

// An explanation for a person who has ten seconds: what is missing, who has it,
// what would help.  Ends with a newline.
std::string ExplanationText(const Explanation& explanation);

// Of a job that does not fit the cluster: why, and on lines of their own what
// else keeps it.  Ends with a newline.
std::string NeverFitsText(const Explanation& explanation);

}  // namespace cohort::cli

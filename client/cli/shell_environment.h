#pragma once

#include <map>
#include <string>

namespace cohort::cli {

// The variables of `variables` (NAME=VALUE, ended by null) that ranks elsewhere
// may have: not those of a terminal, a session, an outer job or this cluster,
// nor those that a worker sets or no job may have.  Pure.
std::map<std::string, std::string> ShellEnvironment(char** variables);

}  // namespace cohort::cli

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "CLI/App.hpp"

#include "client/cli/command.h"

namespace cohort::cli {

// All commands, which put what is to be done into `invocation`.
std::unique_ptr<CLI::App> NewApp(Invocation& invocation);

// Reads the arguments after the program's name into `invocation`, whose `run`
// then does what they say.  Gives an exit code instead when there is nothing to
// run: help was asked for (on stdout), or something is wrong (on stderr).
std::optional<int> ParseCommandLine(std::vector<std::string> arguments,
                                    Invocation& invocation);

}  // namespace cohort::cli

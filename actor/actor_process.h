#pragma once

#include <string>
#include <vector>

namespace cohort::actor {

// What cohort::Init does in a process that a worker daemon started as an actor:
// asks the daemon what it is, makes the object, and serves calls until the
// daemon ends the process.  Methods and the constructor run on this thread.
//
// A constructor that fails or throws, and a process that is over for its
// daemon, end the program, with the reason on stderr.  `arguments`: those that
// the program was started with (RankOf).
[[noreturn]] void ServeActor(const std::vector<std::string>& arguments);

}  // namespace cohort::actor

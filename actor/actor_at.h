#pragma once

#include <cstdint>
#include <memory>

#include "actor/call_target.h"

namespace cohort::actor {

// The way to one of the actors that share a process, by that to the process,
// which is the way to its first.
std::shared_ptr<CallTarget> ActorAt(std::shared_ptr<CallTarget> process,
                                    uint32_t actor);

}  // namespace cohort::actor

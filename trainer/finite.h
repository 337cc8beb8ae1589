#pragma once

#include <span>

#include "trainer/comm/comm.h"

namespace cohort::trainer {

// Whether no element is infinite or NaN: one pass over memory, which ends soon
// after the first that is.  Integers are finite.
// REQUIRES: memory that the CPU can reach.
bool AllFinite(std::span<const Buffer> buffers);

}  // namespace cohort::trainer

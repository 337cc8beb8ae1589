#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cohort/v1/node.pb.h"
#include "common/job_id.h"
#include "common/strong_id.h"

// What the head tells nodes, as values.
namespace cohort::head {

using Goal = v1::Goal;

// A process within its attempt: {slot, incarnation}.
using Incarnation = std::pair<int, uint64_t>;
using Incarnations = std::set<Incarnation>;

// What all ranks of an attempt gave under one tag, by rank.  Shared: the table
// and the messages to each node of the attempt.
using SharedExchange = std::shared_ptr<const v1::Exchange>;

}  // namespace cohort::head

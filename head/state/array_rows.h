#pragma once

#include <cstdint>
#include <vector>

#include "head/store/records.h"

// What the row of an array says of its elements before their own rows do, which
// are written in turns (BD-1): that they were submitted, are held, are let go.
// Stateless.
namespace cohort::head {

// An element as it is submitted.
JobRecord NewElement(const ArrayRecord& array, uint32_t index,
                     uint64_t sequence);

// `job`, which is PENDING, is held or let go.  False: it was so before.
bool SetHeld(const ArrayHold& hold, JobRecord& job);

// Makes `jobs` what their arrays say, as it was when these rows were written:
// those that this adds or changes are behind.
void CatchUp(const std::vector<ArrayRecord>& arrays,
             std::vector<JobRecord>& jobs);

}  // namespace cohort::head

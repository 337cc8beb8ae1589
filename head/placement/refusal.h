#pragma once

#include <optional>

#include "head/placement/candidates.h"
#include "head/placement/placement.h"

// Why a request was not placed, in words and numbers.
namespace cohort::head {

// Set when the request makes no sense, whatever the nodes.
std::optional<Refusal> RefuseNonsense(const GangRequest& request);

// REQUIRES: no plan exists in `scope`, and the request makes sense.  Takes time
// linear in forms, and in label sets and domains where the request names some.
Refusal Refuse(const Scope& scope, const GangRequest& request);

}  // namespace cohort::head

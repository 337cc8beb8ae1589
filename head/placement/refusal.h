#pragma once

#include <optional>
#include <string>

#include "head/placement/candidates.h"
#include "head/placement/placement.h"

// Why a request was not placed, in words and numbers.
namespace cohort::head {

// Set when the request makes no sense, whatever the nodes.
std::optional<Refusal> RefuseNonsense(const GangRequest& request);

// Where a request comes nearest to a place: all nodes or, where all ranks must
// be in one domain of a level, the domain with the most room.
struct NearestRoom {
  Room room;
  // Nothing: all nodes, or no node has the level.  A value may be empty.
  std::optional<std::string> domain;
};
NearestRoom FindNearestRoom(const Scope& scope, const GangRequest& request,
                            Fit& fit, bool idle);

// Whether all ranks must be in one domain of several nodes.
bool InOneDomain(const GangRequest& request);

// REQUIRES: no plan exists in `scope`, and the request makes sense.  Takes time
// linear in forms, and in label sets and domains where the request names some.
Refusal Refuse(const Scope& scope, const GangRequest& request);

}  // namespace cohort::head

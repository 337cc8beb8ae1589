#pragma once

#include <string>

#include "client/explanation.h"

// As client/json.h says.
namespace cohort {

// {job, blockers:[{shape, nodes, fail:[{by, nodes, short}]}], ahead,
// smallest_change} and more beside it.
std::string ExplanationJson(const Explanation& explanation);

}  // namespace cohort

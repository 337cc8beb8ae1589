#pragma once

#include "head/explain/remedy.h"
#include "head/state/node_table.h"
#include "head/state/wait.h"

namespace cohort::head {

NamedChange NameChange(const Remedy& remedy, const NodeTable& nodes);

}  // namespace cohort::head

#pragma once

#include <string>
#include <vector>

#include "common/job_id.h"
#include "head/explain/remedy.h"
#include "head/state/node_table.h"

namespace cohort::head {

// A change that would let a job start, in words.
struct NamedChange {
  std::string kind;         // "FEWER_WORKERS"
  bool of_request = false;  // false: of the cluster
  std::string text;         // "6 workers instead of 8"
  std::string how;          // "--num-workers 6", "cohort undrain n2", or empty

  friend bool operator==(const NamedChange&, const NamedChange&) = default;
};

NamedChange NameChange(const Remedy& remedy, const NodeTable& nodes);

// "a", "a and b", "a, b and c", "a, b, c and 2 more".
std::string NamesText(const std::vector<std::string>& names);

}  // namespace cohort::head

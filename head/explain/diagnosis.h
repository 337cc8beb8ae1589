#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cohort/v1/explain.pb.h"
#include "head/explain/remedy.h"
#include "head/placement/gang_request.h"
#include "head/state/attempt_table.h"
#include "head/state/node_table.h"

// Why a request has no place now, and what would change that.
namespace cohort::head {

struct Diagnosis {
  bool fits = false;  // then nothing of what follows is said
  // In the planner's words and in numbers (CountNodes), with those who hold
  // most of each resource that is short.
  v1::Blocker blocker;
  Remedies remedies;
};

struct DiagnosisLimits {
  // Told of each resource.
  size_t holders_max = 5;
  // Looked at to find them and the jobs whose end helps: 10 ms.
  int64_t leases_max = 50'000;
  bool find_remedies = true;
  RemedyLimits remedies;
};

// A pure function of the tables.  Bounded: linear in forms and label sets, and
// in nodes and leases only as CountNodes and `limits` say; remedies also copy
// the nodes.
Diagnosis Diagnose(const NodeTable& nodes, const AttemptTable& attempts,
                   const GangRequest& request,
                   const DiagnosisLimits& limits = {});

}  // namespace cohort::head

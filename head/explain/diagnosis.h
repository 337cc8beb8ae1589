#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/job_id.h"
#include "common/resources.h"
#include "head/explain/census.h"
#include "head/explain/remedy.h"
#include "head/placement/gang_request.h"
#include "head/state/attempt_table.h"
#include "head/state/node_table.h"

// Why a request has no place now, and what would change that.
namespace cohort::head {

// A job that holds some of a resource that the request lacks, on nodes that it
// could use.
struct Holder {
  std::string resource;
  JobId job;
  Amount amount;
  int64_t nodes = 0;

  friend bool operator==(const Holder&, const Holder&) = default;
};

struct Diagnosis {
  GangRequest request;
  bool fits = false;  // then nothing of what follows is said
  // The planner's words: what it needs, where there is room, what is short.
  std::string reason;
  // Not even if every node known were idle and took new work.
  bool never_fits = false;
  Census census;
  // Of each resource that is short those that hold most first.
  std::vector<Holder> holders;
  bool holders_complete = true;
};

struct DiagnosisLimits {
  // Told of each resource.
  size_t holders_max = 5;
  // Looked at to find them and the jobs whose end helps: 10 ms.
  int64_t leases_max = 50'000;
  RemedyLimits remedies;
};

// A pure function of the tables.  Bounded: linear in forms and label sets, and
// in nodes and leases only as CountNodes and `limits` say.
Diagnosis Diagnose(const NodeTable& nodes, const AttemptTable& attempts,
                   const GangRequest& request, DiagnosisLimits limits = {});

// The same, and what would let the request start.
struct FullDiagnosis {
  Diagnosis diagnosis;
  Remedies remedies;
};
FullDiagnosis DiagnoseFully(const NodeTable& nodes,
                            const AttemptTable& attempts,
                            const GangRequest& request,
                            DiagnosisLimits limits = {});

}  // namespace cohort::head

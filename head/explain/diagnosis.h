#pragma once

#include <cstddef>
#include <cstdint>

#include "cohort/v1/explain.pb.h"
#include "head/explain/node_trial.h"
#include "head/explain/remedy.h"
#include "head/placement/gang_request.h"
#include "head/state/attempt_table.h"
#include "head/state/node_table.h"

// Why a request has no place now, and what would change that.
namespace cohort::head {

struct Diagnosis {
  bool fits = false;  // then nothing of what follows is said
  // In the planner's words and in numbers, with those who hold most of each
  // resource that is short.
  //
  // A node counts once, under the first of the things that keep it, in the
  // order of Misfit::By; of resources under the one that it lacks most.  What
  // is told of a shortage is of the nodes counted there or, where all are
  // counted elsewhere, of all.  Workers that fit are counted up to the gang on
  // each node; where each worker must have another node, one on each.
  //
  //   EX-1: nodes = nodes_that_fit + the sum over failures of their nodes.
  //         With room for the whole gang on those that fit the request fits.
  v1::Blocker blocker;
  Remedies remedies;
};

struct DiagnosisLimits {
  // Told of each resource.
  size_t holders_max = 5;
  // Looked at to find them and the jobs whose end helps: 10 ms.
  int64_t leases_max = 50'000;
  RemedyLimits remedies;
};

// A pure function of the tables; `trial` is of `nodes`, null: no remedies are
// looked for; the end of `own`, the job of slots that wait, is none.  Takes
// time linear in forms and label sets, in the nodes that take no new work (with
// a selector on `host`, in all) and in leases as `limits` say.
Diagnosis Diagnose(const NodeTable& nodes, const AttemptTable& attempts,
                   const GangRequest& request, const DiagnosisLimits& limits,
                   NodeTrial* trial, const JobId& own = JobId());

}  // namespace cohort::head

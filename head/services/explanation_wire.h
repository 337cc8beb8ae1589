#pragma once

#include "cohort/v1/cluster.pb.h"
#include "head/explain/explanation.h"

// Explanations as cluster.proto says them.  Stateless.
namespace cohort::head {

// `jobs` gives the names of those ahead.
v1::ExplainJobResponse ToWire(const Explanation& explanation,
                              const JobTable& jobs);
v1::Blocker ToWire(const Diagnosis& diagnosis);

}  // namespace cohort::head

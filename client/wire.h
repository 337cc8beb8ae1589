#pragma once

#include "client/job.h"
#include "cohort/v1/cluster.pb.h"

// What users say, as the wire writes it.
namespace cohort::client {

// REQUIRES: ValidateJobSpec(spec).ok().
v1::JobSpec ToWire(const JobSpec& spec);

// Without its page.
v1::ListJobsRequest ToWire(const ListOptions& options);

}  // namespace cohort::client

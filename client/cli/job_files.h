#pragma once

#include <string>

#include "client/cluster.h"

namespace cohort::cli {

// Says on stderr what an ended job's ranks left in their working directories,
// and how to fetch it; nothing where that cannot be had at once.
void SayWhatIsLeft(const Cluster& cluster, const Job& job);

// Says on stderr what its ranks left in their run directory, which goes with a
// cluster that ends now.
void SayWhatGoes(const Cluster& cluster, const Job& job);

}  // namespace cohort::cli

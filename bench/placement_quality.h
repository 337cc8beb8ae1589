#pragma once

#include <cstdint>

namespace cohort::bench {

// How well GPUs are used, not how fast.
struct Quality {
  double placed = 0;    // share of the gangs offered
  double stranded = 0;  // share of the GPUs that stayed free though some gang
                        // that needs GPUs waited
};

struct Compared {
  Quality ours;
  Quality other;
};

struct ComparedWithAll {
  Quality ours;
  // Takes each gang that fits when it comes, as we do, but knows those to come
  // and tries every way to place it.
  Quality every_way;
  // May also leave out gangs that fit.
  Quality every_subset;
};

// Clusters of 3 nodes with 4 GPUs and 6 gangs each, offered one after another;
// the others use the most GPUs that can be (placed: have the most gangs).
ComparedWithAll CompareWithExhaustive(int clusters, uint64_t seed);

// A cluster of `nodes` 8-GPU nodes through `jobs` gangs of the mixed load,
// which come a little faster than the cluster can run them, as time goes by;
// `other` is best-fit-decreasing: whenever something ends it sorts all that
// waits by GPUs and puts each member on the fullest node that takes it.
// `placed` counts those that began before the last one came.
Compared CompareWithBestFitDecreasing(int nodes, int jobs, uint64_t seed);

}  // namespace cohort::bench

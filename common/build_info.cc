#include "common/build_info.h"

#include "cohort_build_values.h"

namespace cohort {

BuildInfo GetBuildInfo() {
  return {.version = COHORT_BUILD_VERSION,
          .commit = COHORT_BUILD_COMMIT,
          .build = COHORT_BUILD_KIND};
}

}  // namespace cohort

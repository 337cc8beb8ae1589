#pragma once

#include "absl/strings/string_view.h"

namespace cohort {

// What this binary was built from.  Immutable; a library of its own
// (build_info), so that a new commit links the programs again and nothing else.
struct BuildInfo {
  absl::string_view version;  // "0.1.0"
  // "1a2b3c4d5e6f", with "+changes" where the working tree differed, or
  // "unknown" outside a repository.
  absl::string_view commit;
  absl::string_view build;  // "RelWithDebInfo GNU 12.2.0"
};

BuildInfo GetBuildInfo();

}  // namespace cohort

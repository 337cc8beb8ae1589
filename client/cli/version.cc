#include "absl/strings/str_cat.h"

#include "client/cli/command.h"
#include "client/json.h"
#include "common/build_info.h"
#include "common/exit_code.h"
#include "common/status_macros.h"

namespace cohort::cli {

void AddVersion(CLI::App& cohort, Invocation& invocation) {
  CLI::App* version = cohort.add_subcommand("version", "Print the version");
  AddJsonFlag(*version, invocation);
  version->callback([&invocation] {
    invocation.run = [&invocation]() -> absl::StatusOr<int> {
      const BuildInfo build = GetBuildInfo();
      COHORT_RETURN_IF_ERROR(
          Print(invocation.json
                    ? VersionJson(build)
                    : absl::StrCat("cohort ", build.version, " (commit ",
                                   build.commit, ", ", build.build, ")")));
      return kExitOk;
    };
  });
}

}  // namespace cohort::cli

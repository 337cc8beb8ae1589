#include <cstdio>
#include <map>
#include <string>

#include "CLI/CLI.hpp"

#include "common/exit_code.h"
#include "tests/sim/sim_cluster.h"

// Replays seeds of the simulation:  sim_main --seed 41 --verbose
int main(int argc, char** argv) {
  cohort::sim::SimOptions options;
  int seeds = 1;
  CLI::App app("Runs the simulated cluster over one seed or several.");
  app.add_option("--seed", options.seed, "The first seed")
      ->capture_default_str();
  app.add_option("--seeds", seeds, "How many, one after the other")
      ->capture_default_str();
  app.add_option("--jobs", options.jobs, "Jobs a seed")->capture_default_str();
  app.add_option("--programs", options.programs, "Programs that own actors")
      ->capture_default_str();
  app.add_option("--crash-at-write", options.crash_at_write,
                 "The head crashes at this write of its store");
  app.add_option("--crash", options.crash, "before, torn, after, effects")
      ->transform(
          CLI::CheckedTransformer(std::map<std::string, cohort::sim::Crash>{
              {"before", cohort::sim::Crash::kBefore},
              {"torn", cohort::sim::Crash::kTorn},
              {"after", cohort::sim::Crash::kAfter},
              {"effects", cohort::sim::Crash::kAmidEffects}}));
  app.add_flag("!--calm", options.faulty, "Nothing else goes wrong");
  app.add_flag("--verbose", options.verbose, "Print faults and edges");
  CLI11_PARSE(app, argc, argv);

  cohort::sim::Counters counters;
  int failed = 0;
  for (int i = 0; i < seeds; ++i) {
    const cohort::sim::SimResult result =
        cohort::sim::SimCluster(options).Run();
    counters.Add(result.counters);
    if (!result.violation.empty()) {
      std::printf("seed %llu: %s\n",
                  static_cast<unsigned long long>(options.seed),
                  result.violation.c_str());
      std::fflush(stdout);  // of a long run, while it goes on
      ++failed;
    } else if (seeds == 1) {
      std::printf("seed %llu: ok, trace %016llx\n",
                  static_cast<unsigned long long>(options.seed),
                  static_cast<unsigned long long>(result.trace));
    }
    ++options.seed;
  }
  for (const auto& [name, times] : counters.all()) {
    std::printf("%10lld %s\n", static_cast<long long>(times), name.c_str());
  }
  std::printf("%d of %d seeds ok\n", seeds - failed, seeds);
  return failed == 0 ? cohort::kExitOk : cohort::kExitFailure;
}

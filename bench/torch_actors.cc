// An actor of a program with LibTorch, beside a process of the same program.
// See README.md.

#include <spawn.h>
#include <sys/wait.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "actor/actor.h"
#include "bench/report.h"
#include "bench/timing.h"
#include "common/check.h"

namespace cohort::bench {

// In no anonymous namespace: it is called by its name.
class Ones {
 public:
  double Sum(int n) const { return torch::ones({n}).sum().item<double>(); }
};

namespace {

// Instead of measuring: sums once, and ends.
constexpr char kAlone[] = "--alone";

void SpawnOne(const char* self) {
  const char* const argv[] = {self, kAlone, nullptr};
  pid_t child = 0;
  COHORT_CHECK(posix_spawn(&child, self, nullptr, nullptr,
                           const_cast<char* const*>(argv), environ) == 0);
  waitpid(child, nullptr, 0);
}

}  // namespace

int Main(int argc, char** argv, Runtime runtime) {
  const Flags flags = ParseFlags(argc, argv);
  Report report("torch_actors", flags);
  Figure one{.name = "create/one", .unit = "ms"};
  Figure many{
      .name = "create/many", .unit = "actors/s", .less_is_better = false};
  Samples alone;
  constexpr int kMany = 8;
  for (int run = 0; run < (flags.quick ? 3 : 7); ++run) {
    alone.values.push_back(1e3 * SecondsFor([&] { SpawnOne(argv[0]); }));
    one.samples.values.push_back(1e3 * SecondsFor([&] {
                                   const auto actor = runtime.Create<Ones>();
                                   Ok(actor.Call<&Ones::Sum>(2).Get());
                                   COHORT_CHECK(runtime.Kill(actor).ok());
                                 }));
    std::vector<Handle<Ones>> actors(kMany);
    many.samples.values.push_back(kMany / SecondsFor([&] {
                                    for (auto& actor : actors)
                                      actor = runtime.Create<Ones>();
                                    std::vector<Future<double>> sums;
                                    for (const auto& actor : actors) {
                                      sums.push_back(actor.Call<&Ones::Sum>(2));
                                    }
                                    for (const Future<double>& sum : sums)
                                      Ok(sum.Get());
                                  }));
    for (const auto& actor : actors) COHORT_CHECK(runtime.Kill(actor).ok());
  }
  one.floor = alone.median();
  report.Add(one);
  report.Add(many);
  return 0;
}

}  // namespace cohort::bench

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == cohort::bench::kAlone) {
    return cohort::bench::Ones().Sum(2) == 2 ? 0 : 1;
  }
  return cohort::bench::Main(argc, argv, cohort::Init(argc, argv));
}

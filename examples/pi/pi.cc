// Pi by a million tasks: each throws darts at a square and counts those that
// fall into the circle.
//
//   cohort up --detach && ./pi && cohort down
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <vector>

#include "actor/actor.h"

int64_t Hits(uint64_t seed, int64_t darts) {
  std::minstd_rand random(static_cast<unsigned>(seed));
  std::uniform_real_distribution<double> place(-1, 1);
  int64_t hits = 0;
  for (int64_t i = 0; i < darts; ++i) {
    const double x = place(random);
    const double y = place(random);
    if (x * x + y * y <= 1) ++hits;
  }
  return hits;
}

int main(int argc, char** argv) {
  cohort::Runtime runtime = cohort::Init(argc, argv);
  const int tasks = argc > 1 ? std::atoi(argv[1]) : 1'000'000;
  const int64_t darts = 100;
  std::vector<cohort::Future<int64_t>> futures;
  futures.reserve(tasks);
  for (int i = 0; i < tasks; ++i) {
    futures.push_back(runtime.Run<&Hits>(i + 1, darts));
  }
  int64_t hits = 0;
  for (const cohort::Future<int64_t>& future : futures) {
    const absl::StatusOr<int64_t> some = future.Get();
    if (!some.ok()) {
      std::cerr << some.status().message() << "\n";
      return 1;
    }
    hits += *some;
  }
  std::cout << 4.0 * static_cast<double>(hits) /
                   (static_cast<double>(tasks) * static_cast<double>(darts))
            << "\n";
}

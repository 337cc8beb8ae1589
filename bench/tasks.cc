// Tasks as a program uses them, on a cluster of its own: how fast one is there
// and how many a second.  See README.md.

#include <deque>
#include <functional>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "actor/actor.h"
#include "bench/report.h"
#include "bench/timing.h"
#include "common/check.h"

namespace cohort::bench {

// In no anonymous namespace: they are called by their names.
int Plus(int n) { return n + 1; }

class Plain {
 public:
  int Plus(int n) { return n + 1; }
};

namespace {

// The floor: a call to an actor, which is a message there and one back, too.
void MeasureOne(Runtime& runtime, const Flags& flags, Report& report) {
  const auto actor = runtime.Create<Plain>();
  Ok(actor.Call<&Plain::Plus>(1).Get());
  Figure sync{.name = "task/sync", .unit = "us"};
  Samples calls;
  const int count = flags.quick ? 1'000 : 5'000;
  for (int run = 0; run < (flags.quick ? 3 : 9); ++run) {
    Samples tasks;
    Samples floor;
    for (int i = 0; i < count; ++i) {
      tasks.values.push_back(
          1e6 * SecondsFor([&] { Ok(runtime.Run<&Plus>(1).Get()); }));
      floor.values.push_back(
          1e6 * SecondsFor([&] { Ok(actor.Call<&Plain::Plus>(1).Get()); }));
    }
    sync.samples.values.push_back(tasks.median());
    calls.values.push_back(floor.median());
  }
  sync.floor = calls.median();
  report.Add(sync);
}

void MeasureMany(Runtime& runtime, const Flags& flags, Report& report) {
  Figure many{.name = "task/flood", .unit = "tasks/s", .less_is_better = false};
  const int count = flags.quick ? 100'000 : 300'000;
  for (int run = 0; run < (flags.quick ? 3 : 9); ++run) {
    many.samples.values.push_back(count / SecondsFor([&] {
                                    std::deque<Future<int>> held;
                                    for (int i = 0; i < count; ++i) {
                                      if (held.size() == 10'000) {
                                        Ok(held.front().Get());
                                        held.pop_front();
                                      }
                                      held.push_back(runtime.Run<&Plus>(i));
                                    }
                                    for (const Future<int>& each : held) {
                                      Ok(each.Get());
                                    }
                                  }));
  }
  report.Add(many);
}

// Of a shape that no executor serves yet.
void MeasureFirst(Runtime& runtime, const Flags& flags, Report& report) {
  Figure first{.name = "task/first_of_shape", .unit = "ms"};
  for (int run = 0; run < (flags.quick ? 3 : 9); ++run) {
    TaskOptions options;
    options.num_cpus = 0.01 * (run + 1);
    first.samples.values.push_back(
        1e3 * SecondsFor([&] { Ok(runtime.Run<&Plus>(options, 1).Get()); }));
  }
  report.Add(first);
}

}  // namespace

int Main(int argc, char** argv, Runtime runtime) {
  const Flags flags = ParseFlags(argc, argv);
  Report report("tasks", flags);
  Ok(runtime.Run<&Plus>(1).Get());
  MeasureOne(runtime, flags, report);
  MeasureMany(runtime, flags, report);
  MeasureFirst(runtime, flags, report);
  return 0;
}

}  // namespace cohort::bench

int main(int argc, char** argv) {
  return cohort::bench::Main(argc, argv, cohort::Init(argc, argv));
}

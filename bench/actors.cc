// Actors as a program uses them, on a cluster of its own: how fast they are
// there, called and gone.  See README.md.

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <deque>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "actor/actor.h"
#include "bench/report.h"
#include "bench/timing.h"
#include "common/check.h"

namespace cohort::bench {

// In no anonymous namespace: it is called by its name.
class Counted {
 public:
  int Add(int n) { return sum_ += n; }
  int Pid() const { return getpid(); }

 private:
  int sum_ = 0;
};

namespace {

constexpr char kEmpty[] = "--empty";

// This program, which ends at once: what a process of it costs at least.
void SpawnOne(const char* self) {
  const char* const argv[] = {self, kEmpty, nullptr};
  pid_t child = 0;
  COHORT_CHECK(posix_spawn(&child, self, nullptr, nullptr,
                           const_cast<char* const*>(argv), environ) == 0);
  waitpid(child, nullptr, 0);
}

// `count` actors at once, created by as many threads as would create them in a
// program that has several.
std::vector<Handle<Counted>> CreateMany(Runtime& runtime, int count) {
  std::vector<Handle<Counted>> actors(static_cast<size_t>(count));
  std::vector<std::thread> creators;
  constexpr size_t kCreators = 8;
  for (size_t c = 0; c < kCreators; ++c) {
    creators.emplace_back([&, c] {
      for (size_t i = c; i < actors.size(); i += kCreators) {
        actors[i] = runtime.Create<Counted>();
      }
    });
  }
  for (std::thread& each : creators) each.join();
  return actors;
}

void MeasureCreation(Runtime& runtime, const Flags& flags, const char* self,
                     Report& report) {
  Figure one{.name = "create/one", .unit = "ms"};
  Figure many{
      .name = "create/many", .unit = "actors/s", .less_is_better = false};
  Samples floors;
  const int count = flags.quick ? 20 : 40;
  for (int run = 0; run < (flags.quick ? 3 : 7); ++run) {
    floors.values.push_back(1e3 * SecondsFor([&] { SpawnOne(self); }));
    one.samples.values.push_back(1e3 * SecondsFor([&] {
                                   const auto actor = runtime.Create<Counted>();
                                   Ok(actor.Call<&Counted::Add>(1).Get());
                                   COHORT_CHECK(runtime.Kill(actor).ok());
                                 }));
    std::vector<Handle<Counted>> actors;
    many.samples.values.push_back(count / SecondsFor([&] {
                                    actors = CreateMany(runtime, count);
                                    std::vector<Future<int>> sums;
                                    for (const auto& actor : actors) {
                                      sums.push_back(
                                          actor.Call<&Counted::Add>(1));
                                    }
                                    for (const Future<int>& sum : sums)
                                      Ok(sum.Get());
                                  }));
    for (const auto& actor : actors) COHORT_CHECK(runtime.Kill(actor).ok());
  }
  one.floor = floors.median();
  many.floor = 1e3 / floors.median();
  report.Add(one);
  report.Add(many);
}

void MeasureCalls(const Handle<Counted>& actor, const Flags& flags,
                  Report& report) {
  Figure sync{.name = "call/sync", .unit = "us"};
  Figure async{
      .name = "call/async_1024", .unit = "calls/s", .less_is_better = false};
  const int calls = flags.quick ? 1'000 : 5'000;
  const int flood = flags.quick ? 100'000 : 300'000;
  for (int run = 0; run < (flags.quick ? 3 : 9); ++run) {
    Samples each;
    for (int i = 0; i < calls; ++i) {
      each.values.push_back(
          1e6 * SecondsFor([&] { Ok(actor.Call<&Counted::Add>(1).Get()); }));
    }
    sync.samples.values.push_back(each.median());
    async.samples.values.push_back(flood / SecondsFor([&] {
                                     std::deque<Future<int>> held;
                                     for (int i = 0; i < flood; ++i) {
                                       if (held.size() == 1'024) {
                                         Ok(held.front().Get());
                                         held.pop_front();
                                       }
                                       held.push_back(
                                           actor.Call<&Counted::Add>(1));
                                     }
                                     for (const Future<int>& each_held : held)
                                       Ok(each_held.Get());
                                   }));
  }
  report.Add(sync);
  report.Add(async);
}

// The number after `name` in a file of /proc.
double NumberIn(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!absl::StartsWith(line, name)) continue;
    const std::vector<std::string> words =
        absl::StrSplit(line, ' ', absl::SkipEmpty());
    double value = 0;
    if (words.size() > 1 && absl::SimpleAtod(words[1], &value)) return value;
  }
  return 0;
}

void MeasureFootprint(const Handle<Counted>& actor, Report& report) {
  const std::string proc =
      absl::StrCat("/proc/", Ok(actor.Call<&Counted::Pid>().Get()));
  Figure memory{.name = "idle/pss", .unit = "MiB"};
  memory.samples.values.push_back(NumberIn(proc + "/smaps_rollup", "Pss:") /
                                  1024);
  report.Add(memory);
  std::ifstream status(proc + "/status");
  Figure threads{.name = "idle/threads", .unit = "threads"};
  for (std::string line; std::getline(status, line);) {
    double count = 0;
    if (absl::StartsWith(line, "Threads:") &&
        absl::SimpleAtod(line.substr(8), &count)) {
      threads.samples.values.push_back(count);
    }
  }
  report.Add(threads);
}

// From SIGKILL of the process to the error of a call that it was in.
void MeasureDeath(Runtime& runtime, const Flags& flags, Report& report) {
  Figure death{.name = "death/told", .unit = "ms"};
  for (int run = 0; run < (flags.quick ? 3 : 9); ++run) {
    const auto actor = runtime.Create<Counted>();
    const int pid = Ok(actor.Call<&Counted::Pid>().Get());
    death.samples.values.push_back(
        1e3 * SecondsFor([&] {
          kill(pid, SIGKILL);
          while (actor.Call<&Counted::Add>(1).Get().ok()) {
          }
        }));
  }
  report.Add(death);
}

}  // namespace

int Main(int argc, char** argv, Runtime runtime) {
  const Flags flags = ParseFlags(argc, argv);
  Report report("actors", flags);
  const auto actor = runtime.Create<Counted>();
  Ok(actor.Call<&Counted::Add>(1).Get());
  MeasureFootprint(actor, report);
  MeasureCalls(actor, flags, report);
  MeasureDeath(runtime, flags, report);
  MeasureCreation(runtime, flags, argv[0], report);
  return 0;
}

}  // namespace cohort::bench

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == cohort::bench::kEmpty) return 0;
  return cohort::bench::Main(argc, argv, cohort::Init(argc, argv));
}

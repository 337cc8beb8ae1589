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

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "actor/actor.h"
#include "bench/grpc_echo.h"
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

// Instead of measuring: says that it is there, over gRPC, and ends.
constexpr char kRegister[] = "--register";

// As a process that does no more.
void SpawnOne(const char* self, const std::string& address) {
  const char* const argv[] = {self, kRegister, address.c_str(), nullptr};
  pid_t child = 0;
  COHORT_CHECK(posix_spawn(&child, self, nullptr, nullptr,
                           const_cast<char* const*>(argv), environ) == 0);
  waitpid(child, nullptr, 0);
}

// `make` for each of 0 to count - 1, by as many threads as would create actors
// in a program that has several.
void ByThreads(size_t count, const std::function<void(size_t)>& make) {
  std::vector<std::thread> threads;
  constexpr size_t kThreads = 8;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; i < count; i += kThreads) make(i);
    });
  }
  for (std::thread& each : threads) each.join();
}

void MeasureCreation(Runtime& runtime, const Flags& flags, const char* self,
                     Report& report) {
  Figure one{.name = "create/one", .unit = "ms"};
  Figure many{
      .name = "create/many", .unit = "actors/s", .less_is_better = false};
  Samples alone;
  Samples together;
  const size_t count = flags.quick ? 20 : 40;
  const std::string address = absl::StrCat("unix:/tmp/cohort-bench-", getpid());
  const EchoServer server(address);
  for (int run = 0; run < (flags.quick ? 3 : 7); ++run) {
    alone.values.push_back(1e3 * SecondsFor([&] { SpawnOne(self, address); }));
    together.values.push_back(
        count / SecondsFor([&] {
          ByThreads(count, [&](size_t /*i*/) { SpawnOne(self, address); });
        }));
    one.samples.values.push_back(1e3 * SecondsFor([&] {
                                   const auto actor = runtime.Create<Counted>();
                                   Ok(actor.Call<&Counted::Add>(1).Get());
                                   COHORT_CHECK(runtime.Kill(actor).ok());
                                 }));
    std::vector<Handle<Counted>> actors(count);
    many.samples.values.push_back(
        count / SecondsFor([&] {
          ByThreads(count,
                    [&](size_t i) { actors[i] = runtime.Create<Counted>(); });
          std::vector<Future<int>> sums;
          for (const auto& actor : actors) {
            sums.push_back(actor.Call<&Counted::Add>(1));
          }
          for (const Future<int>& sum : sums) Ok(sum.Get());
        }));
    for (const auto& actor : actors) COHORT_CHECK(runtime.Kill(actor).ok());
  }
  one.floor = alone.median();
  many.floor = together.median();
  report.Add(one);
  report.Add(many);
}

// A group whose actors share two processes, until each has answered.
void MeasureShared(Runtime& runtime, const Flags& flags, Report& report) {
  Figure shared{
      .name = "create/shared", .unit = "actors/s", .less_is_better = false};
  constexpr int kActors = 10'000;
  for (int run = 0; run < (flags.quick ? 3 : 7); ++run) {
    Group<Counted> group;
    shared.samples.values.push_back(
        kActors / SecondsFor([&] {
          group = runtime.CreateGroup<Counted>({.processes = 2},
                                               {{"actors", kActors}});
          Ok(group.Reduce<&Counted::Add, Sum>(1).Get());
        }));
    COHORT_CHECK(runtime.Kill(group).ok());
  }
  report.Add(shared);
}

// Of a process, since it began.
double CpuSeconds(int pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> words =
      absl::StrSplit(line.substr(line.rfind(')') + 2), ' ');
  double user = 0;
  double system = 0;
  // The 14th and 15th of all.
  COHORT_CHECK(words.size() > 12 && absl::SimpleAtod(words[11], &user) &&
               absl::SimpleAtod(words[12], &system));
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// 1,024 at a time, each result read.
void Flood(const Handle<Counted>& actor, int calls) {
  std::deque<Future<int>> held;
  for (int i = 0; i < calls; ++i) {
    if (held.size() == 1'024) {
      Ok(held.front().Get());
      held.pop_front();
    }
    held.push_back(actor.Call<&Counted::Add>(1));
  }
  for (const Future<int>& each : held) Ok(each.Get());
}

void MeasureCalls(const Handle<Counted>& actor, const Flags& flags,
                  Report& report) {
  Figure sync{.name = "call/sync", .unit = "us"};
  Figure slow{.name = "call/sync_p99", .unit = "us"};
  Figure sync_cpu{.name = "call/sync_cpu", .unit = "us"};
  Figure async{
      .name = "call/async_1024", .unit = "calls/s", .less_is_better = false};
  Figure async_cpu{.name = "call/async_cpu", .unit = "us"};
  const int calls = flags.quick ? 1'000 : 5'000;
  const int flood = flags.quick ? 100'000 : 300'000;
  const int pid = Ok(actor.Call<&Counted::Pid>().Get());
  const auto cpu = [pid] { return CpuSeconds(getpid()) + CpuSeconds(pid); };
  for (int run = 0; run < (flags.quick ? 3 : 9); ++run) {
    Samples each;
    double before = cpu();
    for (int i = 0; i < calls; ++i) {
      each.values.push_back(
          1e6 * SecondsFor([&] { Ok(actor.Call<&Counted::Add>(1).Get()); }));
    }
    sync.samples.values.push_back(each.median());
    slow.samples.values.push_back(each.Percentile(99));
    sync_cpu.samples.values.push_back(1e6 * (cpu() - before) / calls);
    before = cpu();
    async.samples.values.push_back(flood /
                                   SecondsFor([&] { Flood(actor, flood); }));
    async_cpu.samples.values.push_back(1e6 * (cpu() - before) / flood);
  }
  for (const Figure* figure : {&sync, &slow, &sync_cpu, &async, &async_cpu}) {
    report.Add(*figure);
  }
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
  MeasureCalls(actor, flags, report);
  MeasureDeath(runtime, flags, report);
  MeasureCreation(runtime, flags, argv[0], report);
  MeasureShared(runtime, flags, report);
  return 0;
}

}  // namespace cohort::bench

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == cohort::bench::kRegister) {
    cohort::bench::EchoClient(argv[2]).Call();
    return 0;
  }
  return cohort::bench::Main(argc, argv, cohort::Init(argc, argv));
}

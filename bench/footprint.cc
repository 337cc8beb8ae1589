// What stands idle costs: head and worker, an actor's process, and actors that
// share one.  See README.md.

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "actor/actor.h"
#include "bench/report.h"
#include "bench/timing.h"
#include "common/check.h"

namespace cohort::bench {

// In no anonymous namespace: it is called by its name.
class Idle {
 public:
  int Pid() const { return getpid(); }
};

namespace {

// The number after `name` in a file of /proc.
double NumberIn(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!absl::StartsWith(line, name)) continue;
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    double value = 0;
    if (words.size() > 1 && absl::SimpleAtod(words[1], &value)) return value;
  }
  return 0;
}

double PssMib(int pid) {
  return NumberIn(absl::StrCat("/proc/", pid, "/smaps_rollup"), "Pss:") / 1024;
}
double ThreadsOf(int pid) {
  return NumberIn(absl::StrCat("/proc/", pid, "/status"), "Threads:");
}

// The newest process of that program, of any cluster; 0: there is none.
int NewestOf(const std::string& program) {
  int newest = 0;
  double started = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator each("/proc", error), end;
       !error && each != end; each.increment(error)) {
    int pid = 0;
    if (!absl::SimpleAtoi(each->path().filename().string(), &pid)) continue;
    std::ifstream file(each->path() / "stat");
    std::string line;
    std::getline(file, line);
    if (!absl::StrContains(line, absl::StrCat("(", program, ")"))) continue;
    const std::vector<std::string> words =
        absl::StrSplit(line.substr(line.rfind(')') + 2), ' ');
    double at = 0;
    // The 22nd of all is when it started.
    if (words.size() > 19 && absl::SimpleAtod(words[19], &at) &&
        at >= started) {
      started = at;
      newest = pid;
    }
  }
  return newest;
}

void Add(const std::string& name, const char* unit, double value,
         Report& report) {
  Figure figure{.name = name, .unit = unit};
  figure.samples.values.push_back(value);
  report.Add(figure);
}

void MeasureShared(Runtime& runtime, Report& report) {
  constexpr int kActors = 10'000;
  const auto one = runtime.CreateGroup<Idle>({.processes = 1}, {{"actors", 2}});
  const auto many =
      runtime.CreateGroup<Idle>({.processes = 1}, {{"actors", kActors}});
  const int small = Ok(one.at(0).Call<&Idle::Pid>().Get());
  const auto pids = Ok(many.Call<&Idle::Pid>().Get());
  COHORT_CHECK(std::set<int>(pids.begin(), pids.end()).size() == 1u);
  Add("shared/threads", "threads", ThreadsOf(pids.front()), report);
  Add("shared/pss_of_each", "KiB",
      1024 * (PssMib(pids.front()) - PssMib(small)) / kActors, report);
}

}  // namespace

int Main(int argc, char** argv, Runtime runtime) {
  const Flags flags = ParseFlags(argc, argv);
  Report report("footprint", flags);
  const auto actor = runtime.Create<Idle>();
  const int pid = Ok(actor.Call<&Idle::Pid>().Get());
  Add("actor/pss", "MiB", PssMib(pid), report);
  Add("actor/threads", "threads", ThreadsOf(pid), report);
  double threads = 0;
  for (const std::string program : {"head", "worker"}) {
    const int daemon = NewestOf("cohort-" + program);
    if (daemon == 0) continue;
    Add(program + "/pss", "MiB", PssMib(daemon), report);
    threads += ThreadsOf(daemon);
  }
  Add("daemons/threads", "threads", threads, report);
  MeasureShared(runtime, report);
  return 0;
}

}  // namespace cohort::bench

int main(int argc, char** argv) {
  return cohort::bench::Main(argc, argv, cohort::Init(argc, argv));
}

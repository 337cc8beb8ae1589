// How fast gangs are placed, how that grows with the cluster, and how well they
// are placed.  See README.md.

#include "head/placement/placement.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "bench/placement_quality.h"
#include "bench/planner_load.h"
#include "bench/report.h"
#include "bench/sim_head.h"
#include "common/check.h"
#include "common/latch.h"
#include "head/store/records.h"
#include "rpc/wire_values.h"

namespace cohort::bench {
namespace {

constexpr double kFull = 0.8;

// Kept from the optimiser.
volatile int64_t g_sink = 0;

double Seconds(absl::Time since) {
  return absl::ToDoubleSeconds(absl::Now() - since);
}

// ---- the planner alone ----

// Writing down what the planner found, at best.
double CopyRate(const std::vector<head::Plan>& plans) {
  int64_t members = 0;
  const absl::Time start = absl::Now();
  for (const head::Plan& plan : plans) {
    const head::Plan copy = plan;
    g_sink = g_sink + static_cast<int64_t>(copy.parts.size());
    for (const head::PlannedPart& part : copy.parts) {
      members += static_cast<int64_t>(part.ranks.size());
    }
  }
  return static_cast<double>(members) / Seconds(start);
}

// A planner without an index at best: one look at each node, for each gang.
double ScanRate(int nodes, int gangs) {
  SeededRandom random(1);
  std::vector<head::NodeForm> forms;
  for (int n = 0; n < nodes; ++n) {
    const head::NodeRecord record = GpuNode(NodeId::New(random), n);
    head::NodeForm form;
    form.total = form.available =
        rpc::FromWire(record.node.resources()).value();
    form.shares.assign(static_cast<size_t>(record.node.devices_size()),
                       Amount::FromUnits(1));
    forms.push_back(std::move(form));
  }
  int64_t members = 0;
  const absl::Time start = absl::Now();
  for (int g = 0; g < gangs; ++g) {
    const head::GangRequest request = NextGang(random);
    int64_t room = 0;
    for (const head::NodeForm& form : forms) {
      room += head::Capacity(form, request);
    }
    g_sink = g_sink + room;
    members += request.num_workers;
  }
  return static_cast<double>(members) / Seconds(start);
}

void BenchPlanner(Report& report, const Flags& flags, int nodes) {
  Figure figure{.name = absl::StrCat("planner/", nodes),
                .unit = "members/s",
                .less_is_better = false,
                .peer = "looking at each node"};
  PlannerLoad load(nodes, /*seed=*/7);
  load.FillTo(kFull);
  const int gangs = flags.quick ? 2'000 : 10'000;
  for (int run = 0; run < (flags.quick ? 2 : 5); ++run) {
    const absl::Time start = absl::Now();
    const int64_t members = load.Churn(gangs);
    figure.samples.values.push_back(static_cast<double>(members) /
                                    Seconds(start));
  }
  load.RememberPlans();
  load.Churn(gangs);
  figure.floor = CopyRate(load.plans());
  figure.peer_value = ScanRate(nodes, 100);
  report.Add(figure);
}

// ---- instructions ----

constexpr int kCountedGangs = 1'000;

// What callgrind counts; not inlined, so that it finds the name.
__attribute__((noinline)) int64_t CountedChurn(PlannerLoad& load) {
  return load.Churn(kCountedGangs);
}

// The child of CountInstructions: prints the members it placed.
int RunCounted(int nodes) {
  PlannerLoad load(nodes, /*seed=*/7);
  load.FillTo(kFull);
  load.Churn(kCountedGangs);  // a first round: the forms of a used cluster
  std::printf("members %lld\n", static_cast<long long>(CountedChurn(load)));
  return 0;
}

// Instructions a member on a cluster of `nodes`; none without valgrind.
std::optional<double> CountInstructions(const char* program, int nodes) {
  const std::string command = absl::StrCat(
      "valgrind --tool=callgrind --callgrind-out-file=/dev/null "
      "--toggle-collect='*CountedChurn*' ",
      program, " --count ", nodes, " 2>&1");
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"),
                                                   pclose);
  if (pipe == nullptr) return std::nullopt;
  double members = 0;
  double instructions = 0;
  char line[512];
  while (fgets(line, sizeof(line), pipe.get()) != nullptr) {
    const std::vector<std::string> words = absl::StrSplit(
        absl::StripAsciiWhitespace(line), ' ', absl::SkipEmpty());
    if (words.size() < 2) continue;
    if (words[0] == "members") (void)absl::SimpleAtod(words[1], &members);
    // "==PID== Collected : N".
    if (words.size() >= 4 && words[1] == "Collected") {
      (void)absl::SimpleAtod(words[3], &instructions);
    }
  }
  if (members <= 0 || instructions <= 0) return std::nullopt;
  return instructions / members;
}

void BenchGrowth(Report& report, const char* program) {
  std::optional<double> small;
  for (const int nodes : {1'000, 5'000, 10'000}) {
    const std::optional<double> count = CountInstructions(program, nodes);
    if (!count.has_value()) {
      std::fprintf(stderr,
                   "placement: no instructions counted; install "
                   "valgrind for them\n");
      return;
    }
    if (!small.has_value()) small = count;
    report.Add({.name = absl::StrCat("instructions/", nodes),
                .samples = {{*count}},
                .unit = "a member",
                .floor = small});
  }
}

// ---- committed and visible ----

// Appends as many bytes in as many batches to a file, each synced.
double SyncSeconds(const std::string& path, const std::vector<size_t>& sizes) {
  const int fd = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
  COHORT_CHECK(fd >= 0) << path;
  const absl::Time start = absl::Now();
  for (const size_t size : sizes) {
    const std::string bytes(size, 'x');
    COHORT_CHECK(write(fd, bytes.data(), bytes.size()) ==
                 static_cast<ssize_t>(bytes.size()));
    COHORT_CHECK(fdatasync(fd) == 0);
  }
  const double took = Seconds(start);
  close(fd);
  return took;
}

// One run of gangs onto idle nodes, until the last member is visible.
class VisibleRun {
 public:
  VisibleRun(const std::string& directory, int nodes, int in_flight)
      : in_flight_(in_flight),
        head_(directory, [this](const NodeId&, const auto& desired) {
          visible_ += desired.processes_size();
          if (visible_ == total_) all_visible_.Open();
        }) {
    // 64 members, as NextGang has them on average but in order.
    constexpr int kGangs[] = {32, 1, 8, 1, 16, 2, 4};
    total_ = int64_t{nodes} * 8;
    for (int64_t members = 0; members < total_; members += 64) {
      gangs_.insert(gangs_.end(), std::begin(kGangs), std::end(kGangs));
    }
    head_.OnStrand([this, nodes] {
      SeededRandom random(3);
      for (int n = 0; n < nodes; ++n) {
        head_.Join(GpuNode(NodeId::New(random), n));
      }
    });
    head_.Flush();
    head_.TakeBatchSizes();
  }

  // Members a second.
  double Run() {
    const absl::Time start = absl::Now();
    head_.OnStrand([this] {
      for (int i = 0; i < in_flight_; ++i) SubmitNext();
    });
    all_visible_.Wait();
    const double took = Seconds(start);
    head_.Flush();
    return static_cast<double>(total_) / took;
  }

  double Floor(const std::string& path) {
    return static_cast<double>(total_) /
           SyncSeconds(path, head_.TakeBatchSizes());
  }

 private:
  void SubmitNext() {
    if (gangs_.empty()) return;
    const int members = gangs_.front();
    gangs_.pop_front();
    head_.Submit(members, "CPU=8,GPU=1,memory=64GiB", [this] { SubmitNext(); });
  }

  const int in_flight_;
  int64_t total_ = 0;
  std::deque<int> gangs_;
  int64_t visible_ = 0;
  Latch all_visible_;
  SimHead head_;
};

void BenchVisible(Report& report, const Flags& flags, const std::string& dir,
                  int nodes) {
  Figure figure{.name = absl::StrCat("visible/", nodes),
                .unit = "members/s",
                .less_is_better = false};
  std::vector<double> floors;
  for (int run = 0; run < (flags.quick ? 1 : 3); ++run) {
    const std::string path = absl::StrCat(dir, "/visible-", run);
    VisibleRun one(path, nodes, /*in_flight=*/64);
    figure.samples.values.push_back(one.Run());
    floors.push_back(one.Floor(path + ".floor"));
  }
  figure.floor = Samples{floors}.median();
  report.Add(figure);
}

// ---- back to back on a full node ----

// Groups of `members` that wait for one 8-GPU node, whose processes end as soon
// as they are to run.
class BackToBack {
 public:
  BackToBack(const std::string& directory, int members, int groups)
      : members_(members),
        groups_(groups),
        head_(directory, [this](const NodeId& node, const auto& desired) {
          Hear(node, desired);
        }) {}

  // Groups a second, from the first start to the last end.
  double Run() {
    // They wait before the node comes, so that submitting is not measured.
    head_.OnStrand([this] {
      for (int g = 0; g < groups_; ++g) {
        head_.Submit(members_, "CPU=8,GPU=1,memory=64GiB", [] {});
      }
    });
    head_.Flush();
    head_.TakeBatchSizes();
    const absl::Time start = absl::Now();
    head_.OnStrand([this] {
      SeededRandom random(3);
      head_.Join(GpuNode(NodeId::New(random), 0));
    });
    all_ended_.Wait();
    const double took = Seconds(start);
    head_.Flush();
    return groups_ / took;
  }

  double Floor(const std::string& path) {
    return groups_ / SyncSeconds(path, head_.TakeBatchSizes());
  }

 private:
  void Hear(const NodeId& node, const v1::DesiredPlace& desired) {
    if (desired.goal() == v1::GOAL_FORGET) {
      // Its end is durable.
      if (++ended_ == groups_) all_ended_.Open();
      return;
    }
    v1::ObservedPlace observed;
    observed.set_attempt_id(desired.attempt_id());
    observed.set_job_id(desired.job_id());
    observed.set_epoch(desired.epoch());
    observed.set_phase(v1::PHASE_PREPARED);
    observed.set_master_port(29500);
    for (const v1::DesiredProcess& process : desired.processes()) {
      v1::ObservedProcess& seen = *observed.add_processes();
      seen.set_slot(process.slot());
      seen.set_incarnation(process.incarnation());
      seen.set_state(v1::PROCESS_STATE_PENDING);
      if (process.goal() != v1::GOAL_RUN) continue;
      seen.set_state(v1::PROCESS_STATE_ENDED);
      seen.set_end_cause(v1::END_CAUSE_EXITED);
      seen.mutable_exit();
      seen.set_pid(1);
      seen.set_exit_order(observed.processes_size());
    }
    head_.strand().Post(
        [this, node, observed] { head_.Observe(node, observed); });
  }

  const int members_;
  const int groups_;
  int ended_ = 0;
  Latch all_ended_;
  SimHead head_;
};

void BenchBackToBack(Report& report, const Flags& flags, const std::string& dir,
                     const std::string& name, int members) {
  Figure figure{.name = absl::StrCat("back_to_back/", name),
                .unit = "groups/s",
                .less_is_better = false,
                .peer = "Ray 2.60 (recorded)",
                .peer_value = 3};
  std::vector<double> floors;
  for (int run = 0; run < (flags.quick ? 2 : 5); ++run) {
    const std::string path = absl::StrCat(dir, "/groups-", name, "-", run);
    BackToBack one(path, members, flags.quick ? 500 : 2'000);
    figure.samples.values.push_back(one.Run());
    floors.push_back(one.Floor(path + ".floor"));
  }
  figure.floor = Samples{floors}.median();
  report.Add(figure);
}

// ---- quality ----

void AddQuality(Report& report, const std::string& name, const char* peer,
                const std::vector<Compared>& runs) {
  Figure placed{.name = absl::StrCat("placed/", name),
                .unit = "% of gangs",
                .less_is_better = false,
                .peer = peer};
  Figure stranded{.name = absl::StrCat("stranded/", name),
                  .unit = "% of GPUs",
                  .peer = peer};
  Samples other_placed;
  Samples other_stranded;
  for (const Compared& run : runs) {
    placed.samples.values.push_back(100 * run.ours.placed);
    stranded.samples.values.push_back(100 * run.ours.stranded);
    other_placed.values.push_back(100 * run.other.placed);
    other_stranded.values.push_back(100 * run.other.stranded);
  }
  placed.peer_value = other_placed.median();
  stranded.peer_value = other_stranded.median();
  report.Add(placed);
  report.Add(stranded);
}

void BenchQuality(Report& report, const Flags& flags) {
  const uint64_t runs = flags.quick ? 2 : 5;
  std::vector<Compared> every_way;
  std::vector<Compared> every_subset;
  std::vector<Compared> large;
  for (uint64_t seed = 1; seed <= runs; ++seed) {
    const ComparedWithAll small =
        CompareWithExhaustive(flags.quick ? 50 : 200, seed);
    every_way.push_back({small.ours, small.every_way});
    every_subset.push_back({small.ours, small.every_subset});
    large.push_back(CompareWithBestFitDecreasing(
        /*nodes=*/128, flags.quick ? 2'000 : 5'000, seed));
  }
  AddQuality(report, "3_nodes", "every way", every_way);
  AddQuality(report, "3_nodes/skip", "every way and subset", every_subset);
  AddQuality(report, "128_nodes", "best-fit-decreasing", large);
}

void Run(const Flags& flags, const char* program) {
  const std::string dir =
      absl::StrCat("/var/tmp/cohort-bench-placement-", getpid());
  std::filesystem::create_directories(dir);
  Report report("placement", flags);
  for (const int nodes : {1'000, 5'000, 10'000}) {
    BenchPlanner(report, flags, nodes);
  }
  BenchGrowth(report, program);
  BenchVisible(report, flags, dir, flags.quick ? 1'000 : 5'000);
  BenchBackToBack(report, flags, dir, "whole_node", 8);
  BenchBackToBack(report, flags, dir, "eighths", 1);
  BenchQuality(report, flags);
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--count") == 0) {
    return cohort::bench::RunCounted(std::atoi(argv[2]));
  }
  cohort::bench::Run(cohort::bench::ParseFlags(argc, argv), argv[0]);
  return 0;
}

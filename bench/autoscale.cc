// How soon nodes are launched for what waits, and what the plan costs.  See
// README.md.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "bench/report.h"
#include "bench/swarm.h"
#include "bench/testbed.h"
#include "bench/timing.h"
#include "client/cluster.h"
#include "cohort/v1/node.pb.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "head/autoscaler/scale_plan.h"
#include "head/placement/placement_index.h"
#include "rpc/credential.h"
#include "rpc/methods.h"
#include "rpc/wire_values.h"

namespace cohort::bench {
namespace {

ResourceSet Resources(const std::string& text) {
  return Ok(ParseResources(text));
}

// `nodes` busy ones, 20 types, and gangs of one to eight workers that wait.
struct Load {
  Load(int nodes, int gangs) {
    SeededRandom random(1);
    for (int i = 0; i < 20; ++i) {
      v1::NodeType& type = types.emplace_back();
      type.set_name(absl::StrCat("t", i));
      *type.mutable_resources() = rpc::ToWire(Resources(
          absl::StrCat("CPU=", 8 * (1 + i), i % 2 == 0 ? "" : ",GPU=8")));
      type.set_max(1'000);
      type.set_cost(1 + i);
    }
    for (int i = 0; i < nodes; ++i) {
      head::ScaleNode& node = input.nodes.emplace_back();
      const v1::NodeType& type = types[static_cast<size_t>(i) % 20];
      head::NodeSnapshot snapshot = head::NodeOfType(type, NodeId::New(random));
      node.type = type.name();
      // What is left differs, as in a cluster that is in use.
      snapshot.available = Resources(absl::StrCat("CPU=", 1 + i % 7));
      for (auto& device : snapshot.devices) device.free = {};
      node.node = std::make_shared<const head::NodeSnapshot>(snapshot);
    }
    for (int i = 0; i < gangs; ++i) {
      head::GangRequest request;
      request.num_workers = 1 + i % 8;
      request.per_worker =
          Resources(absl::StrCat("CPU=", 1 + i % 5, i % 3 ? "" : ",GPU=1"));
      input.asks.push_back(
          {.request = std::make_shared<const head::GangRequest>(request)});
    }
    for (const v1::NodeType& type : types) {
      input.types.push_back({.type = &type});
    }
    input.max_nodes = 10'000;
    input.launching_max = 10'000;
  }

  std::vector<v1::NodeType> types;
  head::ScaleInput input;
};

void MeasurePlan(int nodes, int gangs, int runs, Report& report) {
  const Load load(nodes, gangs);
  Figure plan{.name = absl::StrCat("plan/", gangs, "_gangs/", nodes, "_nodes"),
              .unit = "ms"};
  Samples copy;
  for (int i = 0; i < runs; ++i) {
    plan.samples.values.push_back(
        1e3 * SecondsFor([&] { (void)head::PlanScale(load.input); }));
    copy.values.push_back(1e3 * SecondsFor([&] {
                            head::PlacementIndex index;
                            for (const auto& each : load.input.nodes) {
                              index.Put(*each.node);
                            }
                          }));
  }
  plan.floor = copy.median();
  report.Add(plan);
}

// From the submit of a job to the call of the provider's program.
absl::Status MeasureLaunch(int runs, Report& report) {
  char pattern[] = "/tmp/bench_autoscale.XXXXXX";
  const std::string directory = mkdtemp(pattern);
  const std::string program = directory + "/provider";
  const std::string launched = directory + "/launched";
  const std::string file = directory + "/cluster.yaml";
  std::ofstream(program)
      << "#!/bin/sh\ncase $1 in\n  launch) : >" << launched
      << "; echo '{\"id\": \"'$2'\"}' ;;\n  list) echo '{\"instances\": []}' "
         ";;\nesac\n";
  chmod(program.c_str(), 0755);
  std::ofstream(file)
      << "provider: " << program
      << "\nupscaling_speed: 100\nnode_types: {big: {resources: {CPU: 64}}}\n";
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Testbed> testbed,
                          Testbed::Create());
  COHORT_RETURN_IF_ERROR(testbed->StartHead({"--cluster-file", file}));
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          testbed->Connect());
  Figure figure{.name = "submit_to_launch", .unit = "ms"};
  Samples submits;
  for (int i = 0; i < runs; ++i) {
    std::filesystem::remove(launched);
    const absl::Time start = absl::Now();
    JobSpec spec;
    spec.command = {"true"};
    spec.scaling_config.resources_per_worker = Resources("CPU=64");
    COHORT_RETURN_IF_ERROR(cluster->Submit(spec).status());
    submits.values.push_back(absl::ToDoubleMilliseconds(absl::Now() - start));
    while (access(launched.c_str(), F_OK) != 0) {
      if (absl::Now() - start > absl::Seconds(30)) {
        return absl::DeadlineExceededError("nothing was launched");
      }
      absl::SleepFor(absl::Microseconds(200));
    }
    figure.samples.values.push_back(
        absl::ToDoubleMilliseconds(absl::Now() - start));
  }
  std::filesystem::remove_all(directory);
  figure.floor = submits.median();
  report.Add(figure);
  return absl::OkStatus();
}

// A node without a process.
std::string RegisterOf(int number) {
  v1::WorkerMessage message;
  v1::Register& node = *message.mutable_register_();
  node.mutable_protocol()->set_min_version(1);
  node.mutable_protocol()->set_max_version(1);
  SeededRandom random(static_cast<uint64_t>(number));
  node.set_node_id(std::string(NodeId::New(random).bytes()));
  node.set_name(absl::StrCat("node-", number));
  node.set_host("127.0.0.1");
  node.set_pid(1 + number);
  node.set_daemon_nonce(static_cast<uint64_t>(number) + 1);
  *node.mutable_resources() = rpc::ToWire(Resources("CPU=4"));
  node.mutable_observed()->set_full(true);
  return message.SerializeAsString();
}

std::string BeatOf(int /*number*/, const std::string& answer) {
  v1::HeadMessage registered;
  if (!registered.ParseFromString(answer)) return "";
  v1::WorkerMessage message;
  *message.mutable_stamp() = registered.stamp();
  message.set_incarnation(registered.registered().incarnation());
  message.mutable_heartbeat();
  return message.SerializeAsString();
}

// 20 types, none of which holds what waits: each plan tries them all.
std::string PlannedFile() {
  std::string file = "provider: process\nmax_nodes: 10000\nnode_types:\n";
  for (int i = 0; i < 20; ++i) {
    absl::StrAppend(&file, "  t", i, ": {resources: {CPU: ", 8 * (1 + i),
                    "}, max: 1000, cost: ", 1 + i, "}\n");
  }
  return file;
}

absl::Status Submit(Cluster& cluster, int workers,
                    const std::string& resources) {
  JobSpec spec;
  spec.command = {"true"};
  spec.scaling_config.num_workers = workers;
  spec.scaling_config.resources_per_worker = Resources(resources);
  return cluster.Submit(spec).status();
}

// A head with nodes and gangs in line, of 40 shapes, which plans for them (and
// launches nothing) or does not.
class Side {
 public:
  absl::Status Start(int nodes, int gangs, bool plans) {
    COHORT_ASSIGN_OR_RETURN(testbed_, Testbed::Create());
    const std::string file = testbed_->directory() + "/cluster.yaml";
    std::ofstream(file) << PlannedFile();
    std::vector<std::string> flags;
    if (plans) flags = {"--cluster-file", file, "--autoscaler-dry-run"};
    COHORT_RETURN_IF_ERROR(testbed_->StartHead(flags));
    COHORT_ASSIGN_OR_RETURN(cluster_, testbed_->Connect());
    COHORT_ASSIGN_OR_RETURN(
        const rpc::Credential credential,
        rpc::Credential::Load(testbed_->directory() + "/head/credential"));
    swarm_ = std::make_unique<Swarm>(
        SwarmOptions{.address = testbed_->address(),
                     .path = rpc::kConnect.path,
                     .authorization = credential.AuthorizationHeader(),
                     .authority = credential.authority(),
                     .streams = nodes,
                     .period = absl::Seconds(3),
                     .first = RegisterOf,
                     .beat = BeatOf});
    COHORT_RETURN_IF_ERROR(swarm_->AwaitAnswers(absl::Minutes(2)));
    return SubmitSome(gangs);
  }

  // One after another; `samples`, if given, has what each took.
  absl::Status SubmitSome(int count, Samples* samples = nullptr) {
    for (int i = 0; i < count; ++i) {
      const absl::Time start = absl::Now();
      COHORT_RETURN_IF_ERROR(
          Submit(*cluster_, 1 + i % 8, absl::StrCat("CPU=", 5 + i % 5)));
      if (samples == nullptr) continue;
      samples->values.push_back(
          absl::ToDoubleMilliseconds(absl::Now() - start));
    }
    return absl::OkStatus();
  }

 private:
  std::unique_ptr<Testbed> testbed_;
  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<Swarm> swarm_;
};

double Percentile(Samples samples, double part) {
  std::sort(samples.values.begin(), samples.values.end());
  return samples.values[static_cast<size_t>(
      part * static_cast<double>(samples.values.size() - 1))];
}

absl::Status MeasureSubmits(bool quick, Report& report) {
  const int nodes = quick ? 1'000 : 5'000;
  const int gangs = quick ? 1'000 : 10'000;
  Side floor_side;
  Side plans_side;
  COHORT_RETURN_IF_ERROR(floor_side.Start(nodes, gangs, false));
  COHORT_RETURN_IF_ERROR(plans_side.Start(nodes, gangs, true));
  Samples floor;
  Samples beside;
  // By turns, so that both meet the same neighbours.
  for (int round = 0; round < (quick ? 8 : 40); ++round) {
    COHORT_RETURN_IF_ERROR(floor_side.SubmitSome(250, &floor));
    COHORT_RETURN_IF_ERROR(plans_side.SubmitSome(250, &beside));
  }
  for (const auto& [name, part] :
       {std::pair("p50", 0.5), std::pair("p99", 0.99), std::pair("p999", 0.999),
        std::pair("max", 1.0)}) {
    report.Add({.name = absl::StrCat("submit_beside_plans/", name),
                .samples = {{Percentile(beside, part)}},
                .unit = "ms",
                .floor = Percentile(floor, part)});
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const Flags flags = ParseFlags(argc, argv);
  Report report("autoscale", flags);
  const int runs = flags.quick ? 5 : 20;
  MeasurePlan(5'000, 1'000, runs, report);
  MeasurePlan(5'000, 10'000, flags.quick ? 1 : 5, report);
  absl::Status done = MeasureLaunch(runs, report);
  if (done.ok()) done = MeasureSubmits(flags.quick, report);
  if (done.ok()) return 0;
  std::fprintf(stderr, "bench_autoscale: %s\n", done.ToString().c_str());
  return 125;
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) { return cohort::bench::Main(argc, argv); }

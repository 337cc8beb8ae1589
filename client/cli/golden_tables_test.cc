#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

#include "client/cli/actor_text.h"
#include "client/cli/autoscaler_text.h"
#include "client/cli/device_text.h"
#include "client/cli/driver_text.h"
#include "client/cli/event_text.h"
#include "client/cli/job_text.h"
#include "client/cli/node_text.h"
#include "client/cli/table.h"
#include "client/testing/messages.h"
#include "common/file.h"

namespace cohort::cli {
namespace {

using client::Parsed;

// What people see on terminals of 80 and 120 columns, in
// testdata/<name>_<n>.txt. COHORT_WRITE_GOLDEN=1 in the environment writes
// these files again.
void ExpectGolden(const std::string& name, const std::string& text,
                  size_t columns) {
  const std::string path =
      absl::StrCat(COHORT_CLI_TESTDATA, "/", name, "_", columns, ".txt");
  if (std::getenv("COHORT_WRITE_GOLDEN") != nullptr) {
    ASSERT_TRUE(WriteFileAtomically(path, text, 0644).ok());
  }
  const absl::StatusOr<std::string> golden = ReadFile(path);
  ASSERT_TRUE(golden.ok()) << golden.status();
  EXPECT_EQ(text, *golden) << path;
  // What comes before the tables of one job or node is shown whole.
  const size_t fields = text.find("\n\n");
  const absl::string_view tables =
      absl::string_view(text).substr(fields == std::string::npos ? 0 : fields);
  for (const absl::string_view line : absl::StrSplit(tables, '\n')) {
    EXPECT_LE(ColumnsOf(line), columns) << line;
  }
}

constexpr size_t kTerminals[] = {80, 120};

absl::Time Now() { return absl::FromUnixSeconds(1'795'000'600); }

std::vector<Job> SomeJobs() {
  return {
      Parsed<Job>(R"pb(
        job_id: $11
        name: "imagenet-resnet50-warm-restarts"
        state: JOB_STATE_PENDING
        reason: "no node has 8 GPUs free, 2 nodes have 8 GPUs; 14 jobs are ahead of it"
        submitted_at { seconds: 1795000588 })pb"),
      Parsed<Job>(R"pb(
        job_id: $22
        name: "läuft"
        state: JOB_STATE_RUNNING
        attempt: 3
        failures: 2
        submitted_at { seconds: 1794900000 }
        ran { seconds: 93784 })pb"),
      Parsed<Job>(R"pb(
        job_id: $33
        state: JOB_STATE_FAILED
        reason: "rank 1 on w1 exited with code 1: RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB"
        attempt: 1
        failures: 1
        submitted_at { seconds: 1795000000 }
        ran { seconds: 4 nanos: 500000000 })pb"),
      Parsed<Job>(R"pb(
        job_id: $44
        name: "sweep"
        state: JOB_STATE_RUNNING
        submitted_at { seconds: 1795000000 }
        array {
          size: 100
          counts { state: JOB_STATE_PENDING count: 90 }
          counts { state: JOB_STATE_RUNNING count: 8 }
          counts { state: JOB_STATE_SUCCEEDED count: 2 }
        })pb"),
      Parsed<Job>(R"pb(
        job_id: $44_7
        name: "sweep"
        state: JOB_STATE_SUCCEEDED
        submitted_at { seconds: 1795000000 })pb")};
}

Node SomeNode(const std::string& id, const std::string& name,
              const std::string& more) {
  return Parsed<Node>(absl::StrCat("node_id: $", id, " name: '", name, "' ",
                                   "pid: 4711 host: '10.0.0.7' ", more));
}

std::vector<Node> SomeNodes() {
  return {SomeNode("11", "worker-0", R"pb(
            state: NODE_STATE_ALIVE
            resources {
              amounts { name: "CPU" ten_thousandths: 1280000 }
              amounts { name: "GPU" ten_thousandths: 80000 }
              amounts { name: "license" ten_thousandths: 20000 }
              amounts { name: "memory" ten_thousandths: 10995116277760000 }
            }
            available {
              amounts { name: "CPU" ten_thousandths: 1205000 }
              amounts { name: "GPU" ten_thousandths: 5000 }
              amounts { name: "license" ten_thousandths: 20000 }
              amounts { name: "memory" ten_thousandths: 5497558138880000 }
            }
            labels { key: "rack" value: "r1" }
            labels { key: "zone" value: "a" }
            taints { key: "gpu" value: "only" }
            devices {
              id: "GPU-1"
              kind: "gpu"
              model: "NVIDIA H100 80GB HBM3"
              memory_bytes: 85899345920
              state: DEVICE_STATE_HEALTHY
              sample { utilization_percent: 97 memory_used_bytes: 42949672960 }
              holders { job_id: $11 job_name: "train" ten_thousandths: 10000 }
            }
            devices {
              id: "GPU-2"
              kind: "gpu"
              model: "NVIDIA H100 80GB HBM3"
              memory_bytes: 85899345920
              state: DEVICE_STATE_FENCED
              reason: "Xid 79"
            }
          )pb"),
          SomeNode("22", "a-node-with-a-rather-long-name.example.org", R"pb(
            state: NODE_STATE_DRAINING
            resources { amounts { name: "CPU" ten_thousandths: 40000 } }
            available { amounts { name: "CPU" ten_thousandths: 0 } }
            labels { key: "node-type" value: "cpu" }
            labels { key: "instance" value: "33333333333333333333333333333333" }
          )pb")};
}

Job JobWithRanks() {
  return Parsed<Job>(R"pb(
    job_id: $11
    name: "train"
    state: JOB_STATE_RUNNING
    attempt: 2
    failed_rank: -1
    num_workers: 2
    submitted_at { seconds: 1795000000 }
    spec {
      launch {
        command: "python3"
        command: "train.py"
        environment { key: "MODE" value: "fast" }
        package_hash: "\xab\xcd"
      }
      scaling {
        num_workers: 2
        resources_per_worker { amounts { name: "GPU" ten_thousandths: 10000 } }
        placement_strategy: PLACEMENT_STRATEGY_PACK
      }
      comment: "the last try"
    }
    ranks {
      node_id: $22
      node_name: "worker-0"
      pid: 41
      state: PROCESS_STATE_RUNNING
      gpu_ids: "GPU-5ee1f2d0-7c1b-4a37-9d53-000000000001"
      gpu_ids: "GPU-5ee1f2d0-7c1b-4a37-9d53-000000000002"
      incarnation: 4
    }
    ranks {
      rank: 1
      local_rank: 1
      node_id: $33
      state: PROCESS_STATE_ENDED
      exit { code: 1 detail: "ValueError: no data" }
    })pb");
}

NodeDetails NodeWithJobs() {
  auto details = Parsed<NodeDetails>(R"pb(
    held {
      attempt_id: $44
      job_id: $11
      job_name: "train"
      number: 2
      state: "RUNNING"
      resources { amounts { name: "GPU" ten_thousandths: 20000 } }
      ranks { rank: 0 gpu_ids: "GPU-5ee1f2d0-7c1b-4a37-9d53-000000000001" }
      ranks { rank: 1 gpu_ids: "GPU-5ee1f2d0-7c1b-4a37-9d53-000000000002" }
    }
    history {
      number: 12
      at { seconds: 1795000000 }
      kind: "node_drained"
      principal: "cluster"
      text: "the fan of this machine is to be replaced before the end of the week"
    })pb");
  *details.mutable_node() = SomeNodes().front();
  return details;
}

TEST(GoldenTables, Jobs) {
  for (const size_t columns : kTerminals) {
    ExpectGolden("jobs", JobsTable(SomeJobs(), Now(), {.columns = columns}),
                 columns);
  }
}

TEST(GoldenTables, Nodes) {
  for (const size_t columns : kTerminals) {
    ExpectGolden("nodes", NodesTable(SomeNodes(), {.columns = columns}),
                 columns);
  }
}

TEST(GoldenTables, OneJob) {
  for (const size_t columns : kTerminals) {
    ExpectGolden("job", JobText(JobWithRanks(), {.columns = columns}), columns);
  }
}

TEST(GoldenTables, OneNode) {
  for (const size_t columns : kTerminals) {
    ExpectGolden("node", NodeText(NodeWithJobs(), {.columns = columns}),
                 columns);
  }
}

TEST(GoldenTables, Gpus) {
  for (const size_t columns : kTerminals) {
    ExpectGolden("gpus", GpusTable(SomeNodes(), {.columns = columns}), columns);
  }
}

std::vector<Job> SomeActors() {
  return {
      Parsed<Job>(R"pb(
        job_id: $11
        name: "tokenizer"
        namespace: "default"
        state: JOB_STATE_RUNNING
        failures: 1
        infra_restarts: 1
        num_workers: 1
        submitted_at { seconds: 1795000000 }
        spec {
          actor { class_name: "text::Tokenizer" driver_id: $99 }
          scaling {
            resources_per_worker {
              amounts { name: "CPU" ten_thousandths: 5000 }
            }
          }
          run { max_failures: 3 }
        }
        ranks {
          node_id: $22
          node_name: "worker-0"
          pid: 41712
          state: PROCESS_STATE_RUNNING
          incarnation: 3
        }
      )pb"),
      Parsed<Job>(R"pb(
        job_id: $33
        name: "shards"
        namespace: "lab"
        state: JOB_STATE_PENDING
        reason: "no node has 1 GPU free, 2 nodes have 1 GPU; 3 jobs are ahead of it"
        num_workers: 4
        submitted_at { seconds: 1794990000 }
        spec {
          actor {
            class_name: "Shard"
            dimensions { name: "host" size: 2 }
            dimensions { name: "gpu" size: 2 }
          }
          scaling {
            num_workers: 4
            resources_per_worker {
              amounts { name: "GPU" ten_thousandths: 10000 }
            }
          }
          run { max_failures: -1 }
        }
        ranks {
          node_id: $22
          node_name: "worker-0"
          pid: 5
          state: PROCESS_STATE_RUNNING
          gpu_ids: "GPU-5ee1f2d0"
        }
        ranks { rank: 1 failures: 2 state: PROCESS_STATE_PENDING }
        ranks {
          rank: 2
          node_id: $44
          node_name: "worker-1"
          pid: 6
          state: PROCESS_STATE_RUNNING
        }
      )pb")};
}

DriverList SomeDrivers() {
  return Parsed<DriverList>(R"pb(
    total: 2
    drivers {
      driver_id: $99
      name: "sweep"
      principal: "cluster"
      opened_at { seconds: 1795000000 }
      connected: true
      actors: 2
      tasks {
        shape: "CPU: 1"
        waiting: 1200
        running: 16
        finished: 98765
        failed: 3
        executors: 16
      }
      tasks { shape: "GPU: 0.5" running: 2 executors: 2 }
    }
    drivers {
      driver_id: $88
      name: "notebook-with-a-long-name"
      principal: "ann"
      opened_at { seconds: 1794900000 }
      ending: true
    })pb");
}

TEST(GoldenTables, Actors) {
  for (const size_t columns : kTerminals) {
    ExpectGolden("actors",
                 ActorsTable(SomeActors(), Now(), {.columns = columns}),
                 columns);
  }
}

TEST(GoldenTables, OneActor) {
  for (const size_t columns : kTerminals) {
    ExpectGolden("actor", ActorText(SomeActors()[0], {.columns = columns}),
                 columns);
  }
}

TEST(GoldenTables, Groups) {
  for (const size_t columns : kTerminals) {
    ExpectGolden("groups",
                 GroupsTable({SomeActors()[1]}, Now(), {.columns = columns}),
                 columns);
  }
}

TEST(GoldenTables, OneGroup) {
  for (const size_t columns : kTerminals) {
    ExpectGolden("group", ActorText(SomeActors()[1], {.columns = columns}),
                 columns);
  }
}

TEST(GoldenTables, DriversAndTasks) {
  for (const size_t columns : kTerminals) {
    ExpectGolden("drivers",
                 DriversTable(SomeDrivers(), Now(), {.columns = columns}),
                 columns);
    ExpectGolden("tasks", TasksTable(SomeDrivers(), {.columns = columns}),
                 columns);
  }
}

TEST(GoldenTables, Autoscaling) {
  const auto autoscaling = Parsed<Autoscaling>(R"pb(
    is_configured: true
    provider: "slurm"
    file { max_nodes: 12 }
    node_types {
      type {
        name: "cpu"
        max: 8
        resources { amounts { name: "CPU" ten_thousandths: 40000 } }
      }
      running: 2
      launching: 1
      usual_launch_us: 95000000
    }
    node_types {
      type {
        name: "gpu"
        min: 1
        max: 4
        resources { amounts { name: "GPU" ten_thousandths: 80000 } }
      }
      failures: 2
      failure: "the quota is spent"
      tried_again_at_us: 1795000610000000
    }
    instances {
      instance_id: $11
      node_type: "cpu"
      state: INSTANCE_STATE_ALLOCATED
      since_us: 1795000540000000
      job_id: $22
      reason: "Resources"
    }
    instances {
      instance_id: $33
      node_type: "cpu"
      state: INSTANCE_STATE_JOINED
      since_us: 1795000000000000
      node_id: $44
    }
    requests {
      name: "evening"
      bundles {
        resources { amounts { name: "GPU" ten_thousandths: 10000 } }
        count: 8
      }
      expires_at_us: 1795004200000000
      owner: "user/ann"
    }
    served: 1
    unserved { name: "huge" why: "no node type holds it" }
    next: "node a has been idle for 5s"
  )pb");
  for (const size_t columns : kTerminals) {
    ExpectGolden("autoscaler",
                 AutoscalingText(autoscaling, Now(), {.columns = columns}),
                 columns);
  }
}

TEST(GoldenTables, Events) {
  const std::vector<Event> events = {
      Parsed<Event>(R"pb(
        number: 1
        at { seconds: 1795000000 nanos: 123000000 }
        kind: "node_registered"
        principal: "node/worker-0"
        node_id: $44
        node_name: "worker-0"
        text: "worker-0, incarnation 1")pb"),
      Parsed<Event>(R"pb(
        number: 27
        at { seconds: 1795000001 }
        kind: "attempt_moved"
        job_id: $11
        attempt_id: $55
        cause: 26
        text: "ENDING (rank_failed) rank 2 exited with code 1: RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB")pb")};
  for (const size_t columns : kTerminals) {
    std::string text;
    for (const Event& event : events) {
      absl::StrAppend(&text, EventLine(event, {.columns = columns}), "\n");
    }
    ExpectGolden("events", text, columns);
  }
  const std::string wide = EventLine(events[1], {.wide = true});
  for (const char* shown :
       {"11111111111111111111111111111111", "55555555555555555555555555555555",
        "by head", "20.00 MiB", "(because of 26)"}) {
    EXPECT_NE(wide.find(shown), std::string::npos) << shown;
  }
}

TEST(GoldenTables, WideHasWholeIdsAndEveryColumn) {
  const std::string jobs = JobsTable(SomeJobs(), Now(), {.wide = true});
  const std::string nodes = NodesTable(SomeNodes(), {.wide = true});
  EXPECT_NE(jobs.find("11111111111111111111111111111111"), std::string::npos);
  EXPECT_NE(jobs.find("Tried to allocate 20.00 MiB"), std::string::npos);
  EXPECT_NE(nodes.find("11111111111111111111111111111111"), std::string::npos);
  for (const char* shown :
       {"10.0.0.7", "4711", "rack=r1,zone=a", "license 2"}) {
    EXPECT_NE(nodes.find(shown), std::string::npos) << shown;
  }
}

}  // namespace
}  // namespace cohort::cli

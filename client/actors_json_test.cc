// Actors, drivers, tasks and stacks as JSON.

#include <string>

#include "gtest/gtest.h"

#include "client/json.h"
#include "client/testing/messages.h"

namespace cohort {
namespace {

using client::ExpectJson;
using client::Parsed;

TEST(ActorsJson, ShowsActorsInTheirOwnWords) {
  const auto actor = Parsed<Job>(R"pb(
    job_id: $11
    name: "shards"
    namespace: "lab"
    state: JOB_STATE_RUNNING
    failures: 1
    infra_restarts: 2
    num_workers: 2
    submitted_at { seconds: 1795000000 }
    spec {
      actor {
        class_name: "Shard"
        driver_id: $99
        dimensions { name: "host" size: 2 }
      }
      scaling {
        resources_per_worker { amounts { name: "GPU" ten_thousandths: 5000 } }
      }
      run { max_failures: 3 }
    }
    ranks {
      node_id: $22
      node_name: "w0"
      pid: 41
      state: PROCESS_STATE_RUNNING
      incarnation: 4
    })pb");
  ExpectJson(ActorJson(actor), R"({
    "id": "11111111111111111111111111111111",
    "name": "shards",
    "namespace": "lab",
    "state": "RUNNING",
    "reason": null,
    "class": "Shard",
    "driver": "99999999999999999999999999999999",
    "dimensions": [{"name": "host", "size": 2}],
    "resources": {"CPU": 0, "GPU": 0.5, "memory": 0},
    "max_restarts": 3,
    "restarts": 3,
    "num_workers": 2,
    "submitted_at": "2026-11-18T11:06:40.000Z",
    "started_at": null,
    "ended_at": null,
    "ranks": [{
      "rank": 0, "local_rank": 0, "node": "22222222222222222222222222222222",
      "pid": 41, "state": "RUNNING", "exit_code": null, "signal": null,
      "gpu_ids": [], "incarnation": 4, "failures": 0,
      "node_name": "w0", "exit_detail": null, "oom_killed": false
    }]
  })");
  EXPECT_EQ(ActorsJson({}), "[]");
}

TEST(ActorsJson, ShowsDriversAndTheirTasks) {
  const auto drivers = Parsed<DriverList>(R"pb(
    drivers {
      driver_id: $99
      name: "sweep"
      principal: "cluster"
      opened_at { seconds: 1795000000 }
      connected: true
      actors: 2
      tasks { shape: "CPU: 1" waiting: 5 running: 1 finished: 9 executors: 1 }
    })pb");
  ExpectJson(DriversJson(drivers), R"([{
    "driver": "99999999999999999999999999999999",
    "name": "sweep",
    "principal": "cluster",
    "opened": "2026-11-18T11:06:40.000Z",
    "connected": true,
    "ending": false,
    "actors": 2,
    "tasks": [{"shape": "CPU: 1", "waiting": 5, "running": 1, "finished": 9,
               "failed": 0, "executors": 1}],
    "job": null
  }])");
  ExpectJson(TasksJson(drivers), R"([{
    "driver": "99999999999999999999999999999999", "driver_name": "sweep",
    "shape": "CPU: 1", "waiting": 5, "running": 1, "finished": 9, "failed": 0,
    "executors": 1
  }])");
}

TEST(ActorsJson, ShowsTheStacksOfARank) {
  const auto stack = Parsed<RankStack>(R"pb(
    rank { rank: 1 node_id: $22 pid: 41 state: PROCESS_STATE_RUNNING }
    text: "#0 main\n")pb");
  ExpectJson(StacksJson({stack}), R"([{
    "rank": 1, "local_rank": 0, "node": "22222222222222222222222222222222",
    "pid": 41, "state": "RUNNING", "exit_code": null, "signal": null,
    "gpu_ids": [], "incarnation": null, "failures": 0,
    "node_name": null, "exit_detail": null, "oom_killed": false, "stacks": "#0 main\n"
  }])");
}

}  // namespace
}  // namespace cohort

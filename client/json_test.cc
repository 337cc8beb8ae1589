#include "client/json.h"

#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "client/testing/messages.h"

namespace cohort {
namespace {

using client::ExpectJson;
using client::Parsed;

// Golden: programs of others read these.
TEST(Json, ShowsAJobThatIsKnownInAllItsParts) {
  const auto job = Parsed<Job>(R"pb(
    job_id: $11
    name: "train"
    state: JOB_STATE_FAILED
    reason: "rank 1 was killed by signal 9"
    attempt: 2
    failures: 1
    infra_restarts: 5
    exit { signal: 9 oom_killed: true detail: "?" }
    failed_rank: 1
    submitted_at { seconds: 1795000000 nanos: 1000000 }
    started_at { seconds: 1795000000 nanos: 20000000 }
    ended_at { seconds: 1795000000 nanos: 300999000 }
    metrics_json: '{"loss": 0.5, "epoch": 3}'
    metrics_count: 4
    checkpoint { path: "/r/step-7" step: 7 epoch: 2 score: 0.5 }
    ranks {
      node_id: $22
      node_name: "worker-0"
      pid: 41
      state: PROCESS_STATE_ENDED
      exit { code: 1 detail: "ValueError: no\ntrace" }
      gpu_ids: "GPU-1"
      gpu_ids: "GPU-2"
      incarnation: 4
      failures: 1
    }
    ranks { rank: 1 state: PROCESS_STATE_PENDING }
    spec {
      name: "train"
      priority: 5
      launch {
        command: "python3"
        command: "train.py"
        environment { key: "OMP_NUM_THREADS" value: "1" }
        environment { key: "MODE" value: "a b" }
        secrets { key: "TOKEN" value: "***" }
        package_hash: "\xab\x01"
        working_directory: "/data"
      }
      scaling {
        num_workers: 2
        resources_per_worker { amounts { name: "CPU" ten_thousandths: 20000 } }
        workers_per_node: 1
        placement_strategy: PLACEMENT_STRATEGY_PACK
        selectors: "zone=a"
        tolerations { key: "gpu" value: "only" }
        topology_level: "rack"
        topology_required: true
      }
      run {
        storage_path: "/shared"
        max_failures: 3
        num_to_keep: 2
        time_limit_us: 5400000000
        grace_us: 10000000
        retry_delay_us: 250000
        preflight: true
        restart: RESTART_POLICY_ONE
      }
      after { job_id: $33 kind: DEPENDENCY_KIND_ANY }
      start_at_us: 1795000000005000
      comment: "the last try"
    }
    failure_class: FAILURE_CLASS_OOM
    causes: "rank 1 was killed for memory"
    causes: "attempt 2 ended"
    stderr_tail: "Killed\n"
    failures_by_class { failure_class: FAILURE_CLASS_USER count: 1 }
    failures_by_class { failure_class: FAILURE_CLASS_OOM count: 1 }
    priority: 5
    labels { key: "team" value: "vision" }
    namespace: "research"
    held_by: "ann"
    ran { seconds: 61 nanos: 500000000 }
    preflight {
      attempt: 2
      report {
        verdict: PREFLIGHT_VERDICT_SLOW
        summary: "ranks 0 and 1"
        json: '{"world": 2}'
      }
      at { seconds: 1795000000 nanos: 30000000 }
    }
    epoch: 3
    num_workers: 2)pb");
  ExpectJson(ToJson(job), R"({
  "id": "11111111111111111111111111111111",
  "name": "train",
  "state": "FAILED",
  "reason": "rank 1 was killed by signal 9",
  "attempt": 2,
  "failures": 1,
  "exit_code": null,
  "signal": 9,
  "submitted_at": "2026-11-18T11:06:40.001Z",
  "started_at": "2026-11-18T11:06:40.020Z",
  "ended_at": "2026-11-18T11:06:40.300Z",
  "ran": "1m1.5s",
  "metrics": {
    "loss": 0.5,
    "epoch": 3
  },
  "checkpoint": {
    "path": "/r/step-7",
    "step": 7,
    "epoch": 2,
    "score": 0.5
  },
  "best_checkpoints": [],
  "namespace": "research",
  "submitted_by": "",
  "labels": {
    "team": "vision"
  },
  "priority": 5,
  "held": false,
  "class": "oom",
  "never_fits": false,
  "epoch": 3,
  "num_workers": 2,
  "warnings": [],
  "infra_restarts": 5,
  "failed_rank": 1,
  "metrics_count": 4,
  "held_by": "ann",
  "command": [
    "python3",
    "train.py"
  ],
  "environment": {
    "MODE": "a b",
    "OMP_NUM_THREADS": "1"
  },
  "package_hash": "ab01",
  "working_directory": "/data",
  "secrets": {
    "TOKEN": "***"
  },
  "resources_per_worker": {
    "CPU": 2,
    "GPU": 0,
    "memory": 0
  },
  "placement_strategy": "PACK",
  "workers_per_node": 1,
  "storage_path": "/shared",
  "max_failures": 3,
  "num_to_keep": 2,
  "restart": "one",
  "keep_work": false,
  "isolate_gpus": false,
  "causes": [
    "rank 1 was killed for memory",
    "attempt 2 ended"
  ],
  "stderr_tail": "Killed\n",
  "failures_by_class": {
    "user": 1,
    "oom": 1
  },
  "time_limit": "1h30m",
  "grace": "10s",
  "retry_delay": "250ms",
  "selectors": [
    "zone=a"
  ],
  "tolerations": [
    "gpu=only"
  ],
  "accelerator_type": null,
  "topology": {
    "level": "rack",
    "required": true
  },
  "actor": null,
  "after": [
    {
      "job": "33333333333333333333333333333333",
      "kind": "any"
    }
  ],
  "comment": "the last try",
  "begin": "2026-11-18T11:06:40.005Z",
  "array_spec": null,
  "array": null,
  "preflight": {
    "attempt": 2,
    "verdict": "slow",
    "summary": "ranks 0 and 1",
    "at": "2026-11-18T11:06:40.030Z",
    "report": {
      "world": 2
    }
  },
  "ranks": [
    {
      "rank": 0,
      "local_rank": 0,
      "node": "22222222222222222222222222222222",
      "pid": 41,
      "state": "EXITED",
      "exit_code": 1,
      "signal": null,
      "incarnation": 4,
      "failures": 1,
      "gpu_ids": [
        "GPU-1",
        "GPU-2"
      ],
      "node_name": "worker-0",
      "exit_detail": "ValueError: no\ntrace",
      "oom_killed": false
    },
    {
      "rank": 1,
      "local_rank": 0,
      "node": null,
      "pid": null,
      "state": "PENDING",
      "exit_code": null,
      "signal": null,
      "incarnation": null,
      "failures": 0,
      "gpu_ids": [],
      "node_name": null,
      "exit_detail": null,
      "oom_killed": false
    }
  ]
})");
}

TEST(Json, ShowsHowTheElementsOfAnArrayAre) {
  const auto job = Parsed<Job>(R"pb(
    job_id: $11
    spec { array: "0-9%2" }
    array {
      size: 10
      at_once: 2
      counts { state: JOB_STATE_PENDING count: 8 }
      counts { state: JOB_STATE_RUNNING count: 2 }
    })pb");
  const auto json = nlohmann::json::parse(ToJson(job));
  EXPECT_EQ(json["array_spec"], "0-9%2");
  EXPECT_EQ(json["array"], nlohmann::json::parse(R"({
    "size": 10,
    "at_once": 2,
    "states": {
      "PENDING": 8,
      "RUNNING": 2
    }
  })"));
}

TEST(Json, ShowsEveryKeyOfAJobThatHasJustBegun) {
  const auto job = Parsed<Job>(R"pb(
    job_id: $11
    state: JOB_STATE_PENDING
    submitted_at { seconds: 1795000000 }
    namespace: "research"
    labels { key: "team" value: "vision" }
    priority: -2
    held: true
    failure_class: FAILURE_CLASS_USER)pb");
  ExpectJson(JobsJson({job}), R"([
  {
    "id": "11111111111111111111111111111111",
    "name": "",
    "state": "PENDING",
    "reason": null,
    "attempt": 0,
    "failures": 0,
    "exit_code": null,
    "signal": null,
    "submitted_at": "2026-11-18T11:06:40.000Z",
    "started_at": null,
    "ended_at": null,
    "ran": null,
    "metrics": null,
    "checkpoint": null,
    "namespace": "research",
    "submitted_by": "",
    "labels": {
      "team": "vision"
    },
    "priority": -2,
    "held": true,
    "class": "user"
  }
])");
  EXPECT_EQ(JobsJson({}), "[]");
}

TEST(Json, ShowsNodes) {
  const auto node = Parsed<Node>(R"pb(
    node_id: $33
    name: "n"
    state: NODE_STATE_ALIVE
    incarnation: 4
    pid: 99
    resources {
      amounts { name: "CPU" ten_thousandths: 40000 }
      amounts { name: "license" ten_thousandths: 15000 }
      amounts { name: "memory" ten_thousandths: 687194767360000 }
    }
    available { amounts { name: "CPU" ten_thousandths: 5000 } }
    labels { key: "zone" value: "a" }
    devices {
      id: "GPU-1"
      kind: "gpu"
      model: "H100"
      memory_bytes: 1
      simulated: true
      state: DEVICE_STATE_HEALTHY
    })pb");
  ExpectJson(NodesJson({node}), R"([
  {
    "id": "33333333333333333333333333333333",
    "name": "n",
    "state": "ALIVE",
    "incarnation": 4,
    "pid": 99,
    "resources": {
      "CPU": 4,
      "GPU": 0,
      "memory": 68719476736,
      "license": 1.5
    },
    "available": {
      "CPU": 0.5,
      "GPU": 0,
      "memory": 0,
      "license": 0
    },
    "labels": {
      "zone": "a"
    },
    "devices": [
      {
        "id": "GPU-1",
        "kind": "gpu",
        "model": "H100",
        "simulated": true,
        "memory_bytes": 1,
        "state": "HEALTHY",
        "reason": null,
        "since": null,
        "pci_bus_id": null,
        "numa_node": null,
        "nvlink_peers": [],
        "parent": null,
        "sample": null,
        "holders": []
      }
    ],
    "since": null,
    "taints": [],
    "drain": null,
    "not_ready": null,
    "unenforced": null,
    "type": null,
    "instance": null,
    "host": null,
    "build": null
  }
])");
}

TEST(Json, ShowsAGpuWithItsNodeItsSampleAndItsHolders) {
  const auto node = Parsed<Node>(R"pb(
    node_id: $33
    name: "n"
    state: NODE_STATE_ALIVE
    devices { id: "0" kind: "other" }
    devices {
      id: "GPU-1"
      kind: "gpu"
      model: "H100"
      memory_bytes: 80
      pci_bus_id: "00000000:3b:00.0"
      numa_node: 1
      nvlink_peers: "GPU-2"
      state: DEVICE_STATE_FENCED
      reason: "GPU GPU-1: Xid 48"
      since { seconds: 1795000000 }
      sample { utilization_percent: 97 remap_failed: false last_xid: 48 }
      holders {
        attempt_id: $44
        job_name: "train"
        ten_thousandths: 5000
        ranks: 0
        ranks: 3
      }
    })pb");
  ExpectJson(GpusJson({node}), R"([
  {
    "id": "GPU-1",
    "kind": "gpu",
    "model": "H100",
    "simulated": false,
    "memory_bytes": 80,
    "state": "FENCED",
    "reason": "GPU GPU-1: Xid 48",
    "since": "2026-11-18T11:06:40.000Z",
    "pci_bus_id": "00000000:3b:00.0",
    "numa_node": 1,
    "nvlink_peers": [
      "GPU-2"
    ],
    "parent": null,
    "sample": {
      "utilization_percent": 97,
      "memory_used_bytes": null,
      "memory_reserved_bytes": null,
      "power_milliwatts": null,
      "temperature_celsius": null,
      "ecc_volatile": null,
      "ecc_aggregate": null,
      "remapped_rows": null,
      "remap_pending": null,
      "remap_failed": false,
      "last_xid": 48
    },
    "holders": [
      {
        "job": null,
        "name": "train",
        "attempt": "44444444444444444444444444444444",
        "share": 0.5,
        "ranks": [
          0,
          3
        ]
      }
    ],
    "node": "n",
    "node_id": "33333333333333333333333333333333",
    "node_state": "ALIVE"
  }
])");
}

TEST(Json, ShowsOneNodeWithWhatItHas) {
  const auto details = Parsed<NodeDetails>(R"pb(
    node {
      node_id: $33
      name: "n"
      state: NODE_STATE_DRAINING
      incarnation: 4
      since { seconds: 1795000000 }
      taints { key: "gpu" value: "only" }
      drain {
        reason: "fan"
        principal: "ann"
        asked_at { seconds: 1795000000 }
      }
      not_ready: "no room"
      unenforced: "no cgroup"
      host: "10.0.0.1"
      build: "0.1.0 abc"
      labels { key: "node-type" value: "cpu" }
      labels { key: "instance" value: "0a" }
    }
    held {
      attempt_id: $55
      job_id: $11
      job_name: "train"
      number: 2
      state: "RUNNING"
      resources { amounts { name: "CPU" ten_thousandths: 10000 } }
    }
    held { attempt_id: $66 state: "OVER" }
    history {
      number: 7
      at { seconds: 1795000000 }
      kind: "node_drained"
      node_id: $33
      principal: "ann"
      text: "ann drained node n: fan"
    })pb");
  ExpectJson(ToJson(details), R"({
  "id": "33333333333333333333333333333333",
  "name": "n",
  "state": "DRAINING",
  "incarnation": 4,
  "pid": null,
  "resources": {"CPU": 0, "GPU": 0, "memory": 0},
  "available": {"CPU": 0, "GPU": 0, "memory": 0},
  "labels": {"instance": "0a", "node-type": "cpu"},
  "devices": [],
  "since": "2026-11-18T11:06:40.000Z",
  "taints": [
    {
      "key": "gpu",
      "value": "only"
    }
  ],
  "drain": {
    "reason": "fan",
    "principal": "ann",
    "asked_at": "2026-11-18T11:06:40.000Z",
    "deadline": null
  },
  "not_ready": "no room",
  "unenforced": "no cgroup",
  "type": "cpu",
  "instance": "0a",
  "host": "10.0.0.1",
  "build": "0.1.0 abc",
  "held": [
    {
      "attempt_id": "55555555555555555555555555555555",
      "job_id": "11111111111111111111111111111111",
      "job_name": "train",
      "attempt": 2,
      "state": "RUNNING",
      "resources": {
        "CPU": 1,
        "GPU": 0,
        "memory": 0
      },
      "ranks": []
    },
    {
      "attempt_id": "66666666666666666666666666666666",
      "job_id": null,
      "job_name": null,
      "attempt": 0,
      "state": "OVER",
      "resources": {
        "CPU": 0,
        "GPU": 0,
        "memory": 0
      },
      "ranks": []
    }
  ],
  "history": [
    {
      "number": 7,
      "time": "2026-11-18T11:06:40.000Z",
      "kind": "node_drained",
      "job": null,
      "attempt": null,
      "node": "33333333333333333333333333333333",
      "node_name": null,
      "principal": "ann",
      "namespace": null,
      "request_id": null,
      "cause": null,
      "text": "ann drained node n: fan"
    }
  ]
})");
}

TEST(Json, ShowsAnEventOnOneLine) {
  EXPECT_EQ(ToJsonLine(Parsed<Event>(R"pb(
              number: 12
              kind: "head_started"
              text: "term 1\n")pb")),
            R"({"number":12,"time":null,"kind":"head_started","job":null,)"
            R"("attempt":null,"node":null,"node_name":null,"principal":null,)"
            R"("namespace":null,"request_id":null,"cause":null,)"
            R"("text":"term 1\n"})");
  EXPECT_EQ(ToJsonLine(Parsed<Event>(R"pb(
              number: 12
              at { seconds: 1795000000 nanos: 5000000 }
              kind: "head_started"
              job_id: $11_3
              attempt_id: $22
              node_id: $33
              node_name: "n1"
              principal: "cluster"
              namespace: "default"
              request_id: "r"
              cause: 11
              text: "term 1\n")pb")),
            R"({"number":12,"time":"2026-11-18T11:06:40.005Z",)"
            R"("kind":"head_started",)"
            R"("job":"11111111111111111111111111111111.3",)"
            R"("attempt":"22222222222222222222222222222222",)"
            R"("node":"33333333333333333333333333333333","node_name":"n1",)"
            R"("principal":"cluster","namespace":"default","request_id":"r",)"
            R"("cause":11,"text":"term 1\n"})");
}

TEST(Json, ShowsStatusAndResources) {
  const auto status = Parsed<ClusterStatus>(R"pb(
    address: "127.0.0.1:7710"
    head_pid: 12
    stamp { cluster_id: $44 generation: $55 term: 3 nonce: 9 }
    nodes_by_state { key: "ALIVE" value: 2 }
    jobs_by_state { key: "RUNNING" value: 1 }
    jobs_by_state { key: "NEW" value: 5 }
    read_only: true
    http_address: "127.0.0.1:7711"
    orphans {
      attempt_id: $61
      job_id: $69
      node_names: "node-1"
      state: "RUNNING"
      since { seconds: 1 }
    }
    read_only_why: "the disk is full"
    later_store_node_names: "node-2"
    later_store_term: 9
    later_store_why: "it was restored"
    orphan_count: 1)pb");
  ExpectJson(ToJson(status), R"({
  "cluster_id": "44444444444444444444444444444444",
  "address": "127.0.0.1:7710",
  "http_address": "127.0.0.1:7711",
  "head_pid": 12,
  "term": 3,
  "nodes": {
    "ALIVE": 2,
    "NOT_READY": 0,
    "ABSENT": 0,
    "SUSPECT": 0,
    "DRAINING": 0,
    "DRAINED": 0,
    "DEAD": 0
  },
  "jobs": {
    "PENDING": 0,
    "STARTING": 0,
    "RUNNING": 1,
    "STOPPING": 0,
    "SUCCEEDED": 0,
    "FAILED": 0,
    "STOPPED": 0,
    "NEW": 5
  },
  "read_only": true,
  "read_only_why": "the disk is full",
  "settling": false,
  "later_store": {
    "term": 9,
    "nodes": [
      "node-2"
    ],
    "why": "it was restored"
  },
  "orphans": [
    {
      "attempt": "61616161616161616161616161616161",
      "job": "69696969696969696969696969696969",
      "nodes": [
        "node-1"
      ],
      "state": "RUNNING",
      "since": "1970-01-01T00:00:01.000Z"
    }
  ],
  "orphan_count": 1
})");
  ExpectJson(ToJson(ClusterResources()), R"({
  "total": {
    "CPU": 0,
    "GPU": 0,
    "memory": 0
  },
  "available": {
    "CPU": 0,
    "GPU": 0,
    "memory": 0
  }
})");
}

TEST(Json, IsOneLineWhereLinesCount) {
  EXPECT_EQ(IdJson(*JobId::FromText(std::string(32, '1'))),
            R"({"id":"11111111111111111111111111111111"})");
  EXPECT_EQ(ErrorJson("NOT_FOUND", "unknown_job", "no \"x\""),
            R"({"code":"NOT_FOUND","reason":"unknown_job",)"
            R"("message":"no \"x\""})");
  EXPECT_EQ(LogLineJson(1, 2, "stdout", "a\tb", "T"),
            R"({"attempt":1,"rank":2,"stream":"stdout","time":"T",)"
            R"("line":"a\tb"})");
}

TEST(Json, SurvivesWhatIsNoTextAndNoJson) {
  EXPECT_EQ(LogLineJson(1, 0, "stdout", "\xff", ""),
            "{\"attempt\":1,\"rank\":0,\"stream\":\"stdout\",\"time\":"
            "null,\"line\":"
            "\"\xef\xbf\xbd\"}");
  Job job;
  job.set_metrics_json("{broken");
  EXPECT_NE(ToJson(job).find("\n  \"metrics\": null,\n"), std::string::npos);
}

// What a newer head says beyond what is known here.
TEST(Json, ShowsTheNumberOfAStateThatItDoesNotKnow) {
  Job job;
  job.set_state(static_cast<JobState>(99));
  EXPECT_EQ(nlohmann::json::parse(ToJson(job))["state"], "99");
  // A job that succeeded has a status, if nobody told it.
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(nlohmann::json::parse(ToJson(job))["exit_code"], 0);
}

TEST(Json, ShowsNullForWhatASpecDoesNotSay) {
  const auto job = Parsed<Job>("job_id: $11 failed_rank: -1 spec {}");
  const auto json = nlohmann::json::parse(ToJson(job));
  for (const char* key :
       {"failed_rank", "package_hash", "working_directory", "workers_per_node",
        "storage_path", "num_to_keep", "max_failures", "held_by"}) {
    EXPECT_TRUE(json.at(key).is_null()) << key;
  }
  EXPECT_TRUE(json.at("command").empty());
  EXPECT_TRUE(json.at("environment").is_object());
}

TEST(Json, SaysOfAPreflightThatHasNotBegunThatItIsWanted) {
  const auto job = Parsed<Job>("job_id: $11 spec { run { preflight: true } }");
  const auto json = nlohmann::json::parse(ToJson(job));
  EXPECT_EQ(json["preflight"]["attempt"], 0);
  EXPECT_TRUE(json["preflight"]["verdict"].is_null());
  EXPECT_TRUE(json["preflight"]["report"].is_null());
}

}  // namespace
}  // namespace cohort

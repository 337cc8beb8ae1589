#include "client/json.h"

#include <string>

#include "gtest/gtest.h"

namespace cohort {
namespace {

template <typename Id>
Id IdOf(char c) {
  return Id::FromBytes(std::string(Id::kBytes, c)).value();
}

absl::Time At(int64_t milliseconds) {
  return absl::FromUnixMillis(1'795'000'000'000 + milliseconds);
}

// Golden: programs of others read these.
TEST(Json, ShowsAJobThatIsKnownInAllItsParts) {
  Job job;
  job.id = IdOf<JobId>('\x11');
  job.name = "train";
  job.state = JobState::kFailed;
  job.reason = "rank 1 was killed by signal 9";
  job.attempt = 2;
  job.failures = 1;
  job.epoch = 3;
  job.num_workers = 2;
  job.restart = RestartPolicy::kOne;
  job.exit = ExitStatus{.signal = 9};
  job.submitted_at = At(1);
  job.started_at = At(20);
  job.ended_at = At(300) + absl::Microseconds(999);
  job.ran = absl::Milliseconds(61'500);
  job.metrics_json = R"({"loss": 0.5, "epoch": 3})";
  job.checkpoint = Checkpoint{.path = "/r/step-7", .step = 7, .epoch = 2};
  job.failure_class = FailureClass::kOom;
  job.causes = {"rank 1 was killed for memory", "attempt 2 ended"};
  job.stderr_tail = "Killed\n";
  job.failures_by_class = {{FailureClass::kUser, 1}, {FailureClass::kOom, 1}};
  job.labels = {{"team", "vision"}};
  job.name_space = "research";
  job.priority = 5;
  job.comment = "the last try";
  job.time_limit = absl::Minutes(90);
  job.grace = absl::Seconds(10);
  job.retry_delay = absl::Milliseconds(250);
  job.selectors = {"zone=a"};
  job.tolerations = {{.key = "gpu", .value = "only"}};
  job.topology = {.level = "rack", .required = true};
  job.after = {{.job = IdOf<JobId>('\x33'), .kind = DependencyKind::kAny}};
  job.begin = At(5);
  job.preflight_wanted = true;
  job.preflight = Preflight{.attempt = 2,
                            .verdict = PreflightVerdict::kSlow,
                            .summary = "ranks 0 and 1",
                            .json = R"({"world": 2})",
                            .at = At(30)};
  job.ranks = {{.rank = 0,
                .local_rank = 0,
                .node = IdOf<NodeId>('\x22'),
                .node_name = "worker-0",
                .pid = 41,
                .state = RankState::kExited,
                .exit = ExitStatus{.code = 0},
                .incarnation = 4,
                .failures = 1,
                .gpu_ids = {"GPU-1", "GPU-2"}},
               {.rank = 1, .state = RankState::kPending}};
  EXPECT_EQ(JobJson(job), R"({
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
    "epoch": 2
  },
  "namespace": "research",
  "labels": {
    "team": "vision"
  },
  "priority": 5,
  "held": false,
  "class": "oom",
  "never_fits": false,
  "epoch": 3,
  "num_workers": 2,
  "restart": "one",
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
      "exit_code": 0,
      "signal": null,
      "incarnation": 4,
      "failures": 1,
      "gpu_ids": [
        "GPU-1",
        "GPU-2"
      ]
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
      "gpu_ids": []
    }
  ]
})");
}

TEST(Json, ShowsHowTheElementsOfAnArrayAre) {
  Job job;
  job.id = IdOf<JobId>('\x11');
  job.array_spec = "0-9%2";
  job.array =
      ArrayStatus{.size = 10,
                  .at_once = 2,
                  .counts = {{JobState::kPending, 8}, {JobState::kRunning, 2}}};
  EXPECT_NE(JobJson(job).find(R"("array_spec": "0-9%2",
  "array": {
    "size": 10,
    "at_once": 2,
    "states": {
      "PENDING": 8,
      "RUNNING": 2
    }
  })"),
            std::string::npos)
      << JobJson(job);
}

TEST(Json, ShowsEveryKeyOfAJobThatHasJustBegun) {
  Job job;
  job.id = IdOf<JobId>('\x11');
  job.state = JobState::kPending;
  job.submitted_at = At(0);
  job.name_space = "research";
  job.labels = {{"team", "vision"}};
  job.priority = -2;
  job.held = true;
  job.failure_class = FailureClass::kUser;
  EXPECT_EQ(JobsJson({job}), R"([
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
  Node node;
  node.id = IdOf<NodeId>('\x33');
  node.name = "n";
  node.state = "ALIVE";
  node.incarnation = 4;
  node.pid = 99;
  node.resources.Set(kCpu, Amount::FromUnits(4));
  node.resources.Set(kMemory, Amount::FromUnits(int64_t{64} << 30));
  node.resources.Set("license", Amount::FromTenThousandths(15'000));
  node.available.Set(kCpu, Amount::FromTenThousandths(5'000));
  node.labels = {{"zone", "a"}};
  node.devices = {{.id = "GPU-1",
                   .kind = "gpu",
                   .model = "H100",
                   .memory_bytes = 1,
                   .simulated = true,
                   .state = "HEALTHY"}};
  EXPECT_EQ(NodesJson({node}), R"([
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
    "unfit": null,
    "host": null,
    "build": null
  }
])");
}

TEST(Json, ShowsAGpuWithItsNodeItsSampleAndItsHolders) {
  Node node;
  node.id = IdOf<NodeId>('\x33');
  node.name = "n";
  node.state = "ALIVE";
  Device& device = node.devices.emplace_back();
  device = {.id = "GPU-1",
            .kind = "gpu",
            .model = "H100",
            .memory_bytes = 80,
            .simulated = false,
            .pci_bus_id = "00000000:3b:00.0",
            .numa_node = 1,
            .nvlink_peers = {"GPU-2"},
            .parent = "",
            .state = "FENCED",
            .reason = "GPU GPU-1: Xid 48",
            .since = At(0)};
  device.sample.emplace();
  device.sample->utilization_percent = 97;
  device.sample->remap_failed = false;
  device.sample->last_xid = 48;
  device.holders.push_back({.attempt = IdOf<AttemptId>('\x44'),
                            .job = JobId(),
                            .job_name = "train",
                            .share = Amount::FromTenThousandths(5'000),
                            .ranks = {0, 3}});
  EXPECT_EQ(GpusJson({node}), R"([
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
  NodeDetails details;
  Node& node = details.node;
  node.id = IdOf<NodeId>('\x33');
  node.name = "n";
  node.state = "DRAINING";
  node.incarnation = 4;
  node.since = At(0);
  node.taints = {{.key = "gpu", .value = "only"}};
  node.drain = Drain{.reason = "fan",
                     .principal = "ann",
                     .asked_at = At(0),
                     .deadline = std::nullopt};
  node.unfit = "no room";
  node.host = "10.0.0.1";
  node.build = "0.1.0 abc";
  HeldAttempt& held = details.held.emplace_back();
  held.attempt = IdOf<AttemptId>('\x55');
  held.job = IdOf<JobId>('\x11');
  held.job_name = "train";
  held.number = 2;
  held.state = "RUNNING";
  held.resources.Set(kCpu, Amount::FromUnits(1));
  details.held.emplace_back().state = "VOID";
  Event& event = details.history.emplace_back();
  event.number = 7;
  event.at = At(0);
  event.kind = "node_drained";
  event.node = node.id;
  event.principal = "ann";
  event.text = "ann drained node n: fan";
  const std::string text = NodeDetailsJson(details);
  EXPECT_EQ(text.substr(text.find("  \"since\"")),
            R"(  "since": "2026-11-18T11:06:40.000Z",
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
  "unfit": "no room",
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
      "attempt_id": "00000000000000000000000000000000",
      "job_id": null,
      "job_name": null,
      "attempt": 0,
      "state": "VOID",
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
  Event event;
  event.number = 12;
  event.kind = "head_started";
  event.text = "term 1\n";
  EXPECT_EQ(EventJson(event),
            R"({"number":12,"time":null,"kind":"head_started","job":null,)"
            R"("attempt":null,"node":null,"node_name":null,"principal":null,)"
            R"("namespace":null,"request_id":null,"cause":null,)"
            R"("text":"term 1\n"})");
  event.at = At(5);
  event.job = IdOf<JobId>('\x11').Element(3);
  event.attempt = IdOf<AttemptId>('\x22');
  event.node = IdOf<NodeId>('\x33');
  event.node_name = "n1";
  event.principal = "cluster";
  event.name_space = "default";
  event.request_id = "r";
  event.cause = 11;
  EXPECT_EQ(EventJson(event),
            R"({"number":12,"time":"2026-11-18T11:06:40.005Z",)"
            R"("kind":"head_started",)"
            R"("job":"11111111111111111111111111111111.3",)"
            R"("attempt":"22222222222222222222222222222222",)"
            R"("node":"33333333333333333333333333333333","node_name":"n1",)"
            R"("principal":"cluster","namespace":"default","request_id":"r",)"
            R"("cause":11,"text":"term 1\n"})");
}

TEST(Json, ShowsStatusAndResources) {
  ClusterStatus status;
  status.cluster_id = IdOf<ClusterId>('\x44');
  status.address = "127.0.0.1:7710";
  status.http_address = "127.0.0.1:7711";
  status.head_pid = 12;
  status.term = 3;
  status.nodes_by_state = {{"ALIVE", 2}};
  status.jobs_by_state = {{"RUNNING", 1}, {"NEW", 5}};
  status.read_only = true;
  status.read_only_why = "the disk is full";
  status.orphans = {{.attempt = IdOf<AttemptId>('a'),
                     .job = IdOf<JobId>('j'),
                     .nodes = {"node-1"},
                     .state = "RUNNING",
                     .since = absl::FromUnixSeconds(1)}};
  status.orphan_count = 1;
  status.later_store_nodes = {"node-2"};
  status.later_store_term = 9;
  status.later_store_why = "it was restored";
  EXPECT_EQ(StatusJson(status), R"({
  "cluster_id": "44444444444444444444444444444444",
  "address": "127.0.0.1:7710",
  "http_address": "127.0.0.1:7711",
  "head_pid": 12,
  "term": 3,
  "nodes": {
    "ALIVE": 2,
    "UNFIT": 0,
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
      "job": "6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a",
      "nodes": [
        "node-1"
      ],
      "state": "RUNNING",
      "since": "1970-01-01T00:00:01.000Z"
    }
  ],
  "orphan_count": 1
})");
  EXPECT_EQ(ResourcesJson({}), R"({
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
  EXPECT_EQ(IdJson(IdOf<JobId>('\x11')),
            R"({"id":"11111111111111111111111111111111"})");
  EXPECT_EQ(ErrorJson("NOT_FOUND", "unknown_job", "no \"x\""),
            R"({"code":"NOT_FOUND","reason":"unknown_job",)"
            R"("message":"no \"x\""})");
  EXPECT_EQ(LogLineJson(1, 2, "stdout", "a\tb"),
            R"({"attempt":1,"rank":2,"stream":"stdout","line":"a\tb"})");
}

TEST(Json, SurvivesWhatIsNoTextAndNoJson) {
  EXPECT_EQ(LogLineJson(1, 0, "stdout", "\xff"),
            "{\"attempt\":1,\"rank\":0,\"stream\":\"stdout\",\"line\":"
            "\"\xef\xbf\xbd\"}");
  Job job;
  job.metrics_json = "{broken";
  EXPECT_NE(JobJson(job).find("\"metrics\": null"), std::string::npos);
}

}  // namespace
}  // namespace cohort

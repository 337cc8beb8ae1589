#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "client/json.h"
#include "client/testing/messages.h"

namespace cohort {
namespace {

using client::ExpectJson;
using client::Parsed;

TEST(ExplanationJson, HasEveryKey) {
  ExpectJson(
      ToJson(Parsed<Explanation>(R"pb(
        job_id: $11
        name: "train"
        state: JOB_STATE_PENDING
        summary: "needs 2 x {memory 1GiB} (PACK)"
        blockers {
          kind: "resources"
          text: "needs 2 x {memory 1GiB} (PACK)"
          shape: "2 x {memory 1GiB} (PACK)"
          num_workers: 2
          nodes: 3
          nodes_that_fit: 1
          workers_that_fit: 1
          failures {
            by: "resource"
            what: "memory"
            nodes: 1
            nodes_in_all: 2
            short_least: 10240000
            short_median: 5000
            closest: "n2"
          }
          failures {
            by: "state"
            what: "DRAINED"
            nodes: 1
            since_us: 1700000000000000
          }
          holders { resource: "memory" job_id: $22 amount: 70000 nodes: 1 }
          holders_complete: true
        }
        ahead {
          jobs: 1
          first { job_id: $33 name: "a" priority: 5 }
        }
        changes {
          kind: "FEWER_WORKERS"
          of_request: true
          text: "1 worker instead of 2"
          how: "--num-workers 1"
        }
        changes { kind: "MORE_NODES" text: "1 more node" }
        changes_complete: true
        element_id: $11_3
        elements { kind: "array" count: 2 first_id: $11_3 }
        elements { kind: "after" count: 1 })pb")),
      R"json({
  "job": "11111111111111111111111111111111",
  "name": "train",
  "state": "PENDING",
  "summary": "needs 2 x {memory 1GiB} (PACK)",
  "blockers": [
    {
      "kind": "resources",
      "text": "needs 2 x {memory 1GiB} (PACK)",
      "shape": "2 x {memory 1GiB} (PACK)",
      "workers": 2,
      "nodes": 3,
      "nodes_that_fit": 1,
      "workers_that_fit": 1,
      "never_fits": false,
      "fail": [
        {
          "by": "resource:memory",
          "nodes": 1,
          "short": 1024,
          "short_median": 0.5,
          "closest": "n2",
          "kind": "resource",
          "what": "memory",
          "nodes_in_all": 2,
          "since": null
        },
        {
          "by": "state:DRAINED",
          "nodes": 1,
          "short": null,
          "short_median": null,
          "closest": null,
          "kind": "state",
          "what": "DRAINED",
          "nodes_in_all": 0,
          "since": "2023-11-14T22:13:20.000Z"
        }
      ],
      "holders": [
        {
          "resource": "memory",
          "job": "22222222222222222222222222222222",
          "amount": 7,
          "nodes": 1
        }
      ],
      "holders_complete": true
    }
  ],
  "ahead": {
    "jobs": 1,
    "more": false,
    "first": [
      {
        "job": "33333333333333333333333333333333",
        "name": "a",
        "priority": 5
      }
    ]
  },
  "smallest_change": {
    "kind": "FEWER_WORKERS",
    "of": "request",
    "text": "1 worker instead of 2",
    "how": "--num-workers 1"
  },
  "changes": [
    {
      "kind": "FEWER_WORKERS",
      "of": "request",
      "text": "1 worker instead of 2",
      "how": "--num-workers 1"
    },
    {
      "kind": "MORE_NODES",
      "of": "cluster",
      "text": "1 more node",
      "how": null
    }
  ],
  "changes_complete": true,
  "history": [],
  "element": "11111111111111111111111111111111.3",
  "elements": [
    {
      "kind": "array",
      "count": 2,
      "first": "11111111111111111111111111111111.3"
    },
    {
      "kind": "after",
      "count": 1,
      "first": null
    }
  ],
  "scaling": null
})json");
}

TEST(ExplanationJson, IsNullWhereNothingIsCounted) {
  const auto json = nlohmann::json::parse(ToJson(Parsed<Explanation>(R"pb(
    blockers { kind: "held" text: "it is held" }
    history {
      since_us: 1000000
      blocker { kind: "resources" }
    })pb")));
  EXPECT_TRUE(json["blockers"][0]["shape"].is_null());
  EXPECT_TRUE(json["blockers"][0]["nodes"].is_null());
  EXPECT_TRUE(json["smallest_change"].is_null());
  EXPECT_EQ(json["ahead"]["jobs"], 0);
  EXPECT_EQ(json["history"][0]["since"], "1970-01-01T00:00:01.000Z");
  EXPECT_TRUE(json["history"][0]["until"].is_null());
}

}  // namespace
}  // namespace cohort

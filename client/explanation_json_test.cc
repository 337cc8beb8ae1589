#include "client/explanation_json.h"

#include "gtest/gtest.h"

namespace cohort {
namespace {

JobId JobOfDigit(const char* digit) {
  std::string text;
  while (text.size() < 32) text += digit;
  return *JobId::FromText(text);
}

Explanation Some() {
  Explanation explanation;
  explanation.job = JobOfDigit("1");
  explanation.name = "train";
  explanation.state = JobState::kPending;
  explanation.summary = "needs 2 x {memory 1GiB} (PACK)";
  Blocker& blocker = explanation.blockers.emplace_back();
  blocker.kind = "resources";
  blocker.text = "needs 2 x {memory 1GiB} (PACK)";
  blocker.shape = "2 x {memory 1GiB} (PACK)";
  blocker.num_workers = 2;
  blocker.nodes = 3;
  blocker.nodes_that_fit = 1;
  blocker.workers_that_fit = 1;
  blocker.failures = {{.by = "resource",
                       .what = "memory",
                       .nodes = 1,
                       .nodes_in_all = 2,
                       .short_least = Amount::FromUnits(1024),
                       .short_median = Amount::FromTenThousandths(5'000),
                       .closest = "n2"},
                      {.by = "state",
                       .what = "DRAINED",
                       .nodes = 1,
                       .since = absl::FromUnixSeconds(1'700'000'000)}};
  blocker.holders = {{.resource = "memory",
                      .job = JobOfDigit("2"),
                      .amount = Amount::FromUnits(7),
                      .nodes = 1}};
  explanation.ahead = {
      .jobs = 1,
      .more = false,
      .first = {{.id = JobOfDigit("3"), .name = "a", .priority = 5}}};
  explanation.element = JobOfDigit("1").Element(3);
  explanation.elements = {
      {.kind = "array", .count = 2, .first = JobOfDigit("1").Element(3)},
      {.kind = "after", .count = 1, .first = {}}};
  explanation.changes = {{.kind = "FEWER_WORKERS",
                          .of_request = true,
                          .text = "1 worker instead of 2",
                          .how = "--num-workers 1"},
                         {.kind = "MORE_NODES", .text = "1 more node"}};
  return explanation;
}

TEST(ExplanationJson, HasEveryKey) {
  EXPECT_EQ(ExplanationJson(Some()), R"json({
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
  ]
})json");
}

TEST(ExplanationJson, IsNullWhereNothingIsCounted) {
  Explanation explanation;
  explanation.blockers.push_back({.kind = "held", .text = "it is held"});
  explanation.history.push_back(
      {.since = absl::FromUnixSeconds(1), .blocker = {.kind = "resources"}});

  const std::string json = ExplanationJson(explanation);

  EXPECT_NE(json.find("\"shape\": null"), std::string::npos);
  EXPECT_NE(json.find("\"nodes\": null"), std::string::npos);
  EXPECT_NE(json.find("\"smallest_change\": null"), std::string::npos);
  EXPECT_NE(json.find("\"since\": \"1970-01-01T00:00:01.000Z\""),
            std::string::npos);
  EXPECT_NE(json.find("\"until\": null"), std::string::npos);
}

}  // namespace
}  // namespace cohort

#include "client/job_trace.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "client/testing/messages.h"

namespace cohort {
namespace {

using client::Parsed;
using TraceDocument = nlohmann::json;

Event EventAt(int64_t seconds, const std::string& more) {
  return Parsed<Event>(
      absl::StrCat("at { seconds: ", seconds, " } job_id: $11 ", more));
}

JobPast SomePast() {
  JobPast past;
  past.job = Parsed<Job>(R"pb(
    job_id: $11
    name: "train"
    state: JOB_STATE_RUNNING
    ranks {
      node_id: $22
      node_name: "w0"
      pid: 41
      state: PROCESS_STATE_RUNNING
      gpu_ids: "GPU-1"
    }
    ranks { rank: 1 node_id: $33 node_name: "w1" pid: 42 }
  )pb");
  past.events = {
      EventAt(10, "number: 1 kind: 'job_submitted' text: 'train'"),
      EventAt(12,
              "number: 2 kind: 'job_moved' attempt_id: $44 text: 'STARTING "
              "on w0, w1'"),
      EventAt(13,
              "number: 3 kind: 'attempt_moved' attempt_id: $44 text: "
              "'RUNNING'"),
      EventAt(13,
              "number: 4 kind: 'job_moved' attempt_id: $44 text: "
              "'RUNNING'"),
      EventAt(15, "number: 5 kind: 'job_stop_requested' principal: 'ann'")};
  past.waits = Parsed<Explanation>(R"pb(
    history {
      since_us: 10000000
      until_us: 12000000
      blocker { kind: "resources" text: "no node has 8 GPUs" }
    })pb");
  return past;
}

// The slices of a track, as "NAME FROM-UNTIL" in seconds.
std::vector<std::string> Slices(const TraceDocument& trace, int process,
                                int thread) {
  std::vector<std::string> found;
  for (const TraceDocument& each : trace["traceEvents"]) {
    if (each["ph"] != "X" || each["pid"] != process || each["tid"] != thread) {
      continue;
    }
    const int64_t from = each["ts"];
    const int64_t lasts = each["dur"];
    found.push_back(absl::StrCat(each["name"].get<std::string>(), " ",
                                 from / 1'000'000, "-",
                                 (from + lasts) / 1'000'000));
  }
  return found;
}

std::vector<std::string> Names(const TraceDocument& trace) {
  std::vector<std::string> found;
  for (const TraceDocument& each : trace["traceEvents"]) {
    if (each["ph"] == "M") found.push_back(each["args"]["name"]);
  }
  return found;
}

TEST(JobTrace, HasStatesWaitsAttemptsAndRanksOnTheirTracks) {
  const TraceDocument trace =
      TraceDocument::parse(TraceJson(SomePast(), absl::FromUnixSeconds(20)));
  EXPECT_THAT(
      Slices(trace, 1, 1),
      testing::ElementsAre("PENDING 10-12", "STARTING 12-13", "RUNNING 13-20"));
  EXPECT_THAT(Slices(trace, 1, 2), testing::ElementsAre("resources 10-12"));
  EXPECT_THAT(Slices(trace, 1, 3),
              testing::ElementsAre("PREPARING 12-13", "RUNNING 13-20"));
  EXPECT_THAT(Slices(trace, 2, 1), testing::ElementsAre("rank 0 13-20"));
  EXPECT_THAT(Slices(trace, 3, 2), testing::ElementsAre("rank 1 13-20"));
  EXPECT_THAT(Names(trace), testing::IsSupersetOf(
                                {"state", "waits for", "attempt 44444444",
                                 "node w0", "node w1", "rank 0", "rank 1"}));
}

TEST(JobTrace, ShowsCallsOfEachProcessOnTheirThreads) {
  JobPast past = SomePast();
  past.calls.push_back(Parsed<RankCalls>(R"pb(
    rank { rank: 1 node_name: "w1" pid: 77 }
    calls {
      methods: "Counter::Add"
      calls {
        caller: 0xab
        queued_us: 13000000
        waited_us: 1000000
        ran_us: 2000000
      }
      calls { thread: 1 queued_us: 14000000 ran_us: -1 }
      calls { method: 9 thread: 4000000000 queued_us: 15000000 ran_us: 1 }
    })pb"));
  const TraceDocument trace =
      TraceDocument::parse(TraceJson(past, absl::FromUnixSeconds(20)));
  EXPECT_THAT(Names(trace), testing::IsSupersetOf(
                                {"calls of rank 1 on w1, pid 77", "thread 1"}));
  EXPECT_THAT(Slices(trace, 1'000'001, 1),
              testing::ElementsAre("Counter::Add 14-16", "? 15-15"));
  EXPECT_THAT(Slices(trace, 1'000'001, 2),
              testing::ElementsAre("Counter::Add 14-20"));
}

TEST(JobTrace, EndsWithTheJob) {
  JobPast past = SomePast();
  past.job.mutable_ended_at()->set_seconds(18);
  past.events.push_back(
      EventAt(17,
              "number: 6 kind: 'attempt_moved' attempt_id: $44 text: "
              "'ENDED (stopped)'"));
  past.events.push_back(
      EventAt(18,
              "number: 7 kind: 'job_moved' attempt_id: $44 text: "
              "'STOPPED: by ann'"));
  const TraceDocument trace =
      TraceDocument::parse(TraceJson(past, absl::FromUnixSeconds(99)));
  EXPECT_THAT(
      Slices(trace, 1, 1),
      testing::ElementsAre("PENDING 10-12", "STARTING 12-13", "RUNNING 13-18"));
  EXPECT_THAT(Slices(trace, 2, 1), testing::ElementsAre("rank 0 13-17"));
}

TEST(JobTrace, OfAJobThatNeverRanHasNoRanks) {
  JobPast past = SomePast();
  past.events.resize(1);
  const TraceDocument trace =
      TraceDocument::parse(TraceJson(past, absl::FromUnixSeconds(20)));
  EXPECT_THAT(Slices(trace, 1, 1), testing::ElementsAre("PENDING 10-20"));
  EXPECT_THAT(Slices(trace, 2, 1), testing::IsEmpty());
}

}  // namespace
}  // namespace cohort

#include "client/cluster.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "client/message_text.h"
#include "client/testing/fake_head.h"
#include "common/status_util.h"
#include "common/testing/seed.h"
#include "common/testing/status_matchers.h"
#include "rpc/testing/inbox.h"

namespace cohort {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

JobSpec SpecOf(const std::string& name) {
  JobSpec spec;
  spec.command = {"true"};
  spec.run_config.name = name;
  return spec;
}

class ClusterTest : public ::testing::Test {
 protected:
  ClusterTest() : head_(TestSeed()) { head_.Start(); }

  std::unique_ptr<Cluster> Connect(ClusterOptions options = {}) {
    return Cluster::ConnectThrough(head_.Connect(), std::move(options));
  }
  // One whose failed calls bring the head back before they try again.
  std::unique_ptr<Cluster> ConnectReviving() {
    ClusterOptions options;
    options.on_retry = [this](const absl::Status&) {
      ++retries_;
      head_.Start();
    };
    return Connect(std::move(options));
  }

  client::FakeHead head_;
  std::atomic<int> retries_ = 0;
};

TEST_F(ClusterTest, SubmitsAndAsks) {
  const auto cluster = Connect();
  JobSpec spec = SpecOf("first");
  spec.scaling_config.num_workers = 3;
  spec.scaling_config.use_gpu = true;
  const auto id = cluster->Submit(spec);
  COHORT_ASSERT_OK(id);
  const auto job = cluster->Get(*id);
  COHORT_ASSERT_OK(job);
  EXPECT_EQ(job->job_id(), id->bytes());
  EXPECT_EQ(job->name(), "first");
  EXPECT_EQ(job->state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(job->num_workers(), 3);
  EXPECT_EQ(
      ResourcesOf(job->spec().scaling().resources_per_worker()).ToString(),
      "GPU 1");
  const auto jobs = cluster->List();
  COHORT_ASSERT_OK(jobs);
  EXPECT_EQ(jobs->jobs.size(), 1u);
  EXPECT_FALSE(jobs->is_cut);
  COHORT_ASSERT_OK(cluster->Stop(*id));
  EXPECT_EQ(cluster->Get(*id)->state(), v1::JOB_STATE_STOPPING);
  const auto status = cluster->Status();
  COHORT_ASSERT_OK(status);
  EXPECT_EQ(status->stamp().term(), 1u);
}

TEST_F(ClusterTest, ResizesAJobThatReplacesItsRanksAlone) {
  const auto cluster = Connect();
  JobSpec spec = SpecOf("served");
  spec.run_config.failure_config.restart = RestartPolicy::kOne;
  const auto id = cluster->Submit(spec);
  COHORT_ASSERT_OK(id);
  const v1::RunConfig run = head_.jobs().begin()->second.job.spec().run();
  EXPECT_EQ(run.restart(), v1::RESTART_POLICY_ONE);
  // The head knows what each policy allows by default.
  EXPECT_FALSE(run.has_max_failures());
  COHORT_EXPECT_OK(cluster->ResizeJob(*id, 4));
  EXPECT_EQ(cluster->Get(*id)->num_workers(), 4);
  EXPECT_THAT(cluster->ResizeJob(*id, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("num_workers is 0")));
  EXPECT_THAT(cluster->ResizeJob(JobId(), 1),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(ClusterTest, NamesWhatDoesNotExist) {
  const auto cluster = Connect();
  const JobId nobody;
  EXPECT_THAT(cluster->Get(nobody), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(cluster->Stop(nobody), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(cluster->Wait(nobody), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(ClusterTest, RefusesASpecThatCanNeverRunBeforeSendingIt) {
  const auto cluster = Connect();
  EXPECT_THAT(cluster->Submit(JobSpec()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("command is empty")));
  EXPECT_THAT(
      cluster->Submit(SpecOf("a"), {.request_id = std::string(129, 'r')}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("1 to 128 bytes")));
  EXPECT_TRUE(head_.jobs().empty());
}

// CL-1.
TEST_F(ClusterTest, MakesOneJobASubmitHoweverOftenTheConnectionBreaks) {
  constexpr int kJobs = 25;
  const auto cluster = Connect();
  head_.SetBreakProbability(0.2);
  std::set<JobId> ids;
  for (int i = 0; i < kJobs; ++i) {
    const auto id = cluster->Submit(SpecOf(absl::StrCat("job-", i)));
    COHORT_ASSERT_OK(id);
    ids.insert(*id);
  }
  EXPECT_EQ(ids.size(), static_cast<size_t>(kJobs));
  EXPECT_EQ(head_.jobs().size(), static_cast<size_t>(kJobs));
  EXPECT_GT(head_.faults().replies_lost, 0) << "the fault never happened";
}

// CL-1.
TEST_F(ClusterTest, MakesOneJobWhenTheHeadDiesAfterItsCommit) {
  const auto cluster = ConnectReviving();
  head_.BreakAfterSubmits(1);
  const auto id = cluster->Submit(SpecOf("once"));
  COHORT_ASSERT_OK(id);
  EXPECT_EQ(retries_, 1);
  ASSERT_EQ(head_.jobs().size(), 1u);
  EXPECT_EQ(head_.jobs().begin()->first, std::string(id->bytes()));
}

TEST_F(ClusterTest, SubmitsToAHeadThatComesBack) {
  const auto cluster = ConnectReviving();
  COHORT_ASSERT_OK(cluster->Submit(SpecOf("before")));
  head_.Kill();
  COHORT_ASSERT_OK(cluster->Submit(SpecOf("after")));
  EXPECT_GE(retries_, 1);
  EXPECT_EQ(head_.jobs().size(), 2u);
}

TEST_F(ClusterTest, AnswersTheFirstJobToTheSameRequestId) {
  const auto first = Connect();
  const auto second = Connect();
  const auto id = first->Submit(SpecOf("a"), {.request_id = "r"});
  COHORT_ASSERT_OK(id);
  EXPECT_THAT(second->Submit(SpecOf("a"), {.request_id = "r"}),
              IsOkAndHolds(*id));
  EXPECT_THAT(second->Submit(SpecOf("b"), {.request_id = "r"}),
              StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(ClusterTest, SaysThatNobodyAnswers) {
  head_.Kill();
  const auto cluster = Connect({.deadline = absl::Milliseconds(50)});
  const absl::Status status = cluster->List().status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                               HasSubstr("cannot be reached")));
  EXPECT_EQ(GetReason(status), "unreachable");
}

TEST_F(ClusterTest, IsNotLetInWithAnotherCredential) {
  const auto wrong = rpc::Credential::FromBytes(std::string(32, 'w')).value();
  const auto cluster = Cluster::ConnectThrough(head_.ConnectWith(wrong));
  EXPECT_THAT(cluster->List(), StatusIs(absl::StatusCode::kUnauthenticated));
}

// CL-2.
TEST_F(ClusterTest, WaitsOutAHeadOfALowerTerm) {
  const std::string cluster_id(16, 'a');
  head_.Kill();
  head_.StartAs(cluster_id, 7);
  std::atomic<int> stale = 0;
  const auto cluster = Connect({.on_retry = [&](const absl::Status& why) {
    if (GetReason(why) == "stale_term") ++stale;
    head_.Kill();
    head_.StartAs(cluster_id, 8);
  }});
  COHORT_ASSERT_OK(cluster->Status());
  head_.Kill();
  head_.StartAs(cluster_id, 6);
  const auto status = cluster->Status();
  COHORT_ASSERT_OK(status);
  EXPECT_EQ(status->stamp().term(), 8u);
  EXPECT_GE(stale, 1);
}

// CL-3.
TEST_F(ClusterTest, RefusesAnotherClusterAtTheSameAddress) {
  const auto cluster = Connect();
  COHORT_ASSERT_OK(cluster->Status());
  head_.Kill();
  head_.StartAs(std::string(16, 'b'), 1);
  const absl::Status status = cluster->Submit(SpecOf("lost")).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr("another cluster")));
  EXPECT_EQ(GetReason(status), "other_cluster");
  // A new connection reaches the new one.
  COHORT_EXPECT_OK(Connect()->Status());
}

TEST_F(ClusterTest, WaitsThroughARestart) {
  const auto cluster = ConnectReviving();
  const auto id = cluster->Submit(SpecOf("long"));
  COHORT_ASSERT_OK(id);
  absl::StatusOr<Job> ended = absl::UnknownError("not yet");
  std::thread waiting([&] { ended = cluster->Wait(*id); });
  head_.AwaitWaiter();
  head_.Kill();
  v1::ExitStatus exit;
  exit.set_signal(9);
  head_.EndJob(std::string(id->bytes()), v1::JOB_STATE_FAILED, &exit);
  waiting.join();
  COHORT_ASSERT_OK(ended);
  EXPECT_EQ(ended->state(), v1::JOB_STATE_FAILED);
  ASSERT_TRUE(ended->has_exit());
  EXPECT_EQ(ShellStatus(ended->exit()), 137);
}

TEST_F(ClusterTest, WaitingEndsAtItsDeadline) {
  const auto cluster = Connect();
  const auto id = cluster->Submit(SpecOf("long"));
  COHORT_ASSERT_OK(id);
  EXPECT_THAT(cluster->Wait(*id, absl::Milliseconds(20)),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  head_.Kill();
  EXPECT_THAT(cluster->Wait(*id, absl::Milliseconds(20)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("cannot be reached")));
}

TEST_F(ClusterTest, SubmitsManyAtOnce) {
  constexpr int kJobs = 500;
  const auto cluster = Connect();
  rpc::Inbox<absl::StatusOr<JobId>> answers;
  for (int i = 0; i < kJobs; ++i) {
    cluster->SubmitAsync(
        SpecOf(absl::StrCat(i)), {},
        [&answers](absl::StatusOr<JobId> id) { answers.Put(std::move(id)); });
  }
  std::set<JobId> ids;
  for (int i = 0; i < kJobs; ++i) {
    const absl::StatusOr<JobId> id = answers.Take();
    COHORT_ASSERT_OK(id);
    ids.insert(*id);
  }
  EXPECT_EQ(ids.size(), static_cast<size_t>(kJobs));
}

TEST_F(ClusterTest, RefusesMoreInFlightThanItWasTold) {
  head_.Kill();
  rpc::Inbox<absl::Status> answers;
  auto cluster = Connect({.submits_in_flight_max = 2});
  const auto submit = [&] {
    cluster->SubmitAsync(SpecOf("a"), {}, [&answers](absl::StatusOr<JobId> id) {
      answers.Put(id.status());
    });
  };
  submit();
  submit();
  submit();
  EXPECT_THAT(answers.Take(), StatusIs(absl::StatusCode::kResourceExhausted));
  // What is in flight is told when it is given up.
  cluster.reset();
  EXPECT_THAT(answers.Take(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(answers.Take(), StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(ClusterTest, TellsABadSpecToTheCallback) {
  const auto cluster = Connect();
  rpc::Inbox<absl::Status> answers;
  cluster->SubmitAsync(JobSpec(), {}, [&answers](absl::StatusOr<JobId> id) {
    answers.Put(id.status());
  });
  EXPECT_THAT(answers.Take(), StatusIs(absl::StatusCode::kInvalidArgument));
}

class LogsTest : public ClusterTest {
 protected:
  JobId SubmitWorld(Cluster& cluster, int world) {
    JobSpec spec = SpecOf("logs");
    spec.scaling_config.num_workers = world;
    const JobId id = cluster.Submit(spec).value();
    for (int rank = 0; rank < world; ++rank) {
      head_.SetLog(std::string(id.bytes()), rank, v1::LOG_STREAM_STDOUT,
                   TextOf(rank, v1::LOG_STREAM_STDOUT));
      head_.SetLog(std::string(id.bytes()), rank, v1::LOG_STREAM_STDERR,
                   TextOf(rank, v1::LOG_STREAM_STDERR));
    }
    return id;
  }

  static std::string TextOf(int rank, LogStream stream) {
    std::string text;
    for (int i = 0; i < 100; ++i) {
      absl::StrAppend(&text, stream == v1::LOG_STREAM_STDOUT ? "out " : "err ",
                      rank, " line ", i, "\n");
    }
    return text;
  }

  absl::Status Read(const Cluster& cluster, JobId id, LogOptions options) {
    return cluster.Logs(id, options, [this](const LogChunk& chunk) {
      std::string& text = read_[{chunk.rank, chunk.stream}];
      EXPECT_EQ(chunk.offset, static_cast<int64_t>(text.size()));
      text.append(chunk.data.data(), chunk.data.size());
      return absl::OkStatus();
    });
  }

  std::map<std::pair<int, LogStream>, std::string> read_;
};

TEST_F(LogsTest, ReadsAllRanksEachByteOnceThroughBrokenStreams) {
  const auto cluster = Connect();
  const JobId id = SubmitWorld(*cluster, 3);
  head_.BreakLogsAfter(700);
  COHORT_ASSERT_OK(Read(*cluster, id, {.standard_error = true}));
  ASSERT_EQ(read_.size(), 6u);
  for (const auto& [source, text] : read_) {
    EXPECT_EQ(text, TextOf(source.first, source.second));
  }
}

TEST_F(LogsTest, ReadsOneRankOfABreakingNetwork) {
  const auto cluster = Connect();
  const JobId id = SubmitWorld(*cluster, 3);
  head_.SetBreakProbability(0.2);
  COHORT_ASSERT_OK(Read(*cluster, id, {.ranks = {1}, .follow = true}));
  ASSERT_EQ(read_.size(), 1u);
  EXPECT_EQ(read_.begin()->second, TextOf(1, v1::LOG_STREAM_STDOUT));
}

TEST_F(LogsTest, GoesOnWithAProcessOnAnotherNode) {
  const auto cluster = Connect();
  const JobId id = SubmitWorld(*cluster, 1);
  head_.RepeatLogs();
  std::string read;
  COHORT_ASSERT_OK(cluster->Logs(id, {}, [&read](const LogChunk& chunk) {
    absl::StrAppend(&read, chunk.data);
    return absl::OkStatus();
  }));
  const std::string text = TextOf(0, v1::LOG_STREAM_STDOUT);
  EXPECT_EQ(read, absl::StrCat(text, text));
}

TEST_F(LogsTest, KnowsItsRanks) {
  const auto cluster = Connect();
  const JobId id = SubmitWorld(*cluster, 2);
  EXPECT_THAT(Read(*cluster, id, {.ranks = {0, 2}}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("0 to 1")));
  EXPECT_THAT(Read(*cluster, JobId(), {}),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(LogsTest, ReadsTheLastLinesOfEachRank) {
  const auto cluster = Connect();
  const JobId id = SubmitWorld(*cluster, 2);
  for (const int tail : {0, 1, 7, 100, 1'000}) {
    std::map<int, std::string> read;
    COHORT_ASSERT_OK(
        cluster->Logs(id, {.tail = tail}, [&read](const LogChunk& chunk) {
          absl::StrAppend(&read[chunk.rank], chunk.data);
          return absl::OkStatus();
        }));
    for (int rank = 0; rank < 2; ++rank) {
      const std::string all = TextOf(rank, v1::LOG_STREAM_STDOUT);
      EXPECT_TRUE(absl::EndsWith(all, read[rank]));
      EXPECT_EQ(std::count(read[rank].begin(), read[rank].end(), '\n'),
                std::min(tail, 100));
    }
  }
}

TEST_F(LogsTest, FindsLastLinesThatAreLong) {
  const auto cluster = Connect();
  const JobId id = SubmitWorld(*cluster, 1);
  const std::string last(300'000, 'x');
  head_.SetLog(std::string(id.bytes()), 0, v1::LOG_STREAM_STDOUT,
               absl::StrCat(std::string(1'000'000, 'a'), "\n", last, "\nz"));
  COHORT_ASSERT_OK(cluster->Logs(id, {.tail = 2}, [&](const LogChunk& chunk) {
    EXPECT_EQ(chunk.data, absl::StrCat(last, "\nz"));
    EXPECT_EQ(chunk.offset, 1'000'001);
    return absl::OkStatus();
  }));
}

class TimedLogsTest : public LogsTest {
 protected:
  // One line of `size` bytes at each time, which it begins with.
  void SetLines(JobId id, LogStream stream, const std::vector<int>& times,
                size_t size) {
    std::string text;
    std::vector<v1::LogTime> log_times;
    for (const int at : times) {
      v1::LogTime& time = log_times.emplace_back();
      time.set_offset(static_cast<int64_t>(text.size()));
      time.set_at_us(at * int64_t{1'000'000});
      absl::StrAppend(&text, at, std::string(size, '.'), "\n");
    }
    head_.SetLog(std::string(id.bytes()), 0, stream, text, log_times);
  }
  // The times of the lines, as they come.
  std::vector<int> ReadTimes(const Cluster& cluster, JobId id,
                             LogOptions options) {
    options.standard_error = true;
    std::vector<int> times;
    COHORT_EXPECT_OK(cluster.Logs(id, options, [&](const LogChunk& chunk) {
      times.push_back(static_cast<int>(absl::ToUnixSeconds(chunk.at)));
      EXPECT_TRUE(absl::StartsWith(chunk.data, absl::StrCat(times.back())));
      return absl::OkStatus();
    }));
    return times;
  }
};

TEST_F(TimedLogsTest, PutsStreamsInOrderAlsoWhenOneHasToWait) {
  const auto cluster = Connect();
  const JobId id = SubmitWorld(*cluster, 1);
  // More than is held of one.
  SetLines(id, v1::LOG_STREAM_STDOUT, {1, 3, 5, 7, 8, 9}, 100'000);
  SetLines(id, v1::LOG_STREAM_STDERR, {2, 4, 6}, 10);
  EXPECT_THAT(ReadTimes(*cluster, id, {}),
              ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST_F(TimedLogsTest, CountsTheLastLinesOfBothStreamsTogether) {
  const auto cluster = Connect();
  const JobId id = SubmitWorld(*cluster, 1);
  SetLines(id, v1::LOG_STREAM_STDOUT, {1, 3, 5, 7}, 10);
  SetLines(id, v1::LOG_STREAM_STDERR, {2, 4, 6}, 100'000);
  EXPECT_THAT(ReadTimes(*cluster, id, {.tail = 4}), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(ReadTimes(*cluster, id, {.tail = 1}), ElementsAre(7));
}

TEST_F(TimedLogsTest, LeavesOutWhatWasWrittenBefore) {
  const auto cluster = Connect();
  const JobId id = SubmitWorld(*cluster, 1);
  SetLines(id, v1::LOG_STREAM_STDOUT, {1, 3, 5, 7}, 50'000);
  SetLines(id, v1::LOG_STREAM_STDERR, {2, 4}, 10);
  EXPECT_THAT(ReadTimes(*cluster, id, {.since = absl::FromUnixSeconds(3)}),
              ElementsAre(3, 4, 5, 7));
  EXPECT_THAT(
      ReadTimes(*cluster, id, {.tail = 5, .since = absl::FromUnixSeconds(5)}),
      ElementsAre(5, 7));
  EXPECT_THAT(ReadTimes(*cluster, id, {.since = absl::FromUnixSeconds(8)}),
              ElementsAre());
}

TEST_F(LogsTest, ReadsALogWithoutTimesWholeWhateverSinceSays) {
  const auto cluster = Connect();
  const JobId id = SubmitWorld(*cluster, 1);
  COHORT_ASSERT_OK(Read(*cluster, id, {.since = absl::Now()}));
  EXPECT_EQ(read_.begin()->second, TextOf(0, v1::LOG_STREAM_STDOUT));
}

TEST_F(LogsTest, EndsWithTheErrorOfTheSink) {
  const auto cluster = Connect();
  const JobId id = SubmitWorld(*cluster, 4);
  EXPECT_THAT(cluster->Logs(id, {},
                            [](const LogChunk&) {
                              return absl::ResourceExhaustedError("disk full");
                            }),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(LogsTest, GivesUpWhenTheHeadStaysAway) {
  const auto cluster = Connect({.deadline = absl::Seconds(1)});
  const JobId id = SubmitWorld(*cluster, 1);
  head_.BreakLogsAfter(700);
  const absl::Status status = cluster->Logs(id, {}, [this](const LogChunk&) {
    head_.Kill();
    return absl::OkStatus();
  });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace cohort

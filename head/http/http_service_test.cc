#include "head/http/http_service.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "client/json.h"
#include "client/message_text.h"
#include "common/status_util.h"
#include "common/testing/manual_executor.h"
#include "rpc/credential.h"
#include "rpc/grpc_listener.h"
#include "rpc/methods.h"

namespace cohort::head {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;

rpc::Credential Secret() {
  return *rpc::Credential::FromBytes(
      std::string(rpc::Credential::kClusterBytes, '\xab'));
}

// A head that answers when the test says so.
class FakeBackend final : public HttpBackend {
 public:
  explicit FakeBackend(ManualExecutor& executor) : executor_(executor) {}

  rpc::CallHandle Call(absl::string_view path, absl::string_view authorization,
                       std::string request, absl::Duration,
                       rpc::Channel::Done done) override {
    path_ = std::string(path);
    authorization_ = std::string(authorization);
    request_ = std::move(request);
    if (answer_.has_value()) {
      executor_.Post([done = std::move(done), answer = *answer_]() mutable {
        std::move(done)({.response = answer, .stamp = std::nullopt});
      });
    } else {
      waiting_.push_back(std::move(done));
    }
    return rpc::CallHandle();
  }
  void CheckHealth(Health done) override {
    if (silent_) return silent_done_.push_back(std::move(done));
    executor_.Post([done = std::move(done), health = health_]() mutable {
      std::move(done)(health);
    });
  }
  void Measure(Metrics done) override {
    executor_.Post([done = std::move(done)]() mutable {
      std::move(done)({Gauge("cohort_head_term", "Term.", 7)});
    });
  }

  ManualExecutor& executor_;
  std::optional<absl::StatusOr<std::string>> answer_;
  absl::Status health_;
  bool silent_ = false;
  std::string path_;
  std::string authorization_;
  std::string request_;
  std::vector<rpc::Channel::Done> waiting_;
  std::vector<Health> silent_done_;
};

class HttpServiceTest : public ::testing::Test {
 protected:
  static HttpRequest Get(const std::string& path) {
    HttpRequest request;
    request.method = "GET";
    request.path = path;
    request.authorization = Secret().AuthorizationHeader();
    return request;
  }

  // The slot of an answer that may come later.
  std::shared_ptr<std::optional<HttpResponse>> Start(HttpRequest request) {
    auto slot = std::make_shared<std::optional<HttpResponse>>();
    service_.Handle(std::move(request), [slot](HttpResponse response) {
      EXPECT_FALSE(slot->has_value()) << "answered twice";
      *slot = std::move(response);
    });
    return slot;
  }
  HttpResponse Ask(HttpRequest request) {
    const auto slot = Start(std::move(request));
    executor_.RunUntilIdle();
    EXPECT_TRUE(slot->has_value()) << "not answered";
    return slot->value_or(HttpResponse{.status = 0});
  }
  void Answers(const google::protobuf::MessageLite& message) {
    backend_.answer_ = message.SerializeAsString();
  }

  ManualExecutor executor_;
  const rpc::Authenticator authenticator_{Secret()};
  FakeBackend backend_{executor_};
  HttpService service_{
      {.in_flight_max = 2}, authenticator_, backend_, executor_, executor_};
};

// HT-1.
TEST_F(HttpServiceTest, AsksForTheClustersCredential) {
  Answers(v1::GetStatusResponse());
  for (const char* path : {"/metrics", "/v1/status", "/v1/jobs", "/nowhere"}) {
    for (const std::string& authorization :
         {std::string(), std::string("Basic dTpw"), std::string("Bearer x"),
          std::string("Bearer ") + std::string(64, 'a'),
          absl::AsciiStrToUpper(Secret().AuthorizationHeader()),
          Secret().ToHex()}) {
      HttpRequest request = Get(path);
      request.authorization = authorization;
      const HttpResponse response = Ask(request);
      EXPECT_EQ(response.status, 401) << path << " " << authorization;
      EXPECT_THAT(response.headers,
                  Contains(Pair("WWW-Authenticate", HasSubstr("Bearer"))));
    }
    HttpRequest rank = Get(path);
    const AttemptId attempt = *AttemptId::FromBytes(std::string(16, 'a'));
    rank.authorization = rpc::MintRankCredential(Secret(), {attempt, 0, 1})
                             .AuthorizationHeader();
    EXPECT_EQ(Ask(rank).status, 403) << path;
  }
  EXPECT_EQ(backend_.path_, "");
}

TEST_F(HttpServiceTest, ReadsTheSchemeInAnyCase) {
  HttpRequest request = Get("/metrics");
  request.authorization = "bearer  " + Secret().ToHex();
  EXPECT_EQ(Ask(request).status, 200);
}

TEST_F(HttpServiceTest, AnswersOnlyWhetherItIsHealthyInACrowd) {
  HttpRequest status = Get("/v1/status");
  status.crowded = true;
  const HttpResponse refused = Ask(status);
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.body, HasSubstr("too many connections"));
  HttpRequest healthz = Get("/healthz");
  healthz.crowded = true;
  EXPECT_EQ(Ask(healthz).status, 200);
}

TEST_F(HttpServiceTest, SaysOpenlyWhetherItIsHealthyAndReady) {
  HttpRequest healthz = Get("/healthz");
  healthz.authorization = "";
  HttpRequest readyz = Get("/readyz");
  readyz.authorization = "";
  EXPECT_EQ(Ask(healthz).status, 200);
  EXPECT_EQ(Ask(readyz).status, 200);

  backend_.health_ =
      SetReason(absl::UnavailableError("/secret/path is full"), "read_only");
  EXPECT_EQ(Ask(healthz).status, 200);
  const HttpResponse response = Ask(readyz);
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.body, "read_only\n");

  backend_.health_ =
      SetReason(absl::UnavailableError("gone"), rpc::kNoConnectionsReason);
  EXPECT_EQ(Ask(healthz).status, 503);
  EXPECT_EQ(Ask(readyz).status, 503);
}

// HT-3.
TEST_F(HttpServiceTest, AnswersByTheDeadlineWhenTheHeadDoesNot) {
  backend_.silent_ = true;
  const auto healthz = Start(Get("/healthz"));
  const auto status = Start(Get("/v1/status"));
  executor_.AdvanceBy(absl::Milliseconds(4999));
  EXPECT_FALSE(healthz->has_value());
  executor_.AdvanceBy(absl::Milliseconds(1));
  EXPECT_EQ(healthz->value().status, 504);
  EXPECT_EQ(status->value().status, 504);
  // What comes too late is dropped.
  std::move(backend_.silent_done_[0])(absl::OkStatus());
  std::move(backend_.waiting_[0])({.response = "", .stamp = std::nullopt});
}

TEST_F(HttpServiceTest, RefusesMoreThanItsBoundAndTakesMoreAfterwards) {
  const auto first = Start(Get("/v1/status"));
  const auto second = Start(Get("/v1/nodes"));
  const HttpResponse third = Ask(Get("/v1/jobs"));
  EXPECT_EQ(third.status, 503);
  EXPECT_THAT(third.headers, Contains(Pair("Retry-After", "1")));
  EXPECT_THAT(third.body, HasSubstr("\"overloaded\""));
  // Beside the bound.
  EXPECT_EQ(Ask(Get("/healthz")).status, 200);

  for (auto& done : backend_.waiting_) {
    std::move(done)(
        {.response = absl::UnavailableError("away"), .stamp = std::nullopt});
  }
  EXPECT_EQ(first->value().status, 503);
  EXPECT_EQ(Ask(Get("/metrics")).status, 200);
}

// HT-2.
TEST_F(HttpServiceTest, ShowsWhatTheCommandShows) {
  v1::GetStatusResponse status;
  status.mutable_stamp()->set_cluster_id(std::string(16, 'c'));
  status.set_address("127.0.0.1:7710");
  Answers(status);
  EXPECT_EQ(Ask(Get("/v1/status")).body, ToJson(status) + "\n");
  EXPECT_EQ(backend_.path_, rpc::kGetStatus.path);
  EXPECT_EQ(backend_.authorization_, Secret().AuthorizationHeader());

  v1::GetJobResponse job;
  job.mutable_job()->set_job_id(std::string(16, 'j'));
  job.mutable_job()->set_name("train");
  Answers(job);
  const std::string id = IdText(job.job().job_id());
  EXPECT_EQ(Ask(Get("/v1/jobs/" + id)).body, ToJson(job.job()) + "\n");

  v1::ListJobsResponse jobs;
  *jobs.add_jobs() = job.job();
  Answers(jobs);
  EXPECT_EQ(Ask(Get("/v1/jobs")).body, JobsJson({job.job()}) + "\n");
  Answers(v1::ListNodesResponse());
  EXPECT_EQ(Ask(Get("/v1/nodes")).body, NodesJson({}) + "\n");
  Answers(v1::GetResourcesResponse());
  EXPECT_EQ(Ask(Get("/v1/resources")).body, ToJson(ClusterResources()) + "\n");
}

TEST_F(HttpServiceTest, ShowsActorsAndDriversAsTheCommandDoes) {
  v1::GetJobResponse actor;
  actor.mutable_job()->set_job_id(std::string(16, 'j'));
  actor.mutable_job()->mutable_spec()->mutable_actor()->set_class_name("Probe");
  v1::ListJobsResponse actors;
  *actors.add_jobs() = actor.job();
  Answers(actors);
  const auto kinds = [this](const std::string& path) {
    EXPECT_EQ(Ask(Get(path)).status, 200) << path;
    v1::ListJobsRequest asked;
    EXPECT_TRUE(asked.ParseFromString(backend_.request_));
    return std::vector<int>(asked.kinds().begin(), asked.kinds().end());
  };
  EXPECT_THAT(kinds("/v1/jobs"), testing::ElementsAre(v1::JOB_KIND_JOB));
  EXPECT_THAT(kinds("/v1/groups"), testing::ElementsAre(v1::JOB_KIND_GROUP));
  EXPECT_THAT(kinds("/v1/actors"),
              testing::ElementsAre(v1::JOB_KIND_ACTOR, v1::JOB_KIND_GROUP));
  EXPECT_EQ(Ask(Get("/v1/actors")).body, ActorsJson({actor.job()}) + "\n");
  HttpRequest all = Get("/v1/jobs");
  all.query = {{"actors", "true"}};
  EXPECT_EQ(Ask(all).status, 200);
  v1::ListJobsRequest asked;
  ASSERT_TRUE(asked.ParseFromString(backend_.request_));
  EXPECT_TRUE(asked.kinds().empty());
  all.query = {{"actors", "maybe"}};
  EXPECT_EQ(Ask(all).status, 400);

  Answers(actor);
  const std::string id = IdText(actor.job().job_id());
  EXPECT_EQ(Ask(Get("/v1/actors/" + id)).body, ActorJson(actor.job()) + "\n");

  Autoscaling autoscaling;
  autoscaling.set_is_configured(true);
  Answers(autoscaling);
  EXPECT_EQ(Ask(Get("/v1/autoscaler")).body, ToJson(autoscaling) + "\n");
  DriverList drivers;
  drivers.add_drivers()->set_name("sweep");
  drivers.mutable_drivers(0)->add_tasks()->set_shape("CPU: 1");
  Answers(drivers);
  EXPECT_EQ(Ask(Get("/v1/drivers")).body, DriversJson(drivers) + "\n");
  EXPECT_EQ(Ask(Get("/v1/tasks")).body, TasksJson(drivers) + "\n");
  EXPECT_EQ(backend_.path_, rpc::kListDrivers.path);
}

TEST_F(HttpServiceTest, SaysWhatIsWrongWithARequest) {
  EXPECT_EQ(Ask(Get("/nothing")).status, 404);
  EXPECT_EQ(Ask(Get("/v1/jobs/")).status, 404);
  EXPECT_EQ(Ask(Get("/v1/jobs/zz")).status, 404);
  HttpRequest post = Get("/v1/jobs");
  post.method = "POST";
  const HttpResponse response = Ask(post);
  EXPECT_EQ(response.status, 405);
  EXPECT_THAT(response.headers, Contains(Pair("Allow", "GET, HEAD")));
  HttpRequest query = Get("/v1/status");
  query.query = {{"colour", "red\n"}};
  EXPECT_EQ(Ask(query).status, 400);
  EXPECT_THAT(Ask(query).body, HasSubstr("colour"));
}

TEST_F(HttpServiceTest, ReadsEventsPageByPage) {
  v1::ListEventsResponse page;
  page.add_events()->set_number(8);
  page.set_next(9);
  page.set_more(true);
  HttpRequest request = Get("/v1/events");
  request.query = {{"after", "7"},
                   {"limit", "2"},
                   {"since", "10m"},
                   {"job", std::string(32, 'a')},
                   {"node", "n1"}};
  Answers(page);
  const HttpResponse response = Ask(request);
  EXPECT_EQ(response.status, 200);
  const std::string line = ToJsonLine(page.events(0)) + "\n";
  EXPECT_EQ(response.body, line + line);  // the fake's pages are all the same
  EXPECT_THAT(response.headers, Contains(Pair("X-Cohort-Next", "9")));
  v1::ListEventsRequest asked;
  ASSERT_TRUE(asked.ParseFromString(backend_.request_));
  EXPECT_EQ(asked.after(), 9u);
  EXPECT_EQ(asked.limit(), 1);
  EXPECT_EQ(asked.node(), "n1");
  EXPECT_EQ(asked.job_id(), std::string(16, '\xaa'));
  EXPECT_EQ(absl::FromUnixSeconds(asked.since().seconds()),
            absl::FromUnixSeconds(
                absl::ToUnixSeconds(executor_.Wall() - absl::Minutes(10))));
}

TEST_F(HttpServiceTest, ReadsJobsPageByPage) {
  v1::ListJobsResponse page;
  page.add_jobs()->set_job_id(std::string(16, 'j'));
  page.set_next_page_token("7");
  HttpRequest request = Get("/v1/jobs");
  request.query = {
      {"state", "pending,RUNNING"},   {"limit", "2"},        {"page", "9"},
      {"namespace", "lab"},           {"label", "team=nlp"}, {"label", "note="},
      {"array", std::string(32, 'a')}};
  Answers(page);
  const HttpResponse response = Ask(request);
  EXPECT_EQ(response.status, 200);
  const Job& job = page.jobs(0);
  EXPECT_EQ(response.body, JobsJson({job, job}) + "\n");
  EXPECT_THAT(response.headers, Contains(Pair("X-Cohort-Next", "7")));
  v1::ListJobsRequest asked;
  ASSERT_TRUE(asked.ParseFromString(backend_.request_));
  EXPECT_EQ(asked.page_size(), 1);
  EXPECT_EQ(asked.page_token(), "7");
  EXPECT_EQ(asked.namespace_(), "lab");
  EXPECT_EQ(asked.labels().size(), 2u);
  EXPECT_EQ(asked.labels().at("team"), "nlp");
  EXPECT_EQ(asked.labels().at("note"), "");
  EXPECT_EQ(asked.array_id(), std::string(16, '\xaa'));
  EXPECT_THAT(asked.states(), testing::ElementsAre(v1::JOB_STATE_PENDING,
                                                   v1::JOB_STATE_RUNNING));
  request.query = {{"state", "SLEEPING"}};
  EXPECT_EQ(Ask(request).status, 400);
  EXPECT_THAT(Ask(request).body, HasSubstr("SLEEPING"));
}

TEST_F(HttpServiceTest, ReadsNodesPageByPage) {
  v1::ListNodesResponse first;
  first.add_nodes()->set_node_id(std::string(16, 'a'));
  first.set_next_page_token("next");
  v1::ListNodesResponse last;
  last.add_nodes()->set_node_id(std::string(16, 'b'));
  const auto answer = Start(Get("/v1/nodes"));
  std::move(backend_.waiting_[0])(
      {.response = first.SerializeAsString(), .stamp = std::nullopt});
  ASSERT_EQ(backend_.waiting_.size(), 2u);
  v1::ListNodesRequest asked;
  ASSERT_TRUE(asked.ParseFromString(backend_.request_));
  EXPECT_EQ(asked.page_token(), "next");
  EXPECT_FALSE(answer->has_value());
  std::move(backend_.waiting_[1])(
      {.response = last.SerializeAsString(), .stamp = std::nullopt});
  executor_.RunUntilIdle();
  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ((*answer)->body, NodesJson({first.nodes(0), last.nodes(0)}) + "\n");
}

TEST_F(HttpServiceTest, NamesAParameterOfJobsThatItCannotRead) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"state", ""},       {"limit", "10001"}, {"limit", "many"},
      {"array", "x"},      {"label", "team"},  {"label", "=nlp"},
      {"namespace", ""},   {"page", ""},       {"name", "train"},
      {"label", "\xff=a"}, {"label", "a=\xfe"}};
  for (const auto& [name, value] : wrong) {
    HttpRequest request = Get("/v1/jobs");
    request.query = {{name, value}};
    const HttpResponse response = Ask(request);
    EXPECT_EQ(response.status, 400) << name << "=" << value;
    EXPECT_THAT(response.body, HasSubstr(name));
  }
  HttpRequest twice = Get("/v1/jobs");
  twice.query = {{"namespace", "a"}, {"namespace", "b"}};
  EXPECT_EQ(Ask(twice).status, 400);
}

TEST_F(HttpServiceTest, NamesAParameterThatItCannotRead) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"after", "-1"},    {"after", ""},          {"limit", "0"},
      {"limit", "10001"}, {"since", "yesterday"}, {"job", "x"},
      {"colour", "red"}};
  for (const auto& [name, value] : wrong) {
    HttpRequest request = Get("/v1/events");
    request.query = {{name, value}};
    const HttpResponse response = Ask(request);
    EXPECT_EQ(response.status, 400) << name << "=" << value;
    EXPECT_THAT(response.body, HasSubstr(name));
  }
}

TEST_F(HttpServiceTest, MapsTheHeadsErrors) {
  const std::vector<std::pair<absl::Status, int>> cases = {
      {absl::NotFoundError("x"), 404},
      {absl::InvalidArgumentError("x"), 400},
      {absl::ResourceExhaustedError("x"), 503},
      {absl::UnavailableError("x"), 503},
      {absl::DeadlineExceededError("x"), 504},
      {absl::InternalError("x"), 500}};
  for (const auto& [error, status] : cases) {
    backend_.answer_ = error;
    EXPECT_EQ(Ask(Get("/v1/status")).status, status) << error;
  }
  backend_.answer_ = std::string("\xff garbage");
  EXPECT_EQ(Ask(Get("/v1/status")).status, 500);
}

TEST_F(HttpServiceTest, GivesMetricsInTheFormatThatIsAskedFor) {
  EXPECT_EQ(Ask(Get("/metrics")).content_type,
            "text/plain; version=0.0.4; charset=utf-8");
  HttpRequest open = Get("/metrics");
  open.accept = "application/openmetrics-text";
  const HttpResponse response = Ask(open);
  EXPECT_EQ(response.content_type,
            "application/openmetrics-text; version=1.0.0; charset=utf-8");
  EXPECT_THAT(response.body, testing::EndsWith("cohort_head_term 7\n# EOF\n"));
}

}  // namespace
}  // namespace cohort::head

#include "head/http/http_service.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "client/json.h"
#include "common/job_limits.h"
#include "common/printable_text.h"
#include "common/since_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/metrics/metrics_page.h"
#include "rpc/grpc_listener.h"
#include "rpc/methods.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

constexpr char kText[] = "text/plain; charset=utf-8";

HttpResponse Text(int status, absl::string_view text) {
  HttpResponse response;
  response.status = status;
  response.content_type = kText;
  response.body = absl::StrCat(text, "\n");
  return response;
}

int HttpStatusOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kFailedPrecondition:
      return 409;
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kCancelled:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

// The command's own words for it (HT-2).
HttpResponse Error(const absl::Status& error) {
  HttpResponse response;
  response.status = HttpStatusOf(error.code());
  const std::string code = absl::StatusCodeToString(error.code());
  std::string reason = GetReason(error);
  if (reason.empty()) reason = absl::AsciiStrToLower(code);
  response.body = ErrorJson(code, reason, error.message()) + "\n";
  if (response.status == 401) {
    response.headers.emplace_back("WWW-Authenticate",
                                  "Bearer realm=\"cohort\"");
  }
  if (response.status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

// Schemes are read in any case; the Authenticator knows one spelling.
std::string Authorization(absl::string_view field) {
  constexpr absl::string_view kScheme = "Bearer ";
  if (!absl::StartsWithIgnoreCase(field, kScheme)) return std::string(field);
  return absl::StrCat(kScheme,
                      absl::StripAsciiWhitespace(field.substr(kScheme.size())));
}

// May come again: all of them must hold.
constexpr absl::string_view kLabelParameter = "label";

// InvalidArgument for a parameter that is not one of `known`, is empty, or
// comes twice.
absl::Status CheckQuery(const HttpRequest& request,
                        const std::set<std::string>& known) {
  std::set<std::string> seen;
  for (const auto& [name, value] : request.query) {
    if (!known.contains(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the parameter ", Quoted(name), " is not known to ",
                       Shown(request.path),
                       known.empty() ? ", which takes none" : ": it takes ",
                       absl::StrJoin(known, ", ")));
    }
    if (value.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the parameter ", name, " is empty: leave it out"));
    }
    if (!seen.insert(name).second && name != kLabelParameter) {
      return absl::InvalidArgumentError(
          absl::StrCat("the parameter ", name, " is given twice"));
    }
  }
  return absl::OkStatus();
}

template <typename Resp>
absl::StatusOr<Resp> Decode(const std::string& bytes) {
  Resp response;
  if (response.ParseFromString(bytes)) return response;
  return absl::InternalError("the head's answer cannot be decoded");
}

template <typename Resp>
absl::StatusOr<std::string> Rendered(const std::string& bytes) {
  COHORT_ASSIGN_OR_RETURN(const Resp response, Decode<Resp>(bytes));
  if constexpr (std::is_same_v<Resp, v1::GetJobResponse>) {
    return ToJson(response.job());
  } else {
    return ToJson(response);
  }
}

constexpr char kPaths[] =
    "/healthz, /readyz, /metrics, /v1/status, /v1/nodes, /v1/gpus, "
    "/v1/jobs, /v1/jobs/ID, /v1/actors, /v1/actors/ID, /v1/groups, "
    "/v1/groups/ID, /v1/drivers, /v1/tasks, /v1/autoscaler, /v1/resources, "
    "/v1/events";

absl::StatusOr<std::string> RenderedActor(const std::string& bytes) {
  COHORT_ASSIGN_OR_RETURN(const auto response,
                          Decode<v1::GetJobResponse>(bytes));
  return ActorJson(response.job());
}

template <std::string (*kRender)(const DriverList&)>
absl::StatusOr<std::string> RenderedDrivers(const std::string& bytes) {
  COHORT_ASSIGN_OR_RETURN(const auto drivers, Decode<DriverList>(bytes));
  return kRender(drivers);
}

// Of one answer: 10 MB of the largest events there are.
constexpr int64_t kEventsMax = 10'000;
constexpr size_t kEventsBytesMax = 8 << 20;

absl::StatusOr<uint64_t> ParseCount(absl::string_view name,
                                    const std::string& text, uint64_t min,
                                    uint64_t max) {
  uint64_t value = 0;
  const bool digits = !text.empty() && std::all_of(text.begin(), text.end(),
                                                   absl::ascii_isdigit);
  if (digits && absl::SimpleAtoi(text, &value) && value >= min &&
      value <= max) {
    return value;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the parameter ", name, " is ", Quoted(text),
                   ": give a whole number from ", min, " to ", max));
}

// Of one answer, as the command's default.
constexpr size_t kJobsMax = 10'000;

absl::StatusOr<v1::JobState> ParseJobState(absl::string_view text) {
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  v1::JobState_Parse(absl::StrCat("JOB_STATE_", absl::AsciiStrToUpper(text)),
                     &state);
  if (state != v1::JOB_STATE_UNSPECIFIED) return state;
  return absl::InvalidArgumentError(absl::StrCat(
      "the parameter state is ", Quoted(text),
      ": give some of PENDING, STARTING, RUNNING, STOPPING, SUCCEEDED, "
      "FAILED, STOPPED, with commas between"));
}

}  // namespace

struct HttpService::JobsRead {
  v1::ListJobsRequest request;
  std::string authorization;
  JobsRender render;
  size_t limit = kJobsMax;
  std::vector<Job> jobs;
};

struct HttpService::NodesRead {
  v1::ListNodesRequest request;
  std::string authorization;
  NodesRender render;
  std::vector<Node> nodes;
};

struct HttpService::EventsRead {
  v1::ListEventsRequest request;
  std::string authorization;
  int64_t limit = kEventsMax;
  int64_t count = 0;
  std::string body;
};

HttpService::HttpService(HttpServiceOptions options,
                         const rpc::Authenticator& authenticator,
                         HttpBackend& backend, Executor& executor,
                         const Clock& clock)
    : options_(options),
      authenticator_(authenticator),
      backend_(backend),
      executor_(executor),
      clock_(clock) {}

void HttpService::Handle(HttpRequest request, Reply reply) {
  const bool health = request.path == "/healthz" || request.path == "/readyz";
  request.authorization = Authorization(request.authorization);
  if (!health) {
    // HT-1, before anything else is said.
    const absl::StatusOr<rpc::Principal> who =
        authenticator_.Authenticate(request.authorization);
    if (absl::IsUnavailable(who.status())) {
      return std::move(reply)(Error(who.status()));
    }
    if (!who.ok()) {
      return std::move(reply)(Error(absl::UnauthenticatedError(
          "give \"Authorization: Bearer HEX\" with the cluster's credential in "
          "lower-case hex: the head keeps it as <state-dir>/credential")));
    }
    if (!rpc::kReaders.Has(who->role)) {
      return std::move(reply)(Error(absl::PermissionDeniedError(absl::StrCat(
          who->name, " has role ", rpc::RoleName(who->role),
          ", which reads nothing here: use the cluster's credential, or a "
          "user's"))));
    }
  }
  if (request.crowded && !health) {
    return std::move(reply)(Error(SetReason(
        absl::ResourceExhaustedError(
            "too many connections are open: close some, or try again"),
        "overloaded")));
  }
  if (request.method != "GET" && request.method != "HEAD") {
    HttpResponse response = Error(absl::UnimplementedError(
        "only GET and HEAD are known here: changes are the command's and the "
        "client library's"));
    response.status = 405;
    response.headers.emplace_back("Allow", "GET, HEAD");
    return std::move(reply)(std::move(response));
  }
  Route(request, std::move(reply));
}

void HttpService::Route(const HttpRequest& request, Reply reply) {
  const std::string& path = request.path;
  if (path == "/v1/events") return AnswerEvents(request, std::move(reply));
  if (path == "/v1/jobs") {
    return AnswerJobs(request, {v1::JOB_KIND_JOB}, JobsJson, std::move(reply));
  }
  if (path == "/v1/actors") {
    return AnswerJobs(request, {v1::JOB_KIND_ACTOR, v1::JOB_KIND_GROUP},
                      ActorsJson, std::move(reply));
  }
  if (path == "/v1/groups") {
    return AnswerJobs(request, {v1::JOB_KIND_GROUP}, ActorsJson,
                      std::move(reply));
  }
  const absl::Status no_query = CheckQuery(request, {});
  if (!no_query.ok()) return std::move(reply)(Error(no_query));
  if (path == "/healthz" || path == "/readyz") {
    return AnswerHealth(request, path == "/readyz", std::move(reply));
  }
  if (path == "/metrics") return AnswerMetrics(request, std::move(reply));
  if (path == "/v1/status") {
    return AnswerCall(request, rpc::kGetStatus.path, "",
                      Rendered<v1::GetStatusResponse>, std::move(reply));
  }
  if (path == "/v1/resources") {
    return AnswerCall(request, rpc::kGetResources.path, "",
                      Rendered<v1::GetResourcesResponse>, std::move(reply));
  }
  if (path == "/v1/nodes") {
    return AnswerNodes(request, NodesJson, std::move(reply));
  }
  if (path == "/v1/gpus") {
    return AnswerNodes(request, GpusJson, std::move(reply));
  }
  if (path == "/v1/drivers") {
    return AnswerCall(request, rpc::kListDrivers.path, "",
                      RenderedDrivers<DriversJson>, std::move(reply));
  }
  if (path == "/v1/autoscaler") {
    return AnswerCall(request, rpc::kGetAutoscaler.path, "",
                      Rendered<v1::Autoscaling>, std::move(reply));
  }
  if (path == "/v1/tasks") {
    return AnswerCall(request, rpc::kListDrivers.path, "",
                      RenderedDrivers<TasksJson>, std::move(reply));
  }
  absl::string_view id = path;
  if (absl::ConsumePrefix(&id, "/v1/jobs/")) {
    return AnswerJob(request, id, Rendered<v1::GetJobResponse>,
                     std::move(reply));
  }
  if (absl::ConsumePrefix(&id, "/v1/actors/") ||
      absl::ConsumePrefix(&id, "/v1/groups/")) {
    return AnswerJob(request, id, RenderedActor, std::move(reply));
  }
  std::move(reply)(Error(absl::NotFoundError(absl::StrCat(
      "there is nothing at ", Shown(path), ": this head serves ", kPaths))));
}

// ---- what needs the head ----

std::optional<uint64_t> HttpService::Admit(Reply reply, bool counts) {
  if (counts && counted_ >= options_.in_flight_max) {
    std::move(reply)(
        Error(SetReason(absl::ResourceExhaustedError(absl::StrCat(
                            "the head has ", options_.in_flight_max,
                            " requests in flight: try again")),
                        "overloaded")));
    return std::nullopt;
  }
  const uint64_t number = next_++;
  if (counts) ++counted_;
  pending_.emplace(number, Pending{.reply = std::move(reply),
                                   .call = rpc::CallHandle(),
                                   .counts = counts});
  executor_.PostAfter(options_.deadline, [this, number] {
    const auto late = pending_.find(number);
    if (late == pending_.end()) return;
    late->second.call.Cancel();
    Finish(number, Error(absl::DeadlineExceededError(
                       absl::StrCat("the head did not answer within ",
                                    absl::FormatDuration(options_.deadline)))));
  });
  return number;
}

void HttpService::Finish(uint64_t number, HttpResponse response) {
  auto pending = pending_.extract(number);
  if (pending.empty()) return;
  if (pending.mapped().counts) --counted_;
  std::move(pending.mapped().reply)(std::move(response));
}

void HttpService::AnswerHealth(const HttpRequest&, bool ready, Reply reply) {
  const auto number = Admit(std::move(reply), /*counts=*/false);
  if (!number.has_value()) return;
  backend_.CheckHealth([this, number = *number, ready](absl::Status health) {
    const std::string reason = GetReason(health);
    // An answer from the strand, and connections, are what a healthy head
    // gives.
    const bool healthy = health.ok() || reason != rpc::kNoConnectionsReason;
    if (ready ? health.ok() : healthy) return Finish(number, Text(200, "ok"));
    // The open door says which, not why.
    HttpResponse response = Text(503, reason.empty() ? "not ready" : reason);
    response.headers.emplace_back("Retry-After", "1");
    Finish(number, std::move(response));
  });
}

void HttpService::AnswerMetrics(const HttpRequest& request, Reply reply) {
  const auto number = Admit(std::move(reply), /*counts=*/true);
  if (!number.has_value()) return;
  backend_.Measure([this, number = *number, format = FormatFor(request.accept)](
                       std::vector<MetricFamily> families) {
    HttpResponse response;
    const absl::string_view type = ContentTypeOf(format);
    response.content_type = std::string(type.data(), type.size());
    response.body = RenderMetrics(families, format);
    Finish(number, std::move(response));
  });
}

void HttpService::AnswerCall(const HttpRequest& request, absl::string_view path,
                             std::string message, Render render, Reply reply) {
  const auto number = Admit(std::move(reply), /*counts=*/true);
  if (!number.has_value()) return;
  rpc::CallHandle call = backend_.Call(
      path, request.authorization, std::move(message), options_.deadline,
      [this, number = *number,
       render = std::move(render)](rpc::CallResult result) {
        // Nobody waits any more: rendering is the dearest part.
        if (!pending_.contains(number)) return;
        if (!result.response.ok()) {
          return Finish(number, Error(result.response.status()));
        }
        const absl::StatusOr<std::string> json = render(*result.response);
        if (!json.ok()) return Finish(number, Error(json.status()));
        HttpResponse response;
        response.body = *json + "\n";
        Finish(number, std::move(response));
      });
  // Its `done` is posted: it has not run yet.
  pending_.at(*number).call = std::move(call);
}

// ---- jobs ----

void HttpService::AnswerJob(const HttpRequest& request, absl::string_view id,
                            Render render, Reply reply) {
  const absl::StatusOr<JobId> job = JobId::FromText(id);
  if (!job.ok()) {
    return std::move(reply)(Error(SetReason(
        absl::NotFoundError(absl::StrCat("there is no job ", Shown(id),
                                         ": /v1/jobs shows their ids")),
        "unknown_job")));
  }
  v1::GetJobRequest message;
  message.set_job_id(std::string(job->bytes()));
  AnswerCall(request, rpc::kGetJob.path, message.SerializeAsString(),
             std::move(render), std::move(reply));
}

void HttpService::AnswerJobs(const HttpRequest& request,
                             std::vector<v1::JobKind> kinds, JobsRender render,
                             Reply reply) {
  auto read = std::make_shared<JobsRead>();
  read->render = render;
  read->request.mutable_kinds()->Assign(kinds.begin(), kinds.end());
  read->authorization = request.authorization;
  const absl::Status status = [&]() -> absl::Status {
    COHORT_RETURN_IF_ERROR(
        CheckQuery(request, {"actors", "array", std::string(kLabelParameter),
                             "limit", "namespace", "page", "state"}));
    for (const auto& [name, value] : request.query) {
      if (name == "limit") {
        COHORT_ASSIGN_OR_RETURN(read->limit,
                                ParseCount(name, value, 1, kJobsMax));
      } else if (name == "actors") {
        if (request.path != "/v1/jobs" || value != "true") {
          return absl::InvalidArgumentError(
              "the parameter actors is for /v1/jobs: give actors=true there");
        }
        read->request.clear_kinds();
      } else if (name == "page") {
        read->request.set_page_token(value);
      } else if (name == "namespace") {
        COHORT_RETURN_IF_ERROR(
            Annotate(CheckNamespace(value), "the parameter namespace"));
        read->request.set_namespace_(value);
      } else if (name == "array") {
        const absl::StatusOr<JobId> array = JobId::FromText(value);
        if (!array.ok()) return Annotate(array.status(), "the parameter array");
        read->request.set_array_id(array->bytes());
      } else if (name == kLabelParameter) {
        const size_t equals = value.find('=');
        if (equals == 0 || equals == std::string::npos) {
          return absl::InvalidArgumentError(absl::StrCat(
              "the parameter label is ", Quoted(value), ": give K=V"));
        }
        if (!IsUtf8(value)) {  // of which protobuf would complain in the log
          return absl::InvalidArgumentError(absl::StrCat(
              "the parameter label is ", Quoted(value), ": give UTF-8"));
        }
        const bool fresh =
            read->request.mutable_labels()
                ->insert({value.substr(0, equals), value.substr(equals + 1)})
                .second;
        if (!fresh) {
          return absl::InvalidArgumentError(
              absl::StrCat("the parameter label is given twice with the key ",
                           Quoted(value.substr(0, equals))));
        }
      } else {
        for (const absl::string_view text : absl::StrSplit(value, ',')) {
          COHORT_ASSIGN_OR_RETURN(const v1::JobState state,
                                  ParseJobState(text));
          read->request.add_states(state);
        }
      }
    }
    return absl::OkStatus();
  }();
  if (!status.ok()) return std::move(reply)(Error(status));
  const auto number = Admit(std::move(reply), /*counts=*/true);
  if (number.has_value()) ReadJobs(*number, std::move(read));
}

void HttpService::ReadJobs(uint64_t number, std::shared_ptr<JobsRead> read) {
  read->request.set_page_size(
      static_cast<int32_t>(read->limit - read->jobs.size()));
  rpc::CallHandle call = backend_.Call(
      rpc::kListJobs.path, read->authorization,
      read->request.SerializeAsString(), options_.deadline,
      [this, number, read](rpc::CallResult result) {
        if (!pending_.contains(number)) return;
        if (!result.response.ok()) {
          return Finish(number, Error(result.response.status()));
        }
        auto page = Decode<v1::ListJobsResponse>(*result.response);
        if (!page.ok()) return Finish(number, Error(page.status()));
        for (Job& job : *page->mutable_jobs()) {
          read->jobs.push_back(std::move(job));
        }
        const std::string& next = page->next_page_token();
        read->request.set_page_token(next);
        if (!next.empty() && read->jobs.size() < read->limit) {
          return ReadJobs(number, read);
        }
        HttpResponse response;
        response.body = read->render(read->jobs) + "\n";
        if (!next.empty()) response.headers.emplace_back("X-Cohort-Next", next);
        Finish(number, std::move(response));
      });
  pending_.at(number).call = std::move(call);
}

// ---- nodes ----

void HttpService::AnswerNodes(const HttpRequest& request, NodesRender render,
                              Reply reply) {
  auto read = std::make_shared<NodesRead>();
  read->authorization = request.authorization;
  read->render = render;
  const auto number = Admit(std::move(reply), /*counts=*/true);
  if (number.has_value()) ReadNodes(*number, std::move(read));
}

void HttpService::ReadNodes(uint64_t number, std::shared_ptr<NodesRead> read) {
  rpc::CallHandle call = backend_.Call(
      rpc::kListNodes.path, read->authorization,
      read->request.SerializeAsString(), options_.deadline,
      [this, number, read](rpc::CallResult result) {
        if (!pending_.contains(number)) return;
        if (!result.response.ok()) {
          return Finish(number, Error(result.response.status()));
        }
        auto page = Decode<v1::ListNodesResponse>(*result.response);
        if (!page.ok()) return Finish(number, Error(page.status()));
        for (Node& node : *page->mutable_nodes()) {
          read->nodes.push_back(std::move(node));
        }
        read->request.set_page_token(page->next_page_token());
        if (!page->next_page_token().empty()) return ReadNodes(number, read);
        HttpResponse response;
        response.body = read->render(read->nodes) + "\n";
        Finish(number, std::move(response));
      });
  pending_.at(number).call = std::move(call);
}

// ---- events ----

void HttpService::AnswerEvents(const HttpRequest& request, Reply reply) {
  auto read = std::make_shared<EventsRead>();
  read->authorization = request.authorization;
  const absl::Status status = [&]() -> absl::Status {
    COHORT_RETURN_IF_ERROR(CheckQuery(
        request, {"after", "generation", "job", "limit", "node", "since"}));
    for (const auto& [name, value] : request.query) {
      if (name == "after") {
        COHORT_ASSIGN_OR_RETURN(
            const uint64_t after,
            ParseCount(name, value, 0, std::numeric_limits<int64_t>::max()));
        read->request.set_after(after);
      } else if (name == "generation") {
        const absl::StatusOr<GenerationId> generation =
            GenerationId::FromHex(value);
        if (!generation.ok()) {
          return Annotate(generation.status(), "the parameter generation");
        }
        read->request.set_generation(std::string(generation->bytes()));
      } else if (name == "limit") {
        COHORT_ASSIGN_OR_RETURN(const uint64_t limit,
                                ParseCount(name, value, 1, kEventsMax));
        read->limit = static_cast<int64_t>(limit);
      } else if (name == "since") {
        const absl::StatusOr<absl::Time> since =
            ParseSince(value, clock_.Wall());
        if (!since.ok()) {
          return Annotate(since.status(), "the parameter since");
        }
        *read->request.mutable_since() = rpc::ToWire(*since);
      } else if (name == "job") {
        const absl::StatusOr<JobId> job = JobId::FromText(value);
        if (!job.ok()) return Annotate(job.status(), "the parameter job");
        read->request.set_job_id(job->bytes());
      } else {
        read->request.set_node(value);
      }
    }
    return absl::OkStatus();
  }();
  if (!status.ok()) return std::move(reply)(Error(status));
  const auto number = Admit(std::move(reply), /*counts=*/true);
  if (number.has_value()) ReadEvents(*number, std::move(read));
}

void HttpService::ReadEvents(uint64_t number,
                             std::shared_ptr<EventsRead> read) {
  read->request.set_limit(static_cast<int32_t>(
      std::min<int64_t>(1'000, read->limit - read->count)));
  rpc::CallHandle call = backend_.Call(
      rpc::kListEvents.path, read->authorization,
      read->request.SerializeAsString(), options_.deadline,
      [this, number, read](rpc::CallResult result) {
        if (!pending_.contains(number)) return;
        if (!result.response.ok()) {
          return Finish(number, Error(result.response.status()));
        }
        const auto page = Decode<v1::ListEventsResponse>(*result.response);
        if (!page.ok()) return Finish(number, Error(page.status()));
        for (const Event& event : page->events()) {
          absl::StrAppend(&read->body, ToJsonLine(event), "\n");
        }
        read->count += page->events_size();
        read->request.set_after(page->next());
        const bool enough =
            read->count >= read->limit || read->body.size() >= kEventsBytesMax;
        if (page->more() && !enough) return ReadEvents(number, read);
        HttpResponse response;
        response.content_type = "application/x-ndjson";
        response.body = std::move(read->body);
        // Where to go on, also when there is nothing yet.
        response.headers.emplace_back("X-Cohort-Next",
                                      absl::StrCat(page->next()));
        response.headers.emplace_back(
            "X-Cohort-Generation", absl::BytesToHexString(page->generation()));
        Finish(number, std::move(response));
      });
  pending_.at(number).call = std::move(call);
}

}  // namespace cohort::head

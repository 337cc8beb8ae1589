#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "client/job.h"
#include "client/node.h"
#include "common/clock.h"
#include "common/executor.h"
#include "head/http/http_message.h"
#include "head/metrics/metric_family.h"
#include "rpc/authenticator.h"
#include "rpc/channel.h"

namespace cohort::head {

// What HttpService asks of the head that it belongs to.  Thread-safe.
class HttpBackend {
 public:
  virtual ~HttpBackend() = default;

  // As rpc::CallLocally, with `done` posted to the service's executor.
  virtual rpc::CallHandle Call(absl::string_view path,
                               absl::string_view authorization,
                               std::string request, absl::Duration deadline,
                               rpc::Channel::Done done) = 0;

  // Whether the head takes changes now: OK, or Unavailable with a reason as
  // StateHost::Writable; `done` is posted to the service's executor from the
  // head's strand, or dropped with the head.
  using Health = absl::AnyInvocable<void(absl::Status health) &&>;
  virtual void CheckHealth(Health done) = 0;

  // As CheckHealth, with everything that is measured.
  using Metrics =
      absl::AnyInvocable<void(std::vector<MetricFamily> families) &&>;
  virtual void Measure(Metrics done) = 0;
};

struct HttpServiceOptions {
  // Of a request; the head answers a read in milliseconds.
  absl::Duration deadline = absl::Seconds(5);
  // Requests at once that the head works for; healthz and readyz are beside it.
  size_t in_flight_max = 32;
};

// What the head answers over HTTP: who may ask what, and how it looks.
//
//   HT-1: nothing but /healthz and /readyz is answered without the cluster's
//         credential; a rank's is not enough.
//   HT-2: /v1 answers byte for byte what the command prints with --json.
//   HT-3: each request is answered once, by its deadline whatever the head
//   does.
//
// Strand-bound, on an executor of its own that is not the head's strand: it
// renders there.  Lives until that executor has stopped.
class HttpService {
 public:
  using Reply = absl::AnyInvocable<void(HttpResponse response) &&>;

  // All outlive the service.
  HttpService(HttpServiceOptions options,
              const rpc::Authenticator& authenticator, HttpBackend& backend,
              Executor& executor, const Clock& clock);

  HttpService(const HttpService&) = delete;
  HttpService& operator=(const HttpService&) = delete;

  void Handle(HttpRequest request, Reply reply);

 private:
  // A request that the head works for.
  struct Pending {
    Reply reply;
    rpc::CallHandle call;
    bool counts = true;  // against in_flight_max
  };
  // Reads of jobs, nodes and events, page by page.
  struct JobsRead;
  struct NodesRead;
  struct EventsRead;
  using JobsRender = std::string (*)(const std::vector<Job>& jobs);
  using NodesRender = std::string (*)(const std::vector<Node>& nodes);
  using Render =
      std::function<absl::StatusOr<std::string>(const std::string& response)>;

  void Route(const HttpRequest& request, Reply reply);
  void AnswerHealth(const HttpRequest& request, bool ready, Reply reply);
  void AnswerMetrics(const HttpRequest& request, Reply reply);
  // Calls a method of the head and answers what `render` makes of its answer.
  void AnswerCall(const HttpRequest& request, absl::string_view path,
                  std::string message, Render render, Reply reply);

  // Those of these kinds, as `render` shows them.
  void AnswerJobs(const HttpRequest& request, std::vector<v1::JobKind> kinds,
                  JobsRender render, Reply reply);
  void AnswerJob(const HttpRequest& request, absl::string_view id,
                 Render render, Reply reply);
  // Reads pages until there are no more or enough.
  void ReadJobs(uint64_t number, std::shared_ptr<JobsRead> read);
  // Answers what `render` makes of all nodes.
  void AnswerNodes(const HttpRequest& request, NodesRender render, Reply reply);
  void ReadNodes(uint64_t number, std::shared_ptr<NodesRead> read);
  void AnswerEvents(const HttpRequest& request, Reply reply);
  void ReadEvents(uint64_t number, std::shared_ptr<EventsRead> read);

  // Makes room for a request, answered 503 when there is none; its number.
  std::optional<uint64_t> Admit(Reply reply, bool counts);
  // Answers it, unless its deadline has.
  void Finish(uint64_t number, HttpResponse response);

  const HttpServiceOptions options_;
  const rpc::Authenticator& authenticator_;
  HttpBackend& backend_;
  Executor& executor_;
  const Clock& clock_;

  std::map<uint64_t, Pending> pending_;
  uint64_t next_ = 1;
  size_t counted_ = 0;
};

}  // namespace cohort::head

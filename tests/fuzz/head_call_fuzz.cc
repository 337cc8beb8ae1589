// Every call of the head, from the bytes on the wire to the rows: whatever
// comes, in whatever order, is answered, and the head's state holds its
// invariants and is what a restart would find.
//
// An input is a row of calls: a byte that says which method, two bytes with the
// length of the request, the request.

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"

#include "common/check.h"
#include "common/random.h"
#include "common/testing/manual_executor.h"
#include "head/state/rows.h"
#include "head/store/memory_store.h"
#include "head/store/records_codec.h"
#include "head/testing/job_specs.h"
#include "head/testing/messages.h"
#include "rpc/methods.h"
#include "rpc/testing/loopback.h"
#include "tests/fuzz/fuzz.h"
#include "tests/sim/sim_clock.h"
#include "tests/sim/sim_head.h"
#include "tests/sim/sim_invariants.h"

namespace head = cohort::head;
namespace rpc = cohort::rpc;
namespace sim = cohort::sim;
namespace v1 = cohort::v1;

namespace {

constexpr int kCallsMax = 8;

const std::vector<const char*>& UnaryPaths() {
  static const auto& paths = *new std::vector<const char*>{
      rpc::kSubmitJob.path,     rpc::kStopJob.path,
      rpc::kHoldJob.path,       rpc::kReleaseJob.path,
      rpc::kGetJob.path,        rpc::kListJobs.path,
      rpc::kListNodes.path,     rpc::kGetNode.path,
      rpc::kDrainNode.path,     rpc::kUndrainNode.path,
      rpc::kGetResources.path,  rpc::kGetStatus.path,
      rpc::kExplainJob.path,    rpc::kWaitJob.path,
      rpc::kBeginPackage.path,  rpc::kUploadPackage.path,
      rpc::kFinishPackage.path, rpc::kFetchPackage.path,
      rpc::kBackupStore.path,   rpc::kListEvents.path,
      rpc::kAdoptAttempt.path,  rpc::kEndAttempt.path,
      rpc::kResizeJob.path,     rpc::kRemoveJob.path};
  return paths;
}

const std::vector<const char*>& StreamPaths() {
  static const auto& paths =
      *new std::vector<const char*>{rpc::kReadLog.path, rpc::kReadRunFile.path,
                                    rpc::kConnect.path, rpc::kSendLog.path};
  return paths;
}

// Ids that the seeds know.
std::string Id(char c) { return std::string(16, c); }

head::JobRecord Job(char c, head::JobState state) {
  head::JobRecord job(*cohort::JobId::FromBytes(Id(c)));
  job.row.set_sequence(static_cast<uint64_t>(c - '0'));
  job.row.set_state(state);
  head::SetCommand(job.spec.Own(), {"train"});
  job.spec.Own().mutable_scaling()->set_num_workers(1);
  job.spec.Own().mutable_run()->set_restart(c == '2' ? v1::RESTART_POLICY_ALL
                                                     : v1::RESTART_POLICY_ONE);
  job.row.set_num_workers(1);
  head::SetResources(job.spec.Own(), *cohort::ParseResources("CPU=1"));
  job.row.mutable_origin()->set_namespace_("default");
  return job;
}

// A job that runs, one whose attempt is an orphan, one that waits; a node.
head::Batch Stored() {
  head::ClusterRecord cluster = head::NewCluster();
  cluster.set_cluster_id(Id('c'));
  cluster.set_generation(Id('g'));
  cluster.set_term(1);
  cluster.set_next_job_sequence(4);
  head::NodeRecord node;
  node.id = *cohort::NodeId::FromBytes(Id('n'));
  node.node.set_name("node");
  node.node.set_host("host");
  head::SetResources(node.node, *cohort::ParseResources("CPU=4"));
  head::Batch batch = {head::ToWrite(cluster), head::ToWrite(node),
                       head::ToWrite(Job('3', v1::JOB_STATE_PENDING))};
  for (const char c : {'1', '2', '3'}) {
    const head::JobRecord job = Job(c, v1::JOB_STATE_PENDING);
    batch.push_back(head::ToWrite(head::SpecRecord{job.id, job.spec}));
  }
  for (const char c : {'1', '2'}) {
    head::JobRecord job = Job(c, v1::JOB_STATE_RUNNING);
    job.row.set_attempts(1);
    job.row.set_incarnations(1);
    job.row.set_epoch(1);
    batch.push_back(head::ToWrite(job));
    head::AttemptRecord attempt;
    attempt.id = *cohort::AttemptId::FromBytes(Id(c));
    attempt.job = job.id;
    attempt.number = 1;
    attempt.epoch = 1;
    attempt.state = v1::ATTEMPT_STATE_RUNNING;
    attempt.places = {{.node = node.id, .phase = v1::PLACE_PHASE_RUNNING}};
    head::Process& process = attempt.processes.emplace_back();
    process.incarnation = 1;
    process.node = node.id;
    if (c == '2') attempt.orphaned_since = absl::FromUnixSeconds(1'000);
    batch.push_back(head::ToWrite(attempt));
  }
  return batch;
}

// A head that serves, and somebody who calls it.
class World {
 public:
  World()
      : credential_(*rpc::Credential::FromBytes(
            std::string(rpc::Credential::kClusterBytes, 'k'))),
        network_({}, time_, time_, random_) {
    COHORT_CHECK(head::MemoryStore(disk_).Append(0, Stored()).ok());
    head_ = std::make_unique<sim::HeadDaemon>(
        sim::World{
            .executor = time_,
            .clock = clock_,
            .random = random_,
            .network = network_,
            .credential = credential_,
            .counters = counters_,
            .disk = disk_,
            .before_restore = nothing_,
            .violate =
                [](const std::string& what) { COHORT_CHECK(false) << what; }},
        limits_);
    time_.AdvanceBy(absl::Milliseconds(20));
    COHORT_CHECK(head_->serving());
    channel_ = network_.Connect("client", "head", credential_);
  }
  ~World() {
    streams_.clear();
    head_.reset();
  }

  void Call(uint8_t method, std::string request) {
    const auto& unary = UnaryPaths();
    const auto& stream = StreamPaths();
    const size_t chosen = method % (unary.size() + stream.size());
    if (chosen >= unary.size()) {
      Stream(stream[chosen - unary.size()], std::move(request));
    } else {
      ++waiting_;
      channel_->StartUnary(
          unary[chosen], std::move(request), {.deadline = absl::Seconds(1)},
          time_, [this, path = unary[chosen]](rpc::CallResult result) {
            --waiting_;
            CheckAnswer(path, result.response.status());
          });
    }
    time_.AdvanceBy(absl::Milliseconds(10));
  }

  // Waits until all is answered and durable, and looks.
  void Check() {
    streams_.clear();
    time_.AdvanceBy(absl::Seconds(2));
    COHORT_CHECK(waiting_ == 0) << waiting_;
    COHORT_CHECK(head_->state() != nullptr && head_->settled());
    const head::ClusterState& state = *head_->state();
    const std::string violation = sim::CheckState(state);
    // It came back smaller than what it holds: nothing more is placed there.
    COHORT_CHECK(violation.empty() ||
                 absl::StartsWith(violation, "PL-2: more is held"))
        << violation;
    const std::string rebuilt =
        sim::CheckRebuilt(state, disk_, limits_, clock_);
    COHORT_CHECK(rebuilt.empty()) << rebuilt;
  }

 private:
  void Stream(const char* path, std::string first) {
    streams_.push_back(channel_->OpenStream(
        path, {.deadline = absl::InfiniteDuration()}, time_,
        {.on_message = [](absl::string_view) { return absl::OkStatus(); },
         .on_closed = [path](const absl::Status& status,
                             const auto&) { CheckAnswer(path, status); },
         .on_drained = nullptr}));
    (void)streams_.back()->Write(std::move(first));
  }

  // No request makes the head's own fault.
  static void CheckAnswer(const char* path, const absl::Status& status) {
    COHORT_CHECK(!absl::IsInternal(status) && !absl::IsUnknown(status) &&
                 !absl::IsDataLoss(status))
        << path << ": " << status;
  }

  cohort::ManualExecutor time_;
  // In steps that rows keep.
  const sim::SteppingClock clock_{time_};
  cohort::SeededRandom random_{1};
  const rpc::Credential credential_;
  rpc::LoopbackNetwork network_;
  sim::Counters counters_;
  const std::set<cohort::AttemptId> nothing_;
  head::MemoryDisk disk_;
  const head::ClusterLimits limits_;
  std::unique_ptr<sim::HeadDaemon> head_;
  std::unique_ptr<rpc::Channel> channel_;
  std::vector<std::unique_ptr<rpc::ClientStream>> streams_;
  int waiting_ = 0;
};

// ---- seeds ----

std::string Framed(const char* path, const std::string& request) {
  const auto& unary = UnaryPaths();
  const auto& stream = StreamPaths();
  size_t method = static_cast<size_t>(
      std::find(unary.begin(), unary.end(), path) - unary.begin());
  if (method == unary.size()) {
    method += static_cast<size_t>(
        std::find(stream.begin(), stream.end(), path) - stream.begin());
  }
  std::string framed(1, static_cast<char>(method));
  framed.push_back(static_cast<char>(request.size() >> 8));
  framed.push_back(static_cast<char>(request.size()));
  return framed + request;
}

template <typename Request, typename Response>
std::string Framed(const rpc::UnaryMethod<Request, Response>& method,
                   const Request& request) {
  return Framed(method.path, request.SerializeAsString());
}

std::string Submit() {
  v1::SubmitJobRequest request;
  request.set_request_id("r-1");
  v1::JobSpec& spec = *request.mutable_spec();
  spec.mutable_launch()->add_command("train");
  spec.set_array("0-3%2");
  spec.mutable_scaling()->set_num_workers(1);
  spec.mutable_scaling()->add_selectors("zone=a");
  auto* amount =
      spec.mutable_scaling()->mutable_resources_per_worker()->add_amounts();
  amount->set_name("CPU");
  amount->set_ten_thousandths(10'000);
  spec.add_after()->set_job_id(Id('1'));
  return Framed(rpc::kSubmitJob, request);
}

// A request about job `c`, with a request id where it has one.
template <typename Request, typename Response>
std::string AboutJob(const rpc::UnaryMethod<Request, Response>& method,
                     char c) {
  Request request;
  request.set_job_id(Id(c));
  if constexpr (requires { request.set_request_id("r"); }) {
    request.set_request_id("r-2");
  }
  return Framed(method, request);
}

std::string Resize(char c, int num_workers) {
  v1::ResizeJobRequest request;
  request.set_request_id("r-5");
  request.set_job_id(Id(c));
  request.set_num_workers(num_workers);
  return Framed(rpc::kResizeJob, request);
}

template <typename Request, typename Response>
std::string AboutAttempt(const rpc::UnaryMethod<Request, Response>& method) {
  Request request;
  request.set_request_id("r-3");
  request.set_attempt_id(Id('2'));
  return Framed(method, request);
}

template <typename Request, typename Response>
std::string AboutNode(const rpc::UnaryMethod<Request, Response>& method) {
  Request request;
  request.set_node("node");
  if constexpr (requires { request.set_request_id("r"); }) {
    request.set_request_id("r-4");
  }
  return Framed(method, request);
}

std::string Connect() {
  v1::WorkerMessage message;
  v1::Register& reg = *message.mutable_register_();
  reg.mutable_protocol()->set_min_version(1);
  reg.mutable_protocol()->set_max_version(1);
  reg.set_node_id(Id('n'));
  reg.set_name("node");
  reg.set_host("host");
  auto* amount = reg.mutable_resources()->add_amounts();
  amount->set_name("CPU");
  amount->set_ten_thousandths(40'000);
  reg.mutable_observed()->set_full(true);
  return Framed(rpc::kConnect.path, message.SerializeAsString());
}

std::string SendLog() {
  v1::LogMessage message;
  message.mutable_read()->set_node_id(Id('n'));
  message.mutable_read()->set_read_id(1);
  return Framed(rpc::kSendLog.path, message.SerializeAsString());
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  v1::ListJobsRequest list;
  v1::ListEventsRequest events;
  events.set_wait(true);
  events.set_node("node");
  return {Submit() + Submit() + Connect() + SendLog(),
          Connect() + AboutJob(rpc::kStopJob, '1'),
          AboutJob(rpc::kHoldJob, '3') + Connect() +
              AboutJob(rpc::kReleaseJob, '3'),
          Connect() + Resize('1', 3) + Resize('1', 1) + Resize('3', 2),
          AboutJob(rpc::kGetJob, '1') + AboutJob(rpc::kExplainJob, '3') +
              AboutJob(rpc::kWaitJob, '3'),
          AboutNode(rpc::kDrainNode) + Connect() + AboutNode(rpc::kGetNode) +
              AboutNode(rpc::kUndrainNode),
          Connect() + AboutAttempt(rpc::kAdoptAttempt) +
              AboutJob(rpc::kStopJob, '2'),
          AboutAttempt(rpc::kEndAttempt) + Framed(rpc::kListJobs, list) +
              Framed(rpc::kListEvents, events),
          Framed(rpc::kGetStatus, {}) + Framed(rpc::kGetResources, {}) +
              Framed(rpc::kListNodes, {}) + Framed(rpc::kBackupStore, {}),
          Framed(rpc::kBeginPackage, {}) + Framed(rpc::kUploadPackage, {}) +
              Framed(rpc::kFinishPackage, {}) + Framed(rpc::kFetchPackage, {})};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  World world;
  for (int calls = 0; size >= 3 && calls < kCallsMax; ++calls) {
    const size_t length = std::min<size_t>(size - 3, data[1] << 8 | data[2]);
    world.Call(data[0],
               std::string(reinterpret_cast<const char*>(data) + 3, length));
    data += 3 + length;
    size -= 3 + length;
  }
  world.Check();
  return 0;
}

#pragma once

// The head without its machine: services, state, commit and rebuild over the
// loopback transport and the memory store, with workers and clients that the
// test speaks for.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "head/head_core.h"
#include "head/services/cluster_wire.h"
#include "head/services/testing/memory_package_store.h"
#include "head/store/memory_store.h"
#include "head/store/records_codec.h"
#include "head/testing/observed_places.h"
#include "rpc/methods.h"
#include "rpc/testing/loopback.h"
#include "rpc/wire_values.h"

namespace cohort::head {

inline constexpr char kHead[] = "head";

// One worker's stream, spoken for by the test.
struct FakeWorker {
  std::unique_ptr<rpc::Channel> channel;
  std::unique_ptr<rpc::TypedStream<v1::WorkerMessage>> stream;
  std::vector<v1::HeadMessage> messages;
  std::optional<absl::Status> closed;
  uint64_t incarnation = 0;

  std::vector<v1::DesiredPlace> Desired() const {
    std::vector<v1::DesiredPlace> all;
    for (const v1::HeadMessage& message : messages) {
      all.insert(all.end(), message.desired().places().begin(),
                 message.desired().places().end());
    }
    return all;
  }
};

class HeadCoreTest : public ::testing::Test {
 protected:
  HeadCoreTest() {
    options_.limits.node_timeout = absl::Seconds(10);
    options_.pid = 42;
    Start();
  }
  ~HeadCoreTest() override {
    clients_.clear();
    Crash();
    Run();
  }

  // ---- the head ----

  void Start() {
    router_ = std::make_unique<rpc::Router>(
        rpc::RouterOptions(), rpc::Authenticator(credential_, tokens_), time_);
    core_ = std::make_unique<HeadCore>(
        options_,
        HeadSeams{.strand = time_,
                  .store_executor = time_,
                  .clock = time_,
                  .random = random_,
                  .packages = packages_,
                  .backups = backups_,
                  .provider = provider_,
                  .last_logs = last_logs_,
                  .planning = planning_,
                  .tokens = tokens_,
                  .credential = credential_,
                  .box = box_,
                  .revocations = revocations_,
                  .authorities = authorities_,
                  .audit = audit_},
        [this](StoreAccess access) -> absl::StatusOr<std::unique_ptr<Store>> {
          if (access == StoreAccess::kReadWrite && !opens_.ok()) return opens_;
          return std::make_unique<MemoryStore>(disk_);
        },
        [this](const absl::Status& status) { fatal_ = status; });
    core_->RegisterOn(*router_);
    std::optional<absl::Status> started;
    core_->Start([&](const absl::Status& status) { started = status; });
    time_.RunUntilIdle();
    ASSERT_TRUE(started.has_value());
    COHORT_ASSERT_OK(*started);
    network_.Listen(kHead, router_.get());
  }
  // As SIGKILL.
  void Crash() {
    network_.Kill(kHead);
    core_.reset();
  }
  // A copy of the state directory; what is there makes way for it.  No head.
  Batch CopyStore() {
    Batch rows;
    for (const Table table : kAllTables) {
      const auto all = MemoryStore(disk_).LoadAll(table);
      EXPECT_THAT(all, IsOk());
      for (const auto& [key, value] : *all) rows.push_back({table, key, value});
    }
    return rows;
  }
  void PutBack(const Batch& copy) {
    Batch rows = CopyStore();
    MemoryStore store(disk_);
    const auto cluster = LoadRecords<ClusterRecord>(store);
    COHORT_ASSERT_OK(cluster);
    for (Write& row : rows) row.value.reset();
    rows.insert(rows.end(), copy.begin(), copy.end());
    COHORT_ASSERT_OK(store.Append(cluster->front().term(), rows));
  }
  void Run(absl::Duration span = absl::Milliseconds(300)) {
    time_.AdvanceBy(span);
  }

  // ---- clients ----

  template <typename Req, typename Resp>
  absl::StatusOr<Resp> Call(const rpc::UnaryMethod<Req, Resp>& method,
                            const Req& request,
                            absl::Duration deadline = absl::Seconds(5),
                            std::optional<rpc::Credential> as = {}) {
    auto channel = network_.Connect("client", kHead, as.value_or(credential_));
    std::optional<absl::StatusOr<Resp>> answer;
    rpc::Call<Req, Resp>(
        *channel, method, request, {.deadline = deadline}, time_,
        [&](absl::StatusOr<Resp> response) { answer = std::move(response); });
    for (int i = 0; i < 1000 && !answer.has_value(); ++i) {
      Run(absl::Milliseconds(50));
    }
    EXPECT_TRUE(answer.has_value());
    clients_.push_back(std::move(channel));
    return answer.has_value() ? *std::move(answer)
                              : absl::InternalError("no answer");
  }

  static v1::SubmitJobRequest Submission(const std::string& request_id,
                                         int workers = 1) {
    v1::SubmitJobRequest request;
    request.set_request_id(request_id);
    v1::JobSpec* spec = request.mutable_spec();
    spec->set_name("job");
    spec->mutable_launch()->add_command("train");
    (*spec->mutable_launch()->mutable_environment())["A"] = "1";
    (*spec->mutable_launch()->mutable_environment())["B"] = "2";
    spec->mutable_scaling()->set_num_workers(workers);
    ResourceSet cpu;
    cpu.Set(kCpu, Amount::FromUnits(1));
    *spec->mutable_scaling()->mutable_resources_per_worker() = rpc::ToWire(cpu);
    return request;
  }
  absl::StatusOr<std::string> Submit(const std::string& request_id) {
    const auto response = Call(rpc::kSubmitJob, Submission(request_id));
    if (!response.ok()) return response.status();
    return response->job_id();
  }
  v1::Job Get(const std::string& job) {
    v1::GetJobRequest request;
    request.set_job_id(job);
    const auto response = Call(rpc::kGetJob, request);
    EXPECT_THAT(response, IsOk());
    return response.ok() ? response->job() : v1::Job();
  }
  v1::GetStatusResponse Status() {
    return *Call(rpc::kGetStatus, v1::GetStatusRequest());
  }

  // ---- workers ----

  v1::WorkerMessage Registration(const NodeId& node, int cpus = 2) {
    v1::WorkerMessage message;
    v1::Register* body = message.mutable_register_();
    body->mutable_protocol()->set_min_version(1);
    body->mutable_protocol()->set_max_version(1);
    body->set_node_id(std::string(node.bytes()));
    body->set_name("node");
    body->set_host("10.0.0.1");
    body->set_daemon_nonce(7);
    ResourceSet cpu;
    cpu.Set(kCpu, Amount::FromUnits(cpus));
    *body->mutable_resources() = rpc::ToWire(cpu);
    body->mutable_observed()->set_full(true);
    return message;
  }

  std::unique_ptr<FakeWorker> Open(const v1::WorkerMessage& first,
                                   const std::string& name = "worker",
                                   std::optional<rpc::Credential> as = {}) {
    auto worker = std::make_unique<FakeWorker>();
    worker->channel = network_.Connect(name, kHead, as.value_or(credential_));
    FakeWorker* raw = worker.get();
    worker->stream = rpc::OpenStream<v1::WorkerMessage, v1::HeadMessage>(
        *worker->channel, rpc::kConnect, {.deadline = absl::InfiniteDuration()},
        time_,
        {.on_message =
             [raw](const v1::HeadMessage& message) {
               if (message.has_registered()) {
                 raw->incarnation = message.registered().incarnation();
               }
               raw->messages.push_back(message);
             },
         .on_closed = [raw](absl::Status status,
                            auto) { raw->closed = std::move(status); },
         .on_drained = nullptr});
    COHORT_EXPECT_OK(worker->stream->Write(first));
    Run();
    return worker;
  }
  void Say(FakeWorker& worker, const v1::ObservedPlace& attempt) {
    v1::WorkerMessage message;
    message.set_incarnation(worker.incarnation);
    *message.mutable_observed()->add_places() = attempt;
    COHORT_EXPECT_OK(worker.stream->Write(message));
    Run();
  }
  static v1::ObservedPlace At(const v1::DesiredPlace& desired, Stage stage) {
    v1::ObservedPlace observed;
    observed.set_attempt_id(desired.attempt_id());
    observed.set_job_id(desired.job_id());
    observed.set_epoch(desired.epoch());
    observed.set_phase(PhaseAt(stage));
    observed.set_master_port(29500);
    for (const v1::DesiredProcess& each : desired.processes()) {
      if (each.goal() == v1::GOAL_FORGET) continue;
      v1::ObservedProcess* const out = observed.add_processes();
      out->set_slot(each.slot());
      out->set_incarnation(each.incarnation());
      out->set_state(ProcessStateAt(stage));
      if (stage >= Stage::kRunning) out->set_pid(99);
    }
    return observed;
  }
  static v1::ObservedPlace Exited(const v1::DesiredPlace& desired, int code) {
    v1::ObservedPlace observed = At(desired, Stage::kEnded);
    for (v1::ObservedProcess& each : *observed.mutable_processes()) {
      each.set_end_cause(v1::END_CAUSE_EXITED);
      each.mutable_exit()->set_code(code);
      each.set_exit_order(1);
    }
    return observed;
  }
  v1::DesiredPlace RunJob(FakeWorker& worker) {
    const v1::DesiredPlace desired = worker.Desired().back();
    Say(worker, At(desired, Stage::kPrepared));
    Say(worker, At(desired, Stage::kRunning));
    return desired;
  }
  v1::Stamp Stamp() { return StampOf(core_->state()->cluster()); }

  HeadCoreOptions options_;
  ManualExecutor time_;
  SeededRandom random_{11};
  const NodeId node_ = NodeId::New(random_);
  const rpc::Credential credential_ =
      *rpc::Credential::FromBytes(std::string(32, 'c'));
  const std::shared_ptr<rpc::TokenBook> tokens_ =
      std::make_shared<rpc::TokenBook>(time_);
  const std::shared_ptr<AuditBuffer> audit_ =
      std::make_shared<AuditBuffer>(time_);
  std::shared_ptr<const SecretBox> box_;  // null: nothing is sealed
  rpc::LoopbackNetwork network_{{}, time_, time_, random_};
  MemoryDisk disk_;
  absl::Status opens_;  // what opening the store to write says
  MemoryPackageStore packages_{time_};
  Backups* backups_ = nullptr;
  Provider* provider_ = nullptr;
  LastLogs* last_logs_ = nullptr;
  Executor* planning_ = nullptr;
  Revocations* revocations_ = nullptr;
  Authorities* authorities_ = nullptr;
  std::unique_ptr<rpc::Router> router_;
  std::unique_ptr<HeadCore> core_;
  std::optional<absl::Status> fatal_;
  std::vector<std::unique_ptr<rpc::Channel>> clients_;
};

}  // namespace cohort::head

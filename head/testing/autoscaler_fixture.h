#pragma once

// A head with a provider that has faults: everything but programs and threads.

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "head/testing/head_core_fixture.h"

namespace cohort::head {

inline constexpr char kClusterFile[] = R"(
provider: cloud
max_nodes: 6
idle_timeout: 30s
launch_timeout: 2m
node_types:
  cpu: {resources: {CPU: 4}, max: 4}
  large: {resources: {CPU: 16}, max: 2, cost: 10}
)";

// Tasks that come late: in the order of the posts, after a while, or when they
// are let go.
class LateExecutor final : public Executor {
 public:
  LateExecutor(Executor& later, Random& random)
      : later_(later), random_(random) {}

  void Post(Task task) override {
    if (holds) {
      held_.push_back(std::move(task));
    } else if (late == absl::ZeroDuration()) {
      later_.Post(std::move(task));
    } else {
      later_.PostAfter(late * static_cast<double>(random_.Uint64() % 100) / 100,
                       std::move(task));
    }
  }
  void PostAfter(absl::Duration delay, Task task) override {
    later_.PostAfter(delay, std::move(task));
  }
  void LetGo() {
    for (Task& task : std::exchange(held_, {})) later_.Post(std::move(task));
  }

  bool holds = false;
  absl::Duration late;

 private:
  Executor& later_;
  Random& random_;
  std::vector<Task> held_;
};

// A machine of the provider, and the worker on it.
struct Machine {
  std::string id;
  InstanceId key;
  std::string type;
  int cpus = 4;
  absl::Duration boots_at;
  NodeId node;
  std::unique_ptr<FakeWorker> worker;
  size_t read = 0;  // messages of the head
  // What it has, and when it ends by itself.
  struct Place {
    v1::DesiredPlace desired;
    Stage stage = Stage::kPrepared;
    absl::Duration ends_at;
  };
  std::map<std::string, Place> places;
  std::vector<std::unique_ptr<rpc::TypedStream<v1::LogMessage>>> calls;

  bool Runs() const {
    for (const auto& [attempt, place] : places) {
      if (place.stage != Stage::kEnded) return true;
    }
    return false;
  }
};

class AutoscalerTest : public HeadCoreTest, public Provider {
 protected:
  AutoscalerTest() {
    Crash();
    provider_ = this;
    planning_ = &plans_;
    Start();
  }
  ~AutoscalerTest() override {
    machines_.clear();
    ended_.clear();
    Crash();
    Run();
  }

  // ---- Provider ----

  absl::Status Check(const std::string& program) const override {
    if (program == "cloud" || program == "other") return absl::OkStatus();
    return absl::InvalidArgumentError("no such provider");
  }
  void Launch(const std::string&, const LaunchOrder& order,
              Launched done) override {
    ++launches_;
    absl::StatusOr<std::string> answer = absl::AbortedError("no capacity");
    if (launches_to_fail_ > 0) {
      --launches_to_fail_;
    } else {
      Machine* machine = OfKey(order.instance);
      if (machine == nullptr) machine = &Make(order);
      answer = answers_with_.empty() ? machine->id : answers_with_;
      if (Chance(lost_answers_)) answer = absl::DeadlineExceededError("lost");
    }
    Later([done = std::move(done), answer]() mutable {
      std::move(done)(std::move(answer));
    });
  }
  void Terminate(const std::string&, const ClusterId&, const std::string& id,
                 Done done) override {
    ++terminates_;
    if (terminates_fail_) {
      return Later([done = std::move(done)]() mutable {
        std::move(done)(absl::UnavailableError("not now"));
      });
    }
    const auto found = machines_.find(id);
    if (found != machines_.end()) {
      EXPECT_FALSE(found->second->Runs() && may_not_end_running_)
          << "SC-8: " << id;
      ended_.push_back(std::move(found->second));
      machines_.erase(found);
    }
    Later([done = std::move(done)]() mutable {
      std::move(done)(absl::OkStatus());
    });
  }
  void List(const std::string&, const ClusterId&, Listed done) override {
    std::vector<ProvidedInstance> all;
    for (const auto& [id, machine] : machines_) {
      ProvidedInstance& each = all.emplace_back();
      each.id = id;
      each.instance = machine->key;
      each.failed = failed_.contains(id);
      each.reason = reason_;
      if (notices_.contains(id)) each.notice = notices_.at(id);
    }
    Later([done = std::move(done), all = std::move(all)]() mutable {
      std::move(done)(std::move(all));
    });
  }

  void Watch(const std::string&, const ClusterId&, Watched on_event) override {
    watched_ = std::move(on_event);
  }

  Machine* OfKey(const InstanceId& key) {
    for (const auto& [id, machine] : machines_) {
      if (machine->key == key) return machine.get();
    }
    return nullptr;
  }
  Machine& Make(const LaunchOrder& order) {
    auto machine = std::make_unique<Machine>();
    machine->id = absl::StrCat("m", ++made_);
    machine->key = order.instance;
    machine->type = order.type.name();
    machine->cpus = short_of_cpus_ ? 1 : machine->type == "cpu" ? 4 : 16;
    machine->boots_at = time_.Monotonic() + boot_time_;
    machine->node = NodeId::New(random_);
    Machine& made = *machine;
    machines_[made.id] = std::move(machine);
    most_ = std::max(most_, machines_.size());
    return made;
  }

  // ---- what time brings ----

  int Below(int n) {
    return static_cast<int>(random_.Uint64() % static_cast<uint64_t>(n));
  }
  bool Chance(int percent) { return Below(100) < percent; }
  void Later(Task task) {
    time_.PostAfter(absl::Milliseconds(10 + Below(200)), std::move(task));
  }

  void Register(Machine& machine) {
    v1::WorkerMessage first = Registration(machine.node, machine.cpus);
    v1::Register& body = *first.mutable_register_();
    body.set_name(machine.id);
    (*body.mutable_labels())["instance"] = machine.key.ToHex();
    (*body.mutable_labels())["node-type"] = machine.type;
    for (const auto& [id, place] : machine.places) {
      *body.mutable_observed()->add_places() = Observed(place);
    }
    machine.worker = Open(first, machine.id);
    machine.read = 0;
  }
  v1::ObservedPlace Observed(const Machine::Place& place) {
    return place.stage == Stage::kEnded ? Exited(place.desired, 0)
                                        : At(place.desired, place.stage);
  }
  void Live(Machine& machine) {
    if (time_.Monotonic() < machine.boots_at || core_ == nullptr) return;
    if (machine.worker == nullptr || machine.worker->closed.has_value()) {
      Register(machine);
    }
    Heartbeat(machine);
    while (machine.read < machine.worker->messages.size()) {
      const v1::HeadMessage message = machine.worker->messages[machine.read++];
      for (const v1::DesiredPlace& desired : message.desired().places()) {
        Obey(machine, desired);
      }
      if (message.has_send_log() && !Chance(mute_)) Answer(machine, message);
    }
    for (auto& [id, place] : machine.places) {
      if (place.stage == Stage::kRunning &&
          time_.Monotonic() >= place.ends_at) {
        place.stage = Stage::kEnded;
        Tell(machine, Observed(place));
      }
    }
  }
  // A head that has just died does not hear it: the next one is told all.
  void Tell(Machine& machine, const v1::ObservedPlace& place) {
    v1::WorkerMessage message;
    message.set_incarnation(machine.worker->incarnation);
    *message.mutable_observed()->add_places() = place;
    (void)machine.worker->stream->Write(message);
    Run();
  }
  void Heartbeat(Machine& machine) {
    v1::WorkerMessage message;
    message.set_incarnation(machine.worker->incarnation);
    message.mutable_heartbeat();
    (void)machine.worker->stream->Write(message);
  }
  // Its logs are of 7 bytes, of which the first 3 are gone.
  void Answer(Machine& machine, const v1::HeadMessage& asked) {
    v1::LogMessage read;
    *read.mutable_read()->mutable_stamp() = asked.stamp();
    read.mutable_read()->set_node_id(IdBytes(machine.node));
    read.mutable_read()->set_read_id(asked.send_log().read_id());
    v1::LogMessage message;
    v1::LogPiece& piece = *message.mutable_piece();
    piece.set_known(true);
    piece.set_end(true);
    if (asked.send_log().list()) {
      ++lists_asked_;
      if (has_results_) piece.add_files()->set_path("model.pt");
    } else {
      piece.set_offset(3);
      piece.set_data("last");
    }
    machine.calls.push_back(rpc::OpenStream<v1::LogMessage, v1::NextLogPiece>(
        *machine.worker->channel, rpc::kSendLog,
        {.deadline = absl::InfiniteDuration()}, time_,
        {.on_message = [](const v1::NextLogPiece&) {},
         .on_closed = [](absl::Status, auto) {}}));
    (void)machine.calls.back()->Write(read);
    (void)machine.calls.back()->Write(message);
  }
  void Obey(Machine& machine, const v1::DesiredPlace& desired) {
    if (desired.goal() == v1::GOAL_FORGET) {
      machine.places.erase(desired.attempt_id());
      return;
    }
    const auto found = machine.places.find(desired.attempt_id());
    if (found == machine.places.end()) {
      Machine::Place& place = machine.places[desired.attempt_id()];
      place.desired = desired;
      Tell(machine, Observed(place));
      return;
    }
    Machine::Place& place = found->second;
    bool runs = false;
    bool stops = false;
    for (const v1::DesiredProcess& process : desired.processes()) {
      runs |= process.goal() == v1::GOAL_RUN;
      stops |= process.goal() == v1::GOAL_STOP;
    }
    if (stops && place.stage != Stage::kEnded) {
      place.stage = Stage::kEnded;
      Tell(machine, Observed(place));
    } else if (runs && place.stage == Stage::kPrepared) {
      place.desired = desired;
      place.stage = Stage::kRunning;
      place.ends_at = time_.Monotonic() + job_time_;
      Tell(machine, Observed(place));
    }
  }
  virtual void AfterStep() {}
  void Pass(absl::Duration span) {
    for (const absl::Duration end = time_.Monotonic() + span;
         time_.Monotonic() < end;) {
      Run(absl::Milliseconds(200));
      ended_.clear();
      // A step may end machines.
      std::vector<std::string> ids;
      for (const auto& [id, machine] : machines_) ids.push_back(id);
      for (const std::string& id : ids) {
        const auto found = machines_.find(id);
        if (found != machines_.end()) Live(*found->second);
      }
      AfterStep();
    }
  }

  // ---- people ----

  absl::Status Apply(const std::string& text) {
    v1::ApplyClusterFileRequest request;
    request.set_text(text);
    return Call(rpc::kApplyClusterFile, request).status();
  }
  std::string SubmitGang(const std::string& name, int workers) {
    const auto job = Call(rpc::kSubmitJob, Submission(name, workers));
    EXPECT_TRUE(job.ok());
    return job.ok() ? job->job_id() : "";
  }
  std::string Scaling(const std::string& job) {
    v1::ExplainJobRequest request;
    request.set_job_id(job);
    return Call(rpc::kExplainJob, request)->scaling();
  }
  v1::Autoscaling Shown() {
    return *Call(rpc::kGetAutoscaler, v1::GetAutoscalerRequest());
  }
  std::vector<v1::Token> Tokens() {
    const auto listed = Call(rpc::kListTokens, v1::ListTokensRequest());
    return {listed->tokens().begin(), listed->tokens().end()};
  }
  int EventsOf(const std::string& kind) {
    v1::ListEventsRequest request;
    request.set_kind(kind);
    return Call(rpc::kListEvents, request)->events_size();
  }
  v1::JobState StateOf(const std::string& job) { return Get(job).state(); }

  std::map<std::string, std::unique_ptr<Machine>> machines_;
  // Which may be in the middle of a word.
  std::vector<std::unique_ptr<Machine>> ended_;
  std::set<std::string> failed_;
  std::map<std::string, absl::Duration> notices_;
  std::string reason_;  // why none runs yet
  Watched watched_;
  int made_ = 0;
  int launches_ = 0;
  int terminates_ = 0;
  size_t most_ = 0;
  int launches_to_fail_ = 0;
  int lost_answers_ = 0;  // percent
  bool short_of_cpus_ = false;
  bool terminates_fail_ = false;
  std::string answers_with_;  // an id; empty: with what it made
  bool has_results_ = false;
  int lists_asked_ = 0;
  int mute_ = 0;  // percent of what is asked before they go
  bool may_not_end_running_ = true;
  LateExecutor plans_{time_, random_};
  absl::Duration boot_time_ = absl::Seconds(3);
  absl::Duration job_time_ = absl::Seconds(10);
};

}  // namespace cohort::head

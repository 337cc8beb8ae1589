#include "tests/sim/sim_cluster.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

#include "head/records_codec.h"
#include "rpc/wire_values.h"

namespace cohort::sim {
namespace {

using head::AttemptRecord;
using head::ClusterState;
using head::JobRecord;
using head::JobState;

// Faults come about this often: several during each job, and time to recover
// from some before the next.
constexpr absl::Duration kFaultEvery = absl::Milliseconds(700);
// One write in so many is the head's last.
constexpr uint64_t kCrashAtWriteOneIn = 40;
// One settled moment in so many is compared with what a restart would find.
constexpr uint64_t kRebuildOneIn = 150;
// A node that could be heard for so long beyond its lease is not given up: it
// needs a second at most to join again after a broken connection, and several
// may break one after the other.
constexpr absl::Duration kHeardFor = absl::Seconds(12);

rpc::LoopbackOptions NetworkOptions(bool faulty) {
  rpc::LoopbackOptions options;
  options.break_probability = faulty ? 0.002 : 0;
  options.partition_timeout = absl::Seconds(5);
  return options;
}

Flaw FlawOf(Break broken) {
  switch (broken) {
    case Break::kMachineDoublesDevices:
      return Flaw::kDoublesDevices;
    case Break::kRestoreIsForged:
      return Flaw::kForgesRestore;
    case Break::kMachineForgetsNothing:
      return Flaw::kForgetsNothing;
    case Break::kRanksNeverEnd:
      return Flaw::kRanksNeverEnd;
    default:
      return Flaw::kNone;
  }
}

// The last of three is another model, in another zone, and keeps off whoever
// does not tolerate it.
NodeKind KindOf(int index, int machines) {
  const bool is_other = index == 2 && machines == 3;
  NodeKind kind;
  kind.resources = *ParseResources("CPU=4,GPU=2,memory=8GiB");
  kind.gpus = 2;
  kind.gpu_model = is_other ? "Beta" : "Alpha";
  kind.labels["zone"] = is_other ? "b" : "a";
  if (is_other) kind.taint = "dedicated";
  return kind;
}

const char* CrashName(Crash crash) {
  switch (crash) {
    case Crash::kBefore:
      return "head_killed_before_write";
    case Crash::kTorn:
      return "head_killed_write_torn";
    case Crash::kAfter:
      return "head_killed_before_sending";
    case Crash::kAmidEffects:
      return "head_killed_amid_effects";
  }
  return "";
}

}  // namespace

SimCluster::SimCluster(SimOptions options)
    : options_(options),
      random_(options.seed),
      clock_(executor_),
      start_(executor_.Monotonic()),
      credential_(*rpc::Credential::FromBytes(
          std::string(rpc::Credential::kClusterBytes, 'k'))),
      network_(NetworkOptions(options.faulty), executor_, executor_, random_),
      faulty_(options.faulty) {
  limits_.node_timeout = absl::Seconds(3);
  for (int i = 0; i < options_.machines; ++i) {
    Node& node = nodes_.emplace_back();
    node.id = NodeId::New(random_);
    node.kind = KindOf(i, options_.machines);
    node.disturbed_at = start_;
    const std::string name = absl::StrCat("node-", i);
    node.machine = std::make_unique<Machine>(
        Machine::Parts{.name = name,
                       .resources = node.kind.resources,
                       .flaw = FlawOf(options.broken),
                       .connect =
                           [this, name](const AttemptId& id) {
                             return network_.Connect(
                                 name + ".ranks", name + ".sock",
                                 rpc::MintRankCredential(credential_, id));
                           }},
        executor_, executor_, random_, counters_, written_);
  }
  for (int i = 0; i < 3; ++i) {
    clients_.push_back(
        std::make_unique<Client>(world(), absl::StrCat("client-", i),
                                 options.broken == Break::kClientForgetsItsId));
  }
  disk_.SetFate([this](const head::Batch& batch) { return OnWrite(batch); });
  BreakOnPurpose();
}

SimCluster::~SimCluster() {
  for (Node& node : nodes_) node.daemon.reset();
  head_.reset();
}

// ---- the plan of a seed ----

v1::JobSpec SimCluster::RandomSpec() {
  v1::JobSpec spec;
  const auto ms = [this](uint64_t most) {
    return absl::StrCat(10 + random_.Below(most));
  };
  switch (random_.Below(6)) {
    case 0:
      for (const std::string& word : {std::string("run"), ms(8000)}) {
        spec.add_command(word);
      }
      break;
    case 1:
      for (const std::string& word :
           {std::string("fail"), absl::StrCat(random_.Below(4)), ms(2000),
            std::string("7")}) {
        spec.add_command(word);
      }
      break;
    case 2:
      for (const std::string& word : {std::string("segv"), ms(1000)}) {
        spec.add_command(word);
      }
      break;
    case 3:
      for (const std::string& word : {std::string("stubborn"), ms(5000)}) {
        spec.add_command(word);
      }
      break;
    default:
      for (const std::string& word :
           {std::string("train"), absl::StrCat(5 + random_.Below(40)),
            ms(200)}) {
        spec.add_command(word);
      }
  }
  auto& scaling = *spec.mutable_scaling();
  scaling.set_num_workers(1 + static_cast<int>(random_.Below(4)));
  scaling.set_placement_strategy(
      static_cast<v1::PlacementStrategy>(1 + random_.Below(4)));
  auto* cpu = scaling.mutable_resources_per_worker()->add_amounts();
  cpu->set_name("CPU");
  cpu->set_ten_thousandths(10'000 * static_cast<int64_t>(1 + random_.Below(2)));
  if (const uint64_t gpu = random_.Below(3); gpu > 0) {
    auto* amount = scaling.mutable_resources_per_worker()->add_amounts();
    amount->set_name("GPU");
    amount->set_ten_thousandths(gpu == 1 ? 5'000 : 10'000);
  }
  if (scaling.placement_strategy() == v1::PLACEMENT_STRATEGY_STRICT_SPREAD ||
      scaling.placement_strategy() == v1::PLACEMENT_STRATEGY_STRICT_PACK) {
    // So that every gang fits the cluster when it is empty.
    scaling.set_num_workers(std::min(scaling.num_workers(), 2));
  }
  spec.mutable_run()->set_max_failures(static_cast<int>(random_.Below(4)));
  spec.mutable_run()->set_num_to_keep(static_cast<int>(random_.Below(3)));
  spec.set_priority(static_cast<int>(random_.Below(3)) - 1);
  if (random_.Below(2) == 0) AddWhere(spec);
  AddTimes(spec);
  AddOrder(spec);
  return spec;
}

// Arrays, and jobs that wait for a person; whom a job comes after is chosen
// when it is submitted.
void SimCluster::AddOrder(v1::JobSpec& spec) {
  if (random_.Below(8) == 0) {
    counters_.Count("array");
    spec.set_array(random_.Below(2) == 0 ? "0-3%2" : "1,5-6");
    spec.mutable_scaling()->set_num_workers(1);
  }
  if (random_.Below(8) == 0) {
    counters_.Count("submitted_held");
    spec.set_hold(true);
  }
}

// Persons hold jobs and forget about it; somebody lets them go in the end.
void SimCluster::ReleaseTheHeld() {
  executor_.PostAfter(absl::Seconds(2), [this] { ReleaseTheHeld(); });
  if (head_ == nullptr || head_->state() == nullptr) return;
  const ClusterState& state = *head_->state();
  for (const auto& [sequence, id] : state.jobs().by_sequence()) {
    const JobRecord& job = *state.jobs().Find(id);
    if (!job.held || head::HasEnded(job.state)) continue;
    if (faulty_ && random_.Below(3) != 0) continue;
    clients_[random_.Below(clients_.size())]->Release(id);
  }
}

// Wishes about nodes; the gang fits each node that they leave, when it is idle.
void SimCluster::AddWhere(v1::JobSpec& spec) {
  auto& scaling = *spec.mutable_scaling();
  if (random_.Below(2) == 0) {
    v1::Toleration* toleration = scaling.add_tolerations();
    toleration->set_key("dedicated");
    toleration->set_any_value(true);
  }
  if (random_.Below(3) == 0) return;
  counters_.Count("job_with_wishes");
  scaling.set_num_workers(std::min(scaling.num_workers(), 2));
  scaling.set_placement_strategy(v1::PLACEMENT_STRATEGY_PACK);
  switch (random_.Below(5)) {
    case 0:
      scaling.add_selectors("zone=a");
      break;
    case 1:
      scaling.add_selectors("zone exists");
      scaling.add_selectors("host in (node-0, node-1)");
      break;
    case 2:
      scaling.set_accelerator_type("Alpha");
      break;
    case 3:
      scaling.set_topology_level("zone");
      scaling.set_topology_required(true);
      break;
    default:
      scaling.set_topology_level("host");
      scaling.set_topology_required(random_.Below(2) == 0);
      break;
  }
}

void SimCluster::AddTimes(v1::JobSpec& spec) {
  if (random_.Below(4) == 0) {
    *spec.mutable_time_limit() =
        rpc::ToWire(absl::Milliseconds(100 + random_.Below(6000)));
  }
  if (random_.Below(3) == 0) {
    *spec.mutable_grace() =
        rpc::ToWire(absl::Milliseconds(random_.Below(4000)));
  }
  *spec.mutable_run()->mutable_retry_delay() =
      rpc::ToWire(absl::Milliseconds(random_.Below(3000)));
}

void SimCluster::Plan() {
  const auto some_time = [this] {
    return options_.faults_for * random_.Double();
  };
  for (int i = 0; i < options_.jobs; ++i) {
    Client& client = *clients_[random_.Below(clients_.size())];
    executor_.PostAfter(some_time() * 0.8, [&client, i, spec = RandomSpec()] {
      client.Submit(absl::StrCat("job-", i), spec);
    });
  }
  for (int i = 0; i < 4; ++i) {
    Client& client = *clients_[random_.Below(clients_.size())];
    executor_.PostAfter(some_time(), [&client] { client.StopOne(); });
    executor_.PostAfter(some_time(), [&client] { client.SubmitNonsense(); });
    executor_.PostAfter(some_time(), [&client] { client.SubmitUnderUsedId(); });
  }
  for (int i = 0; i < 4; ++i) {
    Client& client = *clients_[random_.Below(clients_.size())];
    executor_.PostAfter(some_time(), [&client] { client.HoldOne(); });
  }
  executor_.PostAfter(absl::Seconds(2), [this] { ReleaseTheHeld(); });
  for (int i = 0; i < 12; ++i) {
    Client& client = *clients_[random_.Below(clients_.size())];
    executor_.PostAfter(some_time(), [&client] { client.LookAtOne(); });
  }
}

void SimCluster::BreakOnPurpose() {
  switch (options_.broken) {
    case Break::kStoreSkipsSyncs:
    case Break::kStoreSkipsSyncsUnseen:
      disk_.SkipSyncs();
      break;
    case Break::kHeartbeatsVanish:
      // Behind the invariants' back.
      executor_.PostAfter(absl::Seconds(20), [this] {
        network_.Partition(nodes_[0].machine->name(), "head");
      });
      break;
    case Break::kRowRots:
      executor_.PostAfter(absl::Seconds(20), [this] {
        if (head_ == nullptr || head_->state() == nullptr) return;
        head::NodeRecord record =
            head_->state()->nodes().records().begin()->second;
        record.name = "somebody else";
        const head::Write write = head::ToWrite(record);
        disk_.Corrupt(write.table, write.key, *write.value);
      });
      break;
    default:
      break;
  }
}

// ---- faults ----

void SimCluster::Fired(const std::string& name) {
  counters_.Count(name);
  Say(name);
}

void SimCluster::KillHead() {
  if (head_ == nullptr) return;
  head_.reset();
  head_runs_seen_ = 0;
  next_event_seen_ = 0;
  head_back_at_ =
      executor_.Monotonic() + absl::Milliseconds(20 + random_.Below(3000));
}

void SimCluster::KillDaemon(Node& node, absl::Duration for_at_least,
                            uint64_t and_ms) {
  node.daemon.reset();
  node.back_at = executor_.Monotonic() + for_at_least +
                 absl::Milliseconds(random_.Below(and_ms));
  node.disturbed_at = node.back_at;
}

void SimCluster::Cut(Node& node, absl::Duration time) {
  const std::string name = node.machine->name();
  network_.Partition(name, "head");
  node.cut = true;
  executor_.PostAfter(time, [this, &node, name] {
    network_.Heal(name, "head");
    node.cut = false;
    node.disturbed_at = executor_.Monotonic();
  });
}

void SimCluster::Drain(Node& node) {
  if (node.drain_asked) return;
  node.drain_asked = true;
  Fired("node_drained");
  v1::DrainNodeRequest request;
  request.set_request_id(absl::StrCat("drain-", drains_++));
  request.set_node(node.machine->name());
  request.set_reason("to be mended");
  if (random_.Below(2) == 0) {
    *request.mutable_deadline() =
        rpc::ToWire(absl::Milliseconds(random_.Below(4000)));
  }
  const absl::Duration time = absl::Milliseconds(200 + random_.Below(9000));
  const auto done = [this, &node, request, time](const absl::Status& status) {
    if (!status.ok()) {
      // It has not registered yet.
      counters_.Count("drain_refused");
      node.drain_asked = false;
      return;
    }
    executor_.PostAfter(time, [this, &node] { Undrain(node); });
    // A copy of the request that comes late drains nobody (RQ-1).
    executor_.PostAfter(time + absl::Seconds(3), [this, request] {
      clients_[1]->Insist(rpc::kDrainNode, request, [](const absl::Status&) {});
    });
  };
  clients_[0]->Insist(rpc::kDrainNode, request, done);
}

void SimCluster::Undrain(Node& node) {
  v1::UndrainNodeRequest request;
  request.set_request_id(absl::StrCat("undrain-", drains_++));
  request.set_node(node.machine->name());
  clients_[0]->Insist(rpc::kUndrainNode, request,
                      [this, &node](const absl::Status& status) {
                        if (!status.ok()) {
                          Violate("DR-1: undrain: " + status.ToString());
                        }
                        node.drain_asked = false;
                      });
}

void SimCluster::Fault() {
  Node& node = nodes_[random_.Below(nodes_.size())];
  const uint64_t kind = random_.Below(21);
  if (kind < 9) return HeadFault(kind);
  if (kind < 16) return NodeFault(kind - 9, node);
  NetworkFault(kind - 16, node);
}

void SimCluster::HeadFault(uint64_t kind) {
  switch (kind) {
    case 0:
      if (head_ == nullptr) break;
      Fired("head_killed");
      KillHead();
      break;
    case 1:
      Fired("power_failed");
      KillHead();
      disk_.PowerOff(random_);
      break;
    case 2:
      crash_at_next_write_ = static_cast<Crash>(random_.Below(4));
      break;
    case 3:
    case 4:
      Fired("append_fails_landed");
      disk_.FailAfter(static_cast<int>(random_.Below(4)),
                      head::AppendFault::kLanded);
      break;
    case 5:
      Fired("append_fails_not_landed");
      disk_.FailAfter(static_cast<int>(random_.Below(4)),
                      head::AppendFault::kNotLanded);
      break;
    case 6:
      Fired("append_fails_unsynced");
      disk_.FailAfter(static_cast<int>(random_.Below(4)),
                      head::AppendFault::kUnsynced);
      break;
    case 7:
      if (head_ == nullptr || head_->stopped()) break;
      // Longer than any lease: nobody may die of it (LS-1).
      Fired("head_paused");
      head_->Stop();
      executor_.PostAfter(absl::Milliseconds(500 + random_.Below(9000)),
                          [this] {
                            if (head_ != nullptr && head_->stopped()) {
                              head_->Continue();
                            }
                          });
      break;
    default:
      Fired("disk_full");
      disk_.Refuse();
      executor_.PostAfter(absl::Milliseconds(random_.Below(4000)),
                          [this] { disk_.Heal(); });
      break;
  }
}

void SimCluster::NodeFault(uint64_t kind, Node& node) {
  switch (kind) {
    case 0:
      if (node.daemon == nullptr) break;
      Fired("worker_killed");
      KillDaemon(node, absl::Milliseconds(20), 6000);
      break;
    case 1:
      if (node.machine->KillAKeeper()) Fired("keeper_killed");
      break;
    case 2:
      if (node.machine->KillARank()) Fired("rank_killed");
      break;
    case 3:
      Fired("machine_rebooted");
      KillDaemon(node, absl::Milliseconds(500), 9000);
      node.machine->Reboot();
      break;
    case 4: {
      if (node.daemon == nullptr) break;
      Fired("worker_paused");
      node.daemon->Stop();
      const absl::Duration time = absl::Milliseconds(200 + random_.Below(8000));
      node.disturbed_at = executor_.Monotonic() + time;
      executor_.PostAfter(time, [&node] {
        if (node.daemon != nullptr) node.daemon->Continue();
      });
      break;
    }
    case 5:
      Drain(node);
      break;
    default:
      clients_[random_.Below(clients_.size())]->Die();
      Fired("client_killed");
      break;
  }
}

void SimCluster::NetworkFault(uint64_t kind, Node& node) {
  switch (kind) {
    case 0:
    case 1:
      Fired("partitioned");
      Cut(node, absl::Milliseconds(random_.Below(12'000)));
      break;
    case 2:
      Fired("connections_broken");
      network_.BreakAll(random_.Below(2) == 0 ? "head" : node.machine->name());
      break;
    case 3: {
      Fired("client_partitioned");
      const std::string name = absl::StrCat("client-", random_.Below(3));
      network_.Partition(name, "head");
      executor_.PostAfter(absl::Milliseconds(random_.Below(9000)),
                          [this, name] { network_.Heal(name, "head"); });
      break;
    }
    default:
      // Days, so that whoever counts time by it is found out.
      Fired("clock_stepped");
      clock_.Step(absl::Hours(72) * (2 * random_.Double() - 1));
      break;
  }
}

std::optional<head::AppendFault> SimCluster::OnWrite(const head::Batch& batch) {
  ++writes_;
  std::optional<head::AppendFault> fault;
  if (writes_ == options_.crash_at_write) {
    fault = CrashNow(options_.crash);
  } else if (faulty_ && crash_at_next_write_.has_value()) {
    fault = CrashNow(*std::exchange(crash_at_next_write_, std::nullopt));
  } else if (faulty_ && random_.Below(kCrashAtWriteOneIn) == 0) {
    fault = CrashNow(static_cast<Crash>(random_.Below(4)));
  }
  if (!fault.has_value() && options_.broken != Break::kStoreSkipsSyncs &&
      options_.broken != Break::kStoreSkipsSyncsUnseen) {
    const std::string violation = history_.OnDurable(batch);
    if (!violation.empty()) Violate(violation);
  }
  return fault;
}

std::optional<head::AppendFault> SimCluster::CrashNow(Crash crash) {
  Fired(CrashName(crash));
  crashing_ = crash;
  switch (crash) {
    case Crash::kBefore:
      return head::AppendFault::kNotLanded;
    case Crash::kTorn:
      return head::AppendFault::kUnsynced;
    case Crash::kAmidEffects:
      silenced_before_ = network_.faults().silenced;
      crash_at_the_latest_ = executor_.Monotonic() + absl::Milliseconds(50);
      network_.SilenceAfter("head", static_cast<int>(random_.Below(3)));
      return std::nullopt;
    case Crash::kAfter:
      break;
  }
  return std::nullopt;
}

void SimCluster::FinishCrash() {
  if (!crashing_.has_value()) return;
  if (*crashing_ == Crash::kAmidEffects &&
      network_.faults().silenced == silenced_before_ &&
      executor_.Monotonic() < crash_at_the_latest_) {
    return;
  }
  KillHead();
  if (*crashing_ == Crash::kTorn) disk_.PowerOff(random_);
  crashing_.reset();
}

void SimCluster::HealEverything() {
  faulty_ = false;
  crash_at_next_write_.reset();
  network_.SetBreakProbability(0);
  network_.HealAll();
  disk_.Heal();
  if (head_ != nullptr && head_->stopped()) head_->Continue();
  Say("healed");
}

void SimCluster::ReviveTheDead() {
  const absl::Duration now = executor_.Monotonic();
  if (head_ != nullptr && head_->ended()) {
    counters_.Count("head_ended_by_itself");
    KillHead();
  }
  if (head_ == nullptr && now >= head_back_at_) {
    head_ = std::make_unique<HeadDaemon>(world(), limits_);
    counters_.Count("head_started");
  }
  for (Node& node : nodes_) {
    if (node.daemon != nullptr || now < node.back_at) continue;
    node.disturbed_at = now;
    node.daemon = std::make_unique<WorkerDaemon>(world(), *node.machine,
                                                 node.id, node.kind);
  }
}

// ---- running ----

SimResult SimCluster::Run() {
  Plan();
  absl::Duration next_fault = start_ + absl::Seconds(2);
  const absl::Duration heal_at = start_ + options_.faults_for;
  const absl::Duration end_at = heal_at + options_.rest_within;
  bool healed = false;
  // Wakes the loop, so that revivals and faults come at their time.
  absl::AnyInvocable<void()> tick = [this, &tick] {
    executor_.PostAfter(absl::Milliseconds(100), [&tick] { tick(); });
  };
  tick();
  while (violation_.empty()) {
    ReviveTheDead();
    const absl::Duration now = executor_.Monotonic();
    if (faulty_ && now >= next_fault) {
      next_fault += kFaultEvery * (0.2 + 1.6 * random_.Double());
      Fault();
    }
    if (!healed && now >= heal_at) {
      HealEverything();
      healed = true;
    }
    if (healed && AtRest()) break;
    if (now >= end_at) {
      Violate(DescribeUnrest());
      break;
    }
    Step();
  }
  if (violation_.empty()) CheckAtRest();
  const rpc::LoopbackFaults faults = network_.faults();
  counters_.Count("net_refused", faults.refused);
  counters_.Count("net_request_lost", faults.requests_lost);
  counters_.Count("net_reply_lost", faults.replies_lost);
  counters_.Count("net_stream_broken", faults.streams_broken);
  counters_.Count("net_held", faults.held);
  counters_.Count("net_partition_timeout", faults.partition_timeouts);
  counters_.Count("net_silenced", faults.silenced);
  counters_.Count("append_failed", disk_.faults_fired());
  counters_.Count("unsynced_batch_lost", disk_.batches_lost());
  return {.violation = violation_,
          .trace = trace_,
          .writes = writes_,
          .counters = counters_,
          .virtual_time = executor_.Monotonic() - start_};
}

void SimCluster::Step() {
  if (!executor_.RunOne()) {
    if (const auto next = executor_.UntilNext()) executor_.AdvanceBy(*next);
  }
  AfterStep();
}

void SimCluster::AfterStep() {
  if (writes_ != writes_seen_) {
    writes_seen_ = writes_;
    trace_ = (trace_ ^ static_cast<uint64_t>(
                           absl::ToInt64Nanoseconds(executor_.Monotonic()))) *
             1099511628211u;
  }
  FinishCrash();
  CheckInvariants();
}

// ---- invariants ----

void SimCluster::Violate(const std::string& what) {
  if (!violation_.empty()) return;
  violation_ = absl::StrCat(
      what, " (at ", absl::FormatDuration(executor_.Monotonic() - start_), ")");
}

void SimCluster::Say(const std::string& what) {
  if (!options_.verbose) return;
  std::printf("%12s %s\n",
              absl::FormatDuration(executor_.Monotonic() - start_).c_str(),
              what.c_str());
}

void SimCluster::CheckInvariants() {
  for (const Node& node : nodes_) {
    if (!node.machine->violation().empty()) Violate(node.machine->violation());
  }
  for (const auto& client : clients_) {
    if (!client->violation().empty()) Violate(client->violation());
  }
  if (head_ == nullptr || head_->state() == nullptr || head_->read_only() ||
      head_->runs() == head_runs_seen_) {
    return;
  }
  head_runs_seen_ = head_->runs();
  const ClusterState& state = *head_->state();
  CheckNodes(state);
  // Whatever moves a job or an attempt is an event.
  const uint64_t next_event = state.cluster().next_event;
  if (std::exchange(next_event_seen_, next_event) != next_event) {
    const std::string violation = CheckState(state);
    if (!violation.empty()) Violate(violation);
    NoteJobs(state);
  }
  MaybeCheckRebuilt();
}

void SimCluster::MaybeCheckRebuilt() {
  const bool always = options_.broken == Break::kRowRots;
  if (!head_->settled()) return;
  if (!always && random_.Below(kRebuildOneIn) != 0) return;
  counters_.Count("rebuilt_and_compared");
  const std::string violation =
      CheckRebuilt(*head_->state(), disk_, limits_, clock_);
  if (!violation.empty()) Violate(violation);
}

void SimCluster::NoteEdge(const JobId& job, JobState from, JobState to) {
  const std::string edge = absl::StrCat("edge_", head::JobStateName(from), "_",
                                        head::JobStateName(to));
  counters_.Count(edge);
  Say(absl::StrCat(edge, " ", job.ToText().substr(0, 6)));
}

void SimCluster::NoteJobs(const ClusterState& state) {
  for (const auto& [sequence, id] : state.jobs().by_sequence()) {
    const JobRecord& job = *state.jobs().Find(id);
    JobState& seen = seen_.try_emplace(id, JobState::kPending).first->second;
    if (seen == job.state) continue;
    // A rebuilt head may be behind what was seen and not yet durable.
    NoteEdge(id, seen, job.state);
    seen = job.state;
    trace_ = (trace_ ^ static_cast<uint64_t>(job.state)) * 1099511628211u;
  }
}

// LS-1: a node that ran and could be heard all the time is not given up.
void SimCluster::CheckNodes(const ClusterState& state) {
  if (std::exchange(term_seen_, state.cluster().term) != state.cluster().term) {
    // An attempt whose end was not durable is there again.
    for (Node& node : nodes_) node.closed_with.reset();
  }
  for (Node& node : nodes_) {
    const head::NodeRecord* record = state.nodes().Find(node.id);
    if (record == nullptr) continue;
    CheckClosed(state, *record, node);
    if (record->state == node.seen) continue;
    node.seen = record->state;
    if (record->state != head::NodeState::kDead) continue;
    Fired("node_dead");
    const absl::Duration heard_for = executor_.Monotonic() - node.disturbed_at;
    if (!node.cut && node.daemon != nullptr && !node.daemon->stopped() &&
        heard_for > limits_.node_timeout + kHeardFor) {
      Violate(absl::StrCat("LS-1: ", node.machine->name(),
                           " was given up, though it could be heard for ",
                           absl::FormatDuration(heard_for)));
    }
  }
}

void SimCluster::CheckClosed(const ClusterState& state,
                             const head::NodeRecord& record, Node& node) {
  if (state.nodes().IsOffered(node.id) && !record.drain.has_value() &&
      record.state == head::NodeState::kAlive) {
    node.closed_with.reset();
    return;
  }
  const std::vector<AttemptId> there = state.attempts().OnNode(node.id);
  std::set<AttemptId> now(there.begin(), there.end());
  if (node.closed_with.has_value() &&
      !std::includes(node.closed_with->begin(), node.closed_with->end(),
                     now.begin(), now.end())) {
    Violate(absl::StrCat("DR-1: something new was placed on ", record.name,
                         ", which takes nothing"));
  }
  node.closed_with = std::move(now);
}

bool SimCluster::AllJobsEnded(const ClusterState& state) const {
  for (const auto& [sequence, id] : state.jobs().by_sequence()) {
    if (!head::HasEnded(state.jobs().Find(id)->state)) return false;
  }
  return true;
}

bool SimCluster::AtRest() const {
  if (head_ == nullptr || head_->state() == nullptr || head_->read_only() ||
      !head_->settled() || crashing_.has_value()) {
    return false;
  }
  const ClusterState& state = *head_->state();
  for (const auto& client : clients_) {
    if (client->unanswered() > 0) return false;
  }
  if (!AllJobsEnded(state)) return false;
  for (const Node& node : nodes_) {
    if (node.drain_asked || node.daemon == nullptr || !node.daemon->joined() ||
        node.machine->attempts() > 0 || !node.machine->journal.empty() ||
        !state.nodes().IsOffered(node.id)) {
      return false;
    }
  }
  return state.nodes().Total() == state.nodes().Available();
}

std::string SimCluster::DescribeUnrest() const {
  if (head_ == nullptr || head_->state() == nullptr) {
    return "LV-1: there is no head";
  }
  const ClusterState& state = *head_->state();
  std::string text = AllJobsEnded(state)
                         ? "LK-1: something is left of jobs that ended: "
                         : "LV-1: not every job ends: ";
  for (const auto& client : clients_) {
    if (client->unanswered() > 0) {
      absl::StrAppend(&text, client->unanswered(), " submits unanswered; ");
    }
  }
  for (const auto& [sequence, id] : state.jobs().by_sequence()) {
    const JobRecord& job = *state.jobs().Find(id);
    if (head::HasEnded(job.state)) continue;
    absl::StrAppend(&text, "job ", id.ToText().substr(0, 6), " is ",
                    head::JobStateName(job.state), " (", job.spec->command[0],
                    " x", job.spec->num_workers, ", ", state.ReasonOf(job),
                    "); ");
    if (const AttemptRecord* last = state.attempts().LastOf(id)) {
      absl::StrAppend(&text, "its attempt ", last->number, " is in state ",
                      static_cast<int>(last->state), ", parts in phases");
      for (const head::AttemptPart& part : last->parts) {
        absl::StrAppend(&text, " ", static_cast<int>(part.phase));
      }
      absl::StrAppend(&text, "; ");
    }
  }
  for (const Node& node : nodes_) {
    absl::StrAppend(
        &text, node.machine->name(), ": ", node.machine->attempts(),
        " attempts, ", node.machine->live_ranks(), " ranks, ",
        node.machine->journal.size(), " journal entries, ",
        node.daemon != nullptr && node.daemon->joined() ? "joined"
                                                        : "not joined",
        state.nodes().IsOffered(node.id) ? "" : ", not offered", "; ");
  }
  absl::StrAppend(&text, "available ", state.nodes().Available().ToString(),
                  " of ", state.nodes().Total().ToString());
  return text;
}

// What must be true once everything was healed and time has passed.
void SimCluster::CheckAtRest() {
  const ClusterState& state = *head_->state();
  std::map<std::string, JobId> by_request;
  for (const auto& [sequence, id] : state.jobs().by_sequence()) {
    const JobRecord& job = *state.jobs().Find(id);
    // Of an element the array's row says it.
    const std::string& request =
        id.IsElement()
            ? state.jobs().arrays().Find(id.array())->record.origin.request_id
            : job.origin.request_id;
    const auto [made, first] = by_request.emplace(request, id.array());
    if (!first && (made->second != id.array() || !id.IsElement())) {
      Violate("RQ-1: one request made two jobs");
    }
    counters_.Count(absl::StrCat("ended_", head::JobStateName(job.state)));
    counters_.Count("infra_restart", job.infra_restarts);
    counters_.Count("charged_failure", job.failures);
    const std::string violation = CheckBudget(job);
    if (!violation.empty()) Violate(violation);
  }
  for (const auto& client : clients_) {
    for (const auto& [request, job] : client->acknowledged()) {
      const auto made = by_request.find(request);
      if (made == by_request.end() || made->second != job) {
        Violate(
            absl::StrCat("AK-1: acknowledged job ", job.ToText(), " is lost"));
      } else {
        by_request.erase(made);
      }
    }
    for (const std::string& request : client->abandoned()) {
      by_request.erase(request);
    }
  }
  if (!by_request.empty()) {
    Violate(absl::StrCat("AK-1: ", by_request.size(),
                         " jobs are there that nobody asked for"));
  }
  for (const Node& node : nodes_) {
    if (node.machine->live_ranks() > 0) Violate("LK-1: a rank is left behind");
    if (state.nodes().Find(node.id)->drain.has_value()) {
      Violate("DR-1: " + node.machine->name() + " stays drained");
    }
  }
  const std::string violation = CheckRebuilt(state, disk_, limits_, clock_);
  if (!violation.empty()) Violate(violation);
}

}  // namespace cohort::sim

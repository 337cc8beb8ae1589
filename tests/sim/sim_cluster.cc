#include "tests/sim/sim_cluster.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

#include "head/store/records_codec.h"
#include "head/testing/job_specs.h"
#include "rpc/enum_text.h"
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
// One settled moment in so many is compared with what a restart would find.
constexpr uint64_t kRebuildOneIn = 150;
// A node that could be heard for so long beyond its lease is not given up: it
// needs a second at most to join again after a broken connection, and several
// may break one after the other.
constexpr absl::Duration kHeardFor = absl::Seconds(12);
// One seed in so many has two workers of one name; a restore from a backup.
constexpr uint64_t kOneNameOneIn = 5;
constexpr uint64_t kRestoreOneIn = 3;
// Of the others, a copy of the store that is put back.
constexpr uint64_t kCopyOneIn = 4;

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
    case Break::kWorkerEndsOnItsOwn:
      return Flaw::kEndsOnItsOwn;
    case Break::kWorkerLosesReports:
      return Flaw::kLosesReports;
    default:
      return Flaw::kNone;
  }
}

StoreFlaw StoreFlawOf(Break broken) {
  switch (broken) {
    case Break::kStoreLosesEvents:
      return StoreFlaw::kLosesEvents;
    case Break::kStoreSplitsBatches:
      return StoreFlaw::kSplitsBatches;
    default:
      return StoreFlaw::kNone;
  }
}

// The last of three is another model, in another zone, and keeps off jobs
// that do not tolerate it.
NodeKind KindOf(int index, int machines) {
  const bool is_other = index == 2 && machines == 3;
  NodeKind kind;
  kind.name = absl::StrCat("node-", index);
  kind.host = absl::StrCat("host-", index);
  kind.resources = *ParseResources("CPU=4,GPU=2,memory=8GiB");
  kind.gpus = {kind.name + "-gpu0", kind.name + "-gpu1"};
  kind.gpu_model = is_other ? "Beta" : "Alpha";
  kind.labels["zone"] = is_other ? "b" : "a";
  if (is_other) kind.taint = "dedicated";
  return kind;
}

}  // namespace

SimCluster::SimCluster(SimOptions options)
    : options_(options),
      random_(options.seed),
      clock_(executor_),
      crawling_clock_(clock_),
      start_(executor_.Monotonic()),
      credential_(*rpc::Credential::FromBytes(
          std::string(rpc::Credential::kClusterBytes, 'k'))),
      network_(NetworkOptions(options.faulty), executor_, executor_, random_),
      faulty_(options.faulty) {
  limits_.node_timeout = absl::Seconds(3);
  // So few that they go all the time, also across crashes.
  limits_.history.events.count_max = kEventsKept;
  limits_.history.wait_reasons.count_max = 5;
  limits_.turn_rows_max = 1;
  for (int i = 0; i < options_.machines; ++i) {
    Node& node = nodes_.emplace_back();
    node.id = NodeId::New(random_);
    node.kind = KindOf(i, options_.machines);
    node.disturbed_at = start_;
    node.machine =
        std::make_unique<Machine>(PartsOf(node.kind.name, node.id), executor_,
                                  executor_, random_, counters_, written_);
  }
  if (options.seed % kOneNameOneIn == 0 && nodes_.size() > 1) {
    nodes_[1].kind.name = nodes_[0].kind.name;
    counters_.Count("two_workers_of_one_name");
  }
  for (int i = 0; i < 2; ++i) {
    followers_.push_back(std::make_unique<Follower>(
        world(), absl::StrCat("follower-", i), shown_, [this](uint64_t number) {
          return SimStore::IsTrimmed(disk_, number);
        }));
  }
  for (int i = 0; i < 3; ++i) {
    clients_.push_back(
        std::make_unique<Client>(world(), absl::StrCat("client-", i),
                                 options.broken == Break::kClientForgetsItsId));
  }
  for (int i = 0; i < options_.programs; ++i) {
    programs_.push_back(std::make_unique<Program>(
        world(), absl::StrCat("program-", i),
        options.broken != Break::kProgramIsCutUnseen));
  }
  disk_.SetFate([this](const head::Batch& batch) { return OnWrite(batch); });
  BreakOnPurpose();
}

SimCluster::~SimCluster() {
  for (Node& node : nodes_) {
    node.daemon.reset();
    node.copy_daemon.reset();
  }
  head_.reset();
}

World SimCluster::WorldBy(const Clock& clock) {
  return {.executor = executor_,
          .clock = clock,
          .random = random_,
          .network = network_,
          .credential = credential_,
          .counters = counters_,
          .disk = disk_,
          .checks_durability = options_.broken != Break::kStoreSkipsSyncsUnseen,
          .before_restore = restores_.before(),
          .store_flaw = StoreFlawOf(options_.broken),
          .violate = [this](const std::string& what) { Violate(what); }};
}

Machine::Parts SimCluster::PartsOf(const std::string& name,
                                   const NodeId& node) {
  const auto connect = [this, name](const ProcessId& id) {
    return network_.Connect(name + ".ranks", name + ".sock",
                            rpc::MintRankCredential(credential_, id));
  };
  return {.name = name,
          .resources = nodes_.front().kind.resources,
          .flaw = FlawOf(options_.broken),
          .connect = connect,
          .may_end =
              [this, node](const ProcessId& process) {
                return options_.broken == Break::kStoreSkipsSyncsUnseen
                           ? std::string()
                           : restores_.MayEnd(node, process);
              },
          .may_start =
              [this](const v1::DesiredPlace& starting) {
                return MayStart(starting);
              }};
}

// ---- the plan of a seed ----

v1::JobSpec SimCluster::RandomSpec() {
  v1::JobSpec spec;
  const auto ms = [this](uint64_t most) {
    return absl::StrCat(10 + random_.Below(most));
  };
  const auto command = [&spec](const std::vector<std::string>& words) {
    head::SetCommand(spec, words);
  };
  switch (random_.Below(6)) {
    case 0:
      command({"run", ms(8000)});
      break;
    case 1:
      command({"fail", absl::StrCat(random_.Below(4)), ms(2000), "7"});
      break;
    case 2:
      command({"segv", ms(1000)});
      break;
    case 3:
      command({"stubborn", ms(5000)});
      break;
    default:
      command({"train", absl::StrCat(5 + random_.Below(40)), ms(200)});
  }
  auto& scaling = *spec.mutable_scaling();
  scaling.set_num_workers(1 + static_cast<int>(random_.Below(4)));
  scaling.set_placement_strategy(
      static_cast<v1::PlacementStrategy>(1 + random_.Below(4)));
  const auto cpus = static_cast<int64_t>(1 + random_.Below(2));
  head::SetResource(spec, kCpu, Amount::FromUnits(cpus));
  if (const uint64_t gpu = random_.Below(3); gpu > 0) {
    head::SetResource(spec, kGpu,
                      Amount::FromTenThousandths(gpu == 1 ? 5'000 : 10'000));
  }
  if (scaling.placement_strategy() == v1::PLACEMENT_STRATEGY_STRICT_SPREAD ||
      scaling.placement_strategy() == v1::PLACEMENT_STRATEGY_STRICT_PACK) {
    // So that every gang fits the cluster when it is empty.
    scaling.set_num_workers(std::min(scaling.num_workers(), 2));
  }
  spec.mutable_run()->set_max_failures(static_cast<int>(random_.Below(4)));
  spec.mutable_run()->set_num_to_keep(static_cast<int>(random_.Below(3)));
  spec.set_priority(static_cast<int>(random_.Below(3)) - 1);
  if (spec.launch().command(0) != "train") AddRestart(spec);
  if (random_.Below(2) == 0) AddWhere(spec);
  AddTimes(spec);
  AddOrder(spec);
  return spec;
}

// Ranks that live and fail one by one; a trainer's do not.
void SimCluster::AddRestart(v1::JobSpec& spec) {
  switch (random_.Below(3)) {
    case 0:
      counters_.Count("restart_one");
      spec.mutable_run()->set_restart(v1::RESTART_POLICY_ONE);
      break;
    case 1:
      counters_.Count("restart_none");
      spec.mutable_run()->set_restart(v1::RESTART_POLICY_NONE);
      spec.mutable_run()->clear_max_failures();
      break;
    default:
      break;
  }
}

// Arrays, and jobs that wait for a person; whom a job comes after is
// chosen when it is submitted.
void SimCluster::AddOrder(v1::JobSpec& spec) {
  if (random_.Below(8) == 0) {
    counters_.Count("array");
    constexpr const char* kArrays[] = {"0-3%2", "1,5-6", "0-119%6"};
    const uint64_t kind = random_.Below(3);
    spec.set_array(kArrays[kind]);
    spec.mutable_scaling()->set_num_workers(1);
    // More elements than a decision has rows (BD-1), each soon over.
    if (kind == 2) head::SetCommand(spec, {"run", "20"});
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
    if (!job.row.held() || head::HasEnded(job.row.state())) continue;
    if (faulty_ && random_.Below(3) != 0) continue;
    // Of an array some elements, or the whole.
    const bool whole = id.IsElement() && id.index() % 2 == 0;
    if (whole) counters_.Count("array_released");
    clients_[random_.Below(clients_.size())]->Release(whole ? id.array() : id);
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
      head::SetTopology(spec, "zone", true);
      break;
    default:
      head::SetTopology(spec, "host", random_.Below(2) == 0);
  }
}

void SimCluster::AddTimes(v1::JobSpec& spec) {
  v1::RunConfig& run = *spec.mutable_run();
  const auto up_to = [this](uint64_t ms) {
    return static_cast<int64_t>(random_.Below(ms)) * 1000;
  };
  if (random_.Below(4) == 0) run.set_time_limit_us(100'000 + up_to(6000));
  if (random_.Below(3) == 0) run.set_grace_us(up_to(4000));
  if (random_.Below(8) == 0) spec.set_start_in_us(up_to(20'000));
  run.set_retry_delay_us(up_to(3000));
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
  for (int i = 0; i < 12; ++i) {
    Client& client = *clients_[random_.Below(clients_.size())];
    executor_.PostAfter(some_time(), [&client] { client.ResizeOne(); });
  }
  executor_.PostAfter(absl::Seconds(2), [this] { ReleaseTheHeld(); });
  followers_[0]->Start();
  executor_.PostAfter(some_time(), [this] { followers_[1]->Start(); });
  if (options_.broken == Break::kRestoreKeepsGeneration ||
      (faulty_ && random_.Below(kRestoreOneIn) == 0)) {
    const absl::Duration backup_at = some_time() * 0.6;
    executor_.PostAfter(backup_at, [this] { TakeBackup(false); });
    executor_.PostAfter(backup_at + some_time() * 0.4,
                        [this] { RestoreBackup(); });
  } else if (options_.broken == Break::kCopyIsFollowed ||
             (faulty_ && random_.Below(kCopyOneIn) == 0)) {
    const absl::Duration copied_at = some_time() * 0.6;
    executor_.PostAfter(copied_at, [this] { TakeBackup(true); });
    executor_.PostAfter(copied_at + some_time() * 0.4,
                        [this] { PutCopyBack(); });
  }
  for (int i = 0; i < 12; ++i) {
    Client& client = *clients_[random_.Below(clients_.size())];
    executor_.PostAfter(some_time(), [&client] { client.LookAtOne(); });
  }
  for (const auto& program : programs_) {
    executor_.PostAfter(some_time() * 0.3,
                        [this, each = program.get()] { each->Start(faulty_); });
  }
}

void SimCluster::BreakOnPurpose() {
  switch (options_.broken) {
    case Break::kStoreSkipsSyncs:
    case Break::kStoreSkipsSyncsUnseen:
      disk_.SkipSyncs();
      break;
    case Break::kHeartbeatsVanish:
      // Behind the invariants' back; again when all else is healed.
      for (const absl::Duration at :
           {absl::Seconds(20), options_.faults_for + absl::Milliseconds(500)}) {
        executor_.PostAfter(at, [this] {
          network_.Partition(nodes_[0].machine->name(), "head");
        });
      }
      break;
    case Break::kRowRots:
      executor_.PostAfter(absl::Seconds(20), [this] {
        if (head_ == nullptr || head_->state() == nullptr) return;
        head::NodeRecord record =
            head_->state()->nodes().records().begin()->second;
        record.node.set_name("somebody else");
        const head::Write write = head::ToWrite(record);
        disk_.Corrupt(write.table, write.key, *write.value);
      });
      break;
    default:
      break;
  }
}

void SimCluster::ReviveTheDead() {
  const absl::Duration now = executor_.Monotonic();
  if (head_ != nullptr && head_->ended()) {
    counters_.Count("head_ended_by_itself");
    KillHead();
  }
  if (head_ == nullptr && now >= head_back_at_) {
    head_ = std::make_unique<HeadDaemon>(
        options_.broken == Break::kHeadClockCrawls ? WorldBy(crawling_clock_)
                                                   : world(),
        limits_);
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
    if (node.copy != nullptr && !node.copy->violation().empty()) {
      Violate(node.copy->violation());
    }
  }
  for (const auto& follower : followers_) {
    if (!follower->violation().empty()) Violate(follower->violation());
  }
  if (head_ == nullptr || head_->stopped()) {
    steady_since_ = executor_.Monotonic();
  }
  for (const auto& client : clients_) {
    if (!client->violation().empty()) Violate(client->violation());
  }
  for (const auto& program : programs_) {
    if (!program->violation().empty()) Violate(program->violation());
  }
  if (head_ == nullptr || head_->state() == nullptr || head_->read_only() ||
      head_->runs() == head_runs_seen_) {
    return;
  }
  head_runs_seen_ = head_->runs();
  const ClusterState& state = *head_->state();
  CheckNodes(state);
  // Whatever moves a job or an attempt is an event.
  const uint64_t next_event = state.cluster().next_event();
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
  const ClusterState& state = *head_->state();
  std::string violation = CheckRebuilt(state, disk_, limits_, clock_);
  if (violation.empty()) violation = CheckWoken(state, state.nodes().index());
  if (violation.empty()) {
    violation = CheckLine(state, [&state](const JobRecord& job) {
      return state.line().Contains(job);
    });
  }
  if (!violation.empty()) Violate(violation);
}

void SimCluster::NoteEdge(const JobId& job, JobState from, JobState to) {
  const std::string edge =
      absl::StrCat("edge_", EnumText(from), "_", EnumText(to));
  counters_.Count(edge);
  Say(absl::StrCat(edge, " ", job.ToText().substr(0, 6)));
}

void SimCluster::NoteJobs(const ClusterState& state) {
  for (const auto& [sequence, id] : state.jobs().by_sequence()) {
    const JobRecord& job = *state.jobs().Find(id);
    JobState& seen = seen_.try_emplace(id, v1::JOB_STATE_PENDING).first->second;
    if (seen == job.row.state()) continue;
    // A rebuilt head may be behind what was seen and not yet durable.
    NoteEdge(id, seen, job.row.state());
    seen = job.row.state();
    trace_ = (trace_ ^ static_cast<uint64_t>(job.row.state())) * 1099511628211u;
  }
}

// LS-1: a node that ran and could be heard all the time is not given up.
void SimCluster::CheckNodes(const ClusterState& state) {
  std::string violation = node_watch_.Check(state);
  if (violation.empty()) violation = epoch_watch_.Check(state);
  if (violation.empty()) violation = device_watch_.Check(state);
  if (violation.empty()) {
    violation = drain_watch_.Check(state, executor_.Monotonic(), steady_since_);
  }
  if (!violation.empty()) Violate(violation);
  for (Node& node : nodes_) {
    const head::NodeRecord* record = state.nodes().Find(node.id);
    if (record == nullptr) continue;
    if (record->state == node.seen) continue;
    node.seen = record->state;
    if (record->state != v1::NODE_STATE_DEAD) continue;
    node.was_dead = true;
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

bool SimCluster::AllJobsEnded(const ClusterState& state) const {
  for (const auto& [sequence, id] : state.jobs().by_sequence()) {
    if (!head::HasEnded(state.jobs().Find(id)->row.state())) return false;
  }
  return true;
}

bool SimCluster::AllProgramsEnded(const ClusterState& state) const {
  for (const auto& program : programs_) {
    if (!program->is_over()) return false;
  }
  return state.drivers().size() == 0;
}

std::vector<const Client*> SimCluster::AllClients() const {
  std::vector<const Client*> all;
  for (const auto& client : clients_) all.push_back(client.get());
  for (const auto& program : programs_) all.push_back(&program->client());
  return all;
}

bool SimCluster::AtRest() const {
  if (head_ == nullptr || head_->state() == nullptr || head_->read_only() ||
      !head_->settled() || crashing_.has_value()) {
    return false;
  }
  const ClusterState& state = *head_->state();
  for (const Client* const client : AllClients()) {
    if (client->unanswered() > 0) return false;
  }
  if (!AllJobsEnded(state) || !AllProgramsEnded(state)) return false;
  if (!state.orphans().all().empty() || state.cluster().settling())
    return false;
  for (const auto& follower : followers_) {
    if (follower->last() + 1 != state.cluster().next_event()) return false;
  }
  for (const Node& node : nodes_) {
    if (node.copy != nullptr || node.drain_asked || node.daemon == nullptr ||
        !node.daemon->joined() || node.machine->attempts() > 0 ||
        !node.machine->places.empty() || !state.nodes().IsOffered(node.id)) {
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
  absl::StrAppend(&text, state.drivers().size(), " programs are known; ");
  for (const Client* const client : AllClients()) {
    if (client->unanswered() > 0) {
      absl::StrAppend(&text, client->unanswered(), " submits unanswered; ");
    }
  }
  for (const auto& [sequence, id] : state.jobs().by_sequence()) {
    const JobRecord& job = *state.jobs().Find(id);
    if (head::HasEnded(job.row.state())) continue;
    absl::StrAppend(
        &text, "job ", id.ToText().substr(0, 6), " is ",
        EnumText(job.row.state()), " (", job.spec->launch().command()[0], " x",
        job.spec->scaling().num_workers(), ", ", state.ReasonOf(job), "); ");
    if (const AttemptRecord* last = state.attempts().LastOf(id)) {
      absl::StrAppend(&text, "its attempt ", last->number, " is in state ",
                      static_cast<int>(last->state), ", places in phases");
      for (const head::Place& place : last->places) {
        absl::StrAppend(&text, " ", static_cast<int>(place.phase));
      }
      absl::StrAppend(&text, ", processes in states");
      for (const head::Process& process : last->processes) {
        absl::StrAppend(&text, " ", process.waits() ? "waits" : "",
                        static_cast<int>(process.state));
      }
      absl::StrAppend(&text, "; ");
    }
  }
  for (const Node& node : nodes_) {
    absl::StrAppend(
        &text, node.machine->name(), ": ", node.machine->attempts(),
        " attempts, ", node.machine->live_ranks(), " ranks, ",
        node.machine->places.size(), " places, ",
        node.daemon != nullptr && node.daemon->joined() ? "joined"
                                                        : "not joined",
        state.nodes().IsOffered(node.id) ? "" : ", not offered", "; ");
  }
  absl::StrAppend(&text, state.orphans().all().size(), " orphans; ");
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
    const std::string& request = id.IsElement() ? state.jobs()
                                                      .arrays()
                                                      .Find(id.array())
                                                      ->record.row.origin()
                                                      .request_id()
                                                : job.row.origin().request_id();
    const auto [made, first] = by_request.emplace(request, id.array());
    if (!first && (made->second != id.array() || !id.IsElement())) {
      Violate("RQ-1: one request made two jobs");
    }
    counters_.Count(absl::StrCat("ended_", EnumText(job.row.state())));
    counters_.Count("infra_restart", job.row.infra_restarts());
    counters_.Count("charged_failure", job.row.failures());
    const std::string violation = CheckBudget(job, !spoken_jobs_.contains(id));
    if (!violation.empty()) Violate(violation);
  }
  for (const Client* const client : AllClients()) {
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
    if (state.nodes().Find(node.id)->node.has_drain()) {
      Violate("DR-1: " + node.machine->name() + " stays drained");
    }
  }
  const std::string violation = CheckRebuilt(state, disk_, limits_, clock_);
  if (!violation.empty()) Violate(violation);
}

}  // namespace cohort::sim

#include "tests/sim/sim_cluster.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cohort::sim {
namespace {

using head::AttemptRecord;
using head::AttemptState;
using head::ClusterState;
using head::JobRecord;
using head::JobState;

// Faults come about this often: several during each job, and time to recover
// from some before the next.
constexpr absl::Duration kFaultEvery = absl::Milliseconds(700);
// One append in so many kills the head before its effects leave.
constexpr uint64_t kCrashAfterAppendOneIn = 40;

rpc::LoopbackOptions NetworkOptions() {
  rpc::LoopbackOptions options;
  options.break_probability = 0.002;
  options.partition_timeout = absl::Seconds(5);
  return options;
}

}  // namespace

SimCluster::SimCluster(SimOptions options)
    : options_(options),
      random_(options.seed),
      start_(executor_.Monotonic()),
      credential_(*rpc::Credential::FromBytes(
          std::string(rpc::Credential::kClusterBytes, 'k'))),
      network_(NetworkOptions(), executor_, executor_, random_) {
  limits_.node_timeout = absl::Seconds(3);
  for (int i = 0; i < options_.machines; ++i) {
    Node& node = nodes_.emplace_back();
    node.id = NodeId::New(random_);
    const std::string name = absl::StrCat("node-", i);
    node.machine = std::make_unique<Machine>(
        name, executor_, random_, counters_, [this, name](const AttemptId& id) {
          return network_.Connect(name + ".ranks", name + ".sock",
                                  rpc::MintRankCredential(credential_, id));
        });
    node.gpus = 2;
    node.resources = *ParseResources("CPU=4,GPU=2,memory=8GiB");
  }
  for (int i = 0; i < 3; ++i) {
    clients_.push_back(
        std::make_unique<Client>(world(), absl::StrCat("client-", i)));
  }
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
  return spec;
}

void SimCluster::Plan() {
  for (int i = 0; i < options_.jobs; ++i) {
    Client& client = *clients_[random_.Below(clients_.size())];
    const absl::Duration when = options_.faults_for * 0.8 * random_.Double();
    executor_.PostAfter(when, [&client, i, spec = RandomSpec()] {
      client.Submit(absl::StrCat("job-", i), spec);
    });
  }
  for (int i = 0; i < 4; ++i) {
    Client& client = *clients_[random_.Below(clients_.size())];
    executor_.PostAfter(options_.faults_for * random_.Double(),
                        [&client] { client.StopOne(); });
    executor_.PostAfter(options_.faults_for * random_.Double(),
                        [&client] { client.SubmitNonsense(); });
    executor_.PostAfter(options_.faults_for * random_.Double(),
                        [&client] { client.SubmitUnderUsedId(); });
  }
}

// ---- faults ----

void SimCluster::KillHead() {
  if (head_ == nullptr) return;
  head_.reset();
  head_back_at_ =
      executor_.Monotonic() + absl::Milliseconds(20 + random_.Below(3000));
}

void SimCluster::Fault() {
  Node& node = nodes_[random_.Below(nodes_.size())];
  const auto fired = [this](const std::string& name) {
    counters_.Count(name);
    Say(name);
  };
  switch (random_.Below(13)) {
    case 0:
      if (head_ != nullptr) fired("head_killed");
      KillHead();
      break;
    case 1:
      if (node.daemon == nullptr) break;
      fired("worker_killed");
      node.daemon.reset();
      node.back_at =
          executor_.Monotonic() + absl::Milliseconds(20 + random_.Below(6000));
      break;
    case 2:
      if (node.machine->KillAKeeper()) fired("keeper_killed");
      break;
    case 3:
      if (node.machine->KillARank()) fired("rank_killed");
      break;
    case 4:
      fired("machine_rebooted");
      node.daemon.reset();
      node.machine->Reboot();
      node.back_at =
          executor_.Monotonic() + absl::Milliseconds(500 + random_.Below(9000));
      break;
    case 5: {
      fired("partitioned");
      const std::string name = node.machine->name();
      network_.Partition(name, "head");
      executor_.PostAfter(absl::Milliseconds(random_.Below(12'000)),
                          [this, name] { network_.Heal(name, "head"); });
      break;
    }
    case 6:
      fired("connections_broken");
      network_.BreakAll(random_.Below(2) == 0 ? "head" : node.machine->name());
      break;
    case 7:
    case 8:
      fired("append_fails_landed");
      disk_.FailAfter(static_cast<int>(random_.Below(4)),
                      head::AppendFault::kLanded);
      break;
    case 9:
      fired("append_fails_not_landed");
      disk_.FailAfter(static_cast<int>(random_.Below(4)),
                      head::AppendFault::kNotLanded);
      break;
    case 10:
      if (head_ == nullptr || head_->stopped()) break;
      // Longer than any lease: nobody may die of it (LS-1).
      fired("head_paused");
      head_->Stop();
      executor_.PostAfter(absl::Milliseconds(500 + random_.Below(9000)),
                          [this] {
                            if (head_ != nullptr && head_->stopped()) {
                              head_->Continue();
                            }
                          });
      break;
    case 11:
      fired("disk_full");
      disk_.Refuse();
      executor_.PostAfter(absl::Milliseconds(random_.Below(4000)),
                          [this] { disk_.Heal(); });
      break;
    default:
      kill_after_append_ = true;
      break;
  }
}

void SimCluster::HealEverything() {
  faulty_ = false;
  kill_after_append_ = false;
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
    head_ = std::make_unique<HeadDaemon>(world(), disk_, limits_);
    counters_.Count("head_started");
  }
  for (Node& node : nodes_) {
    if (node.daemon != nullptr || now < node.back_at) continue;
    node.daemon = std::make_unique<WorkerDaemon>(
        world(), *node.machine, node.id, node.resources, node.gpus);
  }
}

// ---- running ----

SimResult SimCluster::Run() {
  Plan();
  absl::Duration next_fault = start_ + absl::Seconds(2);
  const absl::Duration heal_at = start_ + options_.faults_for;
  const absl::Duration end_at = heal_at + options_.rest_within;
  // Wakes the loop, so that revivals and faults come at their time.
  absl::AnyInvocable<void()> tick = [this, &tick] {
    executor_.PostAfter(absl::Milliseconds(100), [&tick] { tick(); });
  };
  tick();
  while (violation_.empty()) {
    ReviveTheDead();
    if (faulty_ && executor_.Monotonic() >= next_fault) {
      next_fault += kFaultEvery * (0.2 + 1.6 * random_.Double());
      Fault();
    }
    if (faulty_ && executor_.Monotonic() >= heal_at) HealEverything();
    if (!faulty_ && AtRest()) break;
    if (executor_.Monotonic() >= end_at) {
      Violate(absl::StrCat("not at rest: ", DescribeUnrest()));
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
  counters_.Count("append_failed", disk_.faults_fired());
  return {.violation = violation_,
          .trace = trace_,
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
  const int appends = disk_.appends();
  if (appends != appends_seen_) {
    appends_seen_ = appends;
    trace_ = (trace_ ^ static_cast<uint64_t>(
                           absl::ToInt64Nanoseconds(executor_.Monotonic()))) *
             1099511628211u;
    // The batch is durable and none of its effects has left.
    if (faulty_ && head_ != nullptr &&
        (kill_after_append_ || random_.Below(kCrashAfterAppendOneIn) == 0)) {
      kill_after_append_ = false;
      counters_.Count("head_killed_before_sending");
      Say("head_killed_before_sending");
      KillHead();
    }
  }
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
  if (head_ == nullptr || head_->state() == nullptr || head_->read_only()) {
    return;
  }
  const ClusterState& state = *head_->state();
  CheckJobs(state);
  CheckAttempts(state);
  CheckHolds(state);
}

void SimCluster::NoteEdge(const JobId& job, JobState from, JobState to) {
  const std::string edge = absl::StrCat("edge_", head::JobStateName(from), "_",
                                        head::JobStateName(to));
  counters_.Count(edge);
  Say(absl::StrCat(edge, " ", job.ToText().substr(0, 6)));
}

void SimCluster::CheckJobs(const ClusterState& state) {
  for (const auto& [sequence, id] : state.jobs().by_sequence()) {
    const JobRecord& job = *state.jobs().Find(id);
    const auto [entry, is_new] = seen_.try_emplace(id);
    Seen& seen = entry->second;
    if (seen.state != job.state) {
      // A rebuilt head may be behind what was seen and not yet durable; ended
      // is durable once a client could know it, so it is checked at rest.
      NoteEdge(id, seen.state, job.state);
      seen.state = job.state;
      trace_ = (trace_ ^ static_cast<uint64_t>(job.state)) * 1099511628211u;
    }
    if (!job.checkpoints.empty()) {
      const int64_t epoch = job.checkpoints.back().epoch;
      if (epoch > job.epoch) {
        Violate(absl::StrCat("CK-1: a checkpoint of epoch ", epoch,
                             " in a job of epoch ", job.epoch));
      }
    }
    if (job.spec.max_failures >= 0 &&
        job.failures > job.spec.max_failures + 1) {
      Violate(absl::StrCat("JB-2: ", job.failures, " failures charged of ",
                           job.spec.max_failures));
    }
    if (job.attempts > seen.attempts) seen.attempts = job.attempts;
  }
}

void SimCluster::CheckAttempts(const ClusterState& state) {
  std::map<JobId, int> open;
  for (const auto& [id, attempt] : state.attempts().all()) {
    if (attempt.state == AttemptState::kEnded) continue;
    if (++open[attempt.job] > 1) {
      Violate(absl::StrCat("JB-3: job ", attempt.job.ToText(),
                           " has two attempts"));
    }
    // PL-1: whole.
    size_t ranks = 0;
    for (const head::AttemptPart& part : attempt.parts) {
      ranks += part.ranks.size();
    }
    const JobRecord* job = state.jobs().Find(attempt.job);
    if (job == nullptr || ranks != static_cast<size_t>(job->spec.num_workers)) {
      Violate(absl::StrCat("PL-1: attempt ", id.ToHex(), " holds ", ranks,
                           " ranks"));
    }
  }
}

// PL-2: what is held of a node is not more than it has, device by device.
void SimCluster::CheckHolds(const ClusterState& state) {
  std::map<NodeId, std::map<std::string, int64_t>> devices;
  std::map<NodeId, ResourceSet> sums;
  for (const auto& [id, attempt] : state.attempts().all()) {
    if (attempt.state == AttemptState::kEnded) continue;
    for (const head::AttemptPart& part : attempt.parts) {
      if (head::IsOver(part)) continue;
      sums[part.node].Add(part.resources);
      for (const auto& [gpu, amount] : part.devices) {
        devices[part.node][gpu] += amount.ten_thousandths();
      }
    }
  }
  for (const auto& [node, held] : devices) {
    for (const auto& [gpu, amount] : held) {
      if (amount > Amount::kScale) Violate("PL-2: " + gpu + " is held twice");
    }
  }
  for (const auto& [node, sum] : sums) {
    const head::NodeRecord* record = state.nodes().Find(node);
    if (record == nullptr || !record->resources.Fits(sum)) {
      Violate("PL-2: more is held of a node than it has: " + sum.ToString());
    }
  }
}

bool SimCluster::AtRest() const {
  if (head_ == nullptr || head_->state() == nullptr || head_->read_only()) {
    return false;
  }
  const ClusterState& state = *head_->state();
  for (const auto& client : clients_) {
    if (client->unanswered() > 0) return false;
  }
  for (const auto& [sequence, id] : state.jobs().by_sequence()) {
    if (!head::HasEnded(state.jobs().Find(id)->state)) return false;
  }
  for (const Node& node : nodes_) {
    if (node.daemon == nullptr || !node.daemon->joined() ||
        node.machine->attempts() > 0 || !node.machine->journal.empty() ||
        !state.nodes().IsOffered(node.id)) {
      return false;
    }
  }
  return state.nodes().Total() == state.nodes().Available();
}

std::string SimCluster::DescribeUnrest() const {
  if (head_ == nullptr || head_->state() == nullptr) return "no head";
  const ClusterState& state = *head_->state();
  std::string text;
  for (const auto& client : clients_) {
    if (client->unanswered() > 0) {
      absl::StrAppend(&text, client->unanswered(), " submits unanswered; ");
    }
  }
  for (const auto& [sequence, id] : state.jobs().by_sequence()) {
    const JobRecord& job = *state.jobs().Find(id);
    if (head::HasEnded(job.state)) continue;
    absl::StrAppend(&text, "job ", id.ToText().substr(0, 6), " is ",
                    head::JobStateName(job.state), " (", job.spec.command[0],
                    " x", job.spec.num_workers, ", ", state.ReasonOf(job),
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
  std::set<JobId> jobs;
  for (const auto& client : clients_) {
    for (const auto& [request, job] : client->acknowledged()) {
      if (!jobs.insert(job).second) {
        Violate("RQ-1: two requests were given one job");
      }
      if (state.jobs().Find(job) == nullptr) {
        Violate(absl::StrCat("acknowledged job ", job.ToText(), " is lost"));
      }
    }
  }
  if (jobs.size() != state.jobs().size()) {
    Violate(absl::StrCat("RQ-1: ", jobs.size(), " requests made ",
                         state.jobs().size(), " jobs"));
  }
  for (const auto& [sequence, id] : state.jobs().by_sequence()) {
    const JobRecord& job = *state.jobs().Find(id);
    counters_.Count(absl::StrCat("ended_", head::JobStateName(job.state)));
    counters_.Count("infra_restart", job.infra_restarts);
    counters_.Count("charged_failure", job.failures);
    const int well = job.state == JobState::kSucceeded ? 1 : 0;
    if (job.state == JobState::kFailed && job.spec.max_failures >= 0 &&
        job.failures <= job.spec.max_failures) {
      Violate(absl::StrCat("JB-2: job ", id.ToText(), " failed with budget: ",
                           job.failures, " of ", job.spec.max_failures));
    }
    if (job.state != JobState::kStopped &&
        job.attempts > job.failures + job.infra_restarts + well) {
      Violate(absl::StrCat("JB-2: ", job.attempts, " attempts, ", job.failures,
                           " failures, ", job.infra_restarts,
                           " infra restarts"));
    }
  }
  for (const Node& node : nodes_) {
    if (node.machine->live_ranks() > 0) Violate("a rank is left behind");
  }
}

}  // namespace cohort::sim

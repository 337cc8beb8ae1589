#include "head/autoscaler/autoscaler.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/duration_text.h"
#include "common/log.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/autoscaler/scale_input.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

// Before a node is taken away, it is ended in good order.
constexpr absl::Duration kLastMoments = absl::Seconds(5);

// Time passes without a change: idle nodes become old.
constexpr absl::Duration kLookPeriod = absl::Seconds(1);
// Changes that come together are looked at once.
constexpr absl::Duration kPokeDelay = absl::Milliseconds(5);
// Between two plans, by what the last one took: a tenth of a thread.
constexpr int kRestFactor = 9;
// May be on their way at once, however few are there, as in Ray.
constexpr size_t kLaunchingMin = 5;
// Rows of instances that are moved in one turn of the strand: some
// milliseconds.
constexpr size_t kMovedRowsMax = 200;
constexpr int kTriesMax = 3;
constexpr size_t kReasonBytesMax = 512;
constexpr absl::Duration kListDelay = absl::Seconds(30);

// Whether a try that failed gets an event: the first, second, fourth, eighth,
// so that one that fails for ever does not push out all others.
bool IsTold(int tries) { return (tries & (tries - 1)) == 0; }

}  // namespace

Autoscaler::Autoscaler(AutoscalerOptions options, StateHost& host,
                       NodeService& nodes, LastLogs* last_logs,
                       Provider* provider, Executor& strand, Executor& planning,
                       const Clock& clock)
    : options_(options),
      host_(host),
      provider_(provider),
      strand_(strand),
      planning_(planning),
      clock_(clock),
      health_(clock),
      farewells_(host, nodes, last_logs, clock, [this] { Poke(); }),
      self_(std::make_shared<Autoscaler*>(this)) {}

Autoscaler::~Autoscaler() { *self_ = nullptr; }

void Autoscaler::StateLoaded() {
  loaded_at_ = clock_.Monotonic();
  ++life_;
  draft_.reset();
  has_settled_ = false;
  was_listed_ = false;
  // What was under way goes on or not; either way its answer is looked up in
  // the new state.
  again_at_.clear();
  not_ended_.clear();
  joined_.clear();
  farewells_.Clear();
  fleet_seen_ = nodes_seen_ = 0;
  look_at_ = absl::ZeroDuration();
}

void Autoscaler::Poke() {
  if (provider_ == nullptr || std::exchange(is_poked_, true)) return;
  const absl::Duration rest = draft_ != nullptr || has_moves_left_
                                  ? absl::ZeroDuration()
                                  : not_before_ - clock_.Monotonic();
  strand_.PostAfter(std::max(kPokeDelay, rest), [self = self_] {
    if (*self == nullptr) return;
    (*self)->is_poked_ = false;
    (*self)->Look();
  });
}

void Autoscaler::Tick() {
  if (provider_ == nullptr) return;
  Look();
}

// ---- the plan ----

void Autoscaler::Look() {
  const absl::StatusOr<ClusterState*> writable =
      host_.Writable(Admission::kNode);
  if (!writable.ok()) return;
  ClusterState& state = **writable;
  if (!state.fleet().file().has_value()) return;
  NoteJoins(state);
  if (!options_.dry_run) {
    Watch(state);
    Drive(state);
  }
  const absl::Duration now = clock_.Monotonic();
  if (!is_listing_ && (!was_listed_ || !said_gone_.empty() ||
                       now >= listed_at_ + options_.list_period)) {
    List();
  }
  if (!was_listed_ || !HasSettled(state)) return;
  if (draft_ != nullptr) return Carry(state);
  if (is_planning_ || now < not_before_) return;
  const bool changed = state.nodes().version() != nodes_seen_ ||
                       state.fleet().version() != fleet_seen_ ||
                       state.line().size() != line_seen_;
  if (!changed && now < look_at_) return;
  nodes_seen_ = state.nodes().version();
  fleet_seen_ = state.fleet().version();
  line_seen_ = state.line().size();
  look_at_ = now + kLookPeriod;
  is_planning_ = true;
  FillIn(std::make_shared<ScaleDraft>(state), life_, FillStep::kNodes);
}

// In several turns of the strand, so that none is long.  What changes between
// them is as what changes while the plan is made.
void Autoscaler::FillIn(const std::shared_ptr<ScaleDraft>& draft, uint64_t life,
                        FillStep step) {
  const absl::StatusOr<ClusterState*> state = host_.Writable(Admission::kNode);
  if (!state.ok() || life != life_) {
    is_planning_ = false;
    return;
  }
  ScaleInput& input = draft->input;
  switch (step) {
    case FillStep::kNodes:
      for (const v1::NodeType& type : draft->file().node_types()) {
        input.types.push_back(
            {.type = &type, .backs_off = health_.BacksOff(type.name())});
      }
      AddNodes(**state, input);
      break;
    case FillStep::kDemand:
      AddInstances(**state, input);
      AddDemand(**state, input);
      SetLimits(draft->file(), input);
      break;
    case FillStep::kReleases:
      if (!input.asks.empty() && input.launch_time > absl::ZeroDuration()) {
        AddReleases(**state, clock_.Wall(), input);
      }
      return Plan(draft, life);
  }
  strand_.Post([self = self_, draft, life, step] {
    if (*self == nullptr) return;
    (*self)->FillIn(
        draft, life,
        step == FillStep::kNodes ? FillStep::kDemand : FillStep::kReleases);
  });
}

void Autoscaler::SetLimits(const ClusterFile& file, ScaleInput& input) const {
  input.launch_time = LaunchTime(input);
  input.max_nodes = file.max_nodes();
  input.launching_max =
      std::max(kLaunchingMin,
               static_cast<size_t>(file.upscaling_speed() *
                                   static_cast<double>(input.nodes.size())));
}

void Autoscaler::Plan(const std::shared_ptr<ScaleDraft>& draft, uint64_t life) {
  planning_.Post(
      [draft, life, self = self_, &strand = strand_, &clock = clock_] {
        draft->Make(clock);
        strand.Post([draft, life, self] {
          if (*self != nullptr) (*self)->OnPlanned(draft, life);
        });
      });
}

void Autoscaler::OnPlanned(const std::shared_ptr<ScaleDraft>& draft,
                           uint64_t life) {
  is_planning_ = false;
  not_before_ = clock_.Monotonic() + kRestFactor * draft->took();
  const absl::StatusOr<ClusterState*> state = host_.Writable(Admission::kNode);
  if (!state.ok() || life != life_) return;
  // The last one has texts for each ask: they are freed where that harms
  // nobody.
  planning_.Post(
      [last = std::exchange(plan_, {draft, &draft->plan()})] { (void)last; });
  if (!options_.dry_run) {
    draft_ = draft;
    Carry(**state);
  }
  Poke();  // something may have changed meanwhile
}

void Autoscaler::Carry(ClusterState& state) {
  if (!draft_->IsWanted(state)) {
    draft_.reset();
    look_at_ = absl::ZeroDuration();
    return Poke();
  }
  Transition transition;
  if (draft_->Carry(state, transition)) draft_.reset();
  if (!transition.empty()) host_.Submit(std::move(transition));
  if (draft_ != nullptr) Poke();
}

// A node that this head has not heard of yet has room that no plan sees.
bool Autoscaler::HasSettled(const ClusterState& state) {
  if (has_settled_) return true;
  has_settled_ =
      clock_.Monotonic() >= loaded_at_ + options_.settle_time ||
      std::all_of(state.nodes().records().begin(),
                  state.nodes().records().end(), [&](const auto& each) {
                    return each.second.state == v1::NODE_STATE_DEAD ||
                           state.nodes().IsOffered(each.first);
                  });
  return has_settled_;
}

absl::Duration Autoscaler::LaunchTime(const ScaleInput& input) const {
  absl::Duration time;
  for (const ScaleType& each : input.types) {
    const auto health = health_.types().find(each.type->name());
    if (each.backs_off || each.type->max() == 0 ||
        health == health_.types().end() ||
        health->second.usual == absl::ZeroDuration()) {
      continue;
    }
    time = time == absl::ZeroDuration() ? health->second.usual
                                        : std::min(time, health->second.usual);
  }
  return time;
}

// Those that are there, and since when each is idle.
void Autoscaler::AddNodes(const ClusterState& state, ScaleInput& input) {
  const absl::Duration now = clock_.Monotonic();
  std::map<NodeId, Idle> idle;
  held_for_.clear();
  for (const auto& [id, record] : state.nodes().records()) {
    std::shared_ptr<const NodeSnapshot> snapshot =
        state.nodes().index().Share(id);
    if (snapshot == nullptr) continue;  // it is dead
    ScaleNode& node = input.nodes.emplace_back();
    node.node = std::move(snapshot);
    const InstanceRecord* const instance = state.fleet().OfNode(id);
    if (instance == nullptr) continue;
    if (instance->state() != v1::INSTANCE_STATE_JOINED) {
      // It is on its way out, and counts by its instance.
      input.nodes.pop_back();
      continue;
    }
    node.type = instance->node_type();
    if (!state.nodes().IsOffered(id)) continue;
    if (!state.nodes().IsEmpty(id)) {
      farewells_.Forget(id);
      continue;
    }
    const uint64_t changed_at = state.nodes().index().ChangedAt(id);
    const auto known = idle_.find(id);
    if (known != idle_.end() && known->second.changed_at == changed_at) {
      idle[id] = known->second;
    } else {
      // Something may have run there since the last plan looked.
      farewells_.Forget(id);
      idle[id] = {.since = now, .changed_at = changed_at};
    }
    node.may_go = MayGo(id, state.fleet().FindType(node.type),
                        now - idle[id].since, state);
  }
  idle_ = std::move(idle);
}

// Whether it was idle for long enough, and nobody has to fetch anything there.
bool Autoscaler::MayGo(const NodeId& node, const v1::NodeType* type,
                       absl::Duration idle, const ClusterState& state) {
  if (state.HasDeadlineAhead(node)) return false;
  // Null: it is in the file no more.
  if (type != nullptr && idle < absl::Microseconds(type->idle_timeout_us())) {
    return false;
  }
  if (idle >= absl::Microseconds(state.fleet().file()->data_timeout_us())) {
    return true;
  }
  const std::vector<JobId>* const results = farewells_.ResultsOn(node);
  if (results == nullptr) return false;
  if (!results->empty()) held_for_[node] = *results;
  return results->empty();
}

// ---- what is done about each instance ----

void Autoscaler::Drive(ClusterState& state) {
  std::vector<InstanceId> ids;
  const absl::Duration now = clock_.Monotonic();
  for (const auto& [id, instance] : state.fleet().instances()) {
    const auto again = again_at_.find(id);
    if (busy_.contains(id) ||
        (again != again_at_.end() && now < again->second)) {
      continue;
    }
    ids.push_back(id);
  }
  Transition transition;
  has_moves_left_ = false;
  for (const InstanceId& id : ids) {
    has_moves_left_ = transition.row_count() >= kMovedRowsMax;
    if (has_moves_left_) break;
    DriveOne(id, state, transition);
  }
  if (!transition.empty()) host_.Submit(std::move(transition));
  if (has_moves_left_) Poke();
}

void Autoscaler::DriveOne(const InstanceId& id, ClusterState& state,
                          Transition& transition) {
  const InstanceRecord& instance = *state.fleet().Find(id);
  const auto self = self_;
  switch (instance.state()) {
    case v1::INSTANCE_STATE_QUEUED:
      if (options_.dry_run) return;
      if (state.fleet().FindType(instance.node_type()) == nullptr) {
        return state.EndInstance(
            id, "its node type is not in the cluster file any more",
            transition);
      }
      if (launching_ >= options_.launches_max) return;
      busy_.insert(id);
      ++launching_;
      state.MoveInstance(id, v1::INSTANCE_STATE_REQUESTED, "", transition);
      return transition.Then([self, id](const absl::Status& status) {
        if (*self == nullptr) return;
        if (status.ok()) return (*self)->Launch(id);
        --(*self)->launching_;
        (*self)->busy_.erase(id);
      });
    case v1::INSTANCE_STATE_REQUESTED:
      // The provider may have it by now: that is looked up first.
      if (!was_listed_) return;
      busy_.insert(id);
      ++launching_;
      return Launch(id);
    case v1::INSTANCE_STATE_ALLOCATED: {
      const absl::Duration timeout =
          absl::Microseconds(state.fleet().file()->launch_timeout_us());
      if (clock_.Wall() - FromMicros(instance.allocated_at_us()) < timeout) {
        return;
      }
      const std::string why = absl::StrCat("its node has not joined within ",
                                           DurationToText(timeout));
      NoteFailure(instance, why);
      return state.MoveInstance(id, v1::INSTANCE_STATE_TERMINATING, why,
                                transition);
    }
    case v1::INSTANCE_STATE_JOINED: {
      const auto node = IdOf<NodeId>(instance.node_id());
      const NodeRecord* const record = state.nodes().Find(node);
      if (record != nullptr && record->state != v1::NODE_STATE_DEAD) return;
      return GiveUp(id, "its node is lost", state, transition);
    }
    case v1::INSTANCE_STATE_DRAINING: {
      const auto node = IdOf<NodeId>(instance.node_id());
      const NodeRecord* const record = state.nodes().Find(node);
      if (record != nullptr && record->state != v1::NODE_STATE_DEAD) {
        if (!state.nodes().IsEmpty(node)) return;
        return EndDrained(id, instance, state, transition);
      }
      return GiveUp(id, "", state, transition);
    }
    case v1::INSTANCE_STATE_TERMINATING:
      // Whether the provider has it is not known: its next list says so.
      if (instance.provider_id().empty()) return;
      busy_.insert(id);
      return transition.Then([self, id](const absl::Status& status) {
        if (*self == nullptr) return;
        if (status.ok()) return (*self)->Terminate(id);
        (*self)->busy_.erase(id);
      });
    default:
      return;
  }
}

// Nothing runs there: what is left to do before it may go.
void Autoscaler::EndDrained(const InstanceId& id,
                            const InstanceRecord& instance, ClusterState& state,
                            Transition& transition) {
  const auto node = IdOf<NodeId>(instance.node_id());
  const bool are_kept = farewells_.AreLogsKept(node);
  const std::vector<JobId>* const results = farewells_.ResultsOn(node);
  if (!are_kept || results == nullptr) return;
  // One that is taken away: until then they can be fetched.
  const v1::Drain& drain = state.nodes().Find(node)->node.drain();
  if (!results->empty() && drain.has_deadline() &&
      clock_.Wall() + kLastMoments < rpc::FromWire(drain.deadline())) {
    return;
  }
  GiveUp(id, "", state, transition);
}

void Autoscaler::GiveUp(const InstanceId& id, const std::string& why,
                        ClusterState& state, Transition& transition) {
  const auto node = IdOf<NodeId>(state.fleet().Find(id)->node_id());
  const NodeFarewells::Losses lost = farewells_.LostWith(node);
  for (const JobId& job : lost.jobs) {
    state.NoteLostResults(job, node, lost.are_known, transition);
  }
  farewells_.Forget(node);
  state.MoveInstance(id, v1::INSTANCE_STATE_TERMINATING, why, transition);
}

template <typename Result>
absl::AnyInvocable<void(Result) &&> Autoscaler::Guarded(
    absl::AnyInvocable<void(Result) &&> task) {
  return [self = self_, task = std::move(task)](Result result) mutable {
    if (*self != nullptr) std::move(task)(std::move(result));
  };
}

void Autoscaler::Launch(const InstanceId& id) {
  const absl::StatusOr<ClusterState*> state = host_.Writable(Admission::kNode);
  const InstanceRecord* const instance =
      state.ok() ? (*state)->fleet().Find(id) : nullptr;
  const v1::NodeType* const type =
      instance == nullptr ? nullptr
                          : (*state)->fleet().FindType(instance->node_type());
  if (type == nullptr) {
    --launching_;
    busy_.erase(id);
    if (instance == nullptr) return;
    Transition transition;
    (*state)->MoveInstance(id, v1::INSTANCE_STATE_TERMINATING,
                           "its node type is not in the cluster file any more",
                           transition);
    return host_.Submit(std::move(transition));
  }
  provider_->Launch(
      (*state)->fleet().file()->provider(),
      {.instance = id,
       .type = *type,
       .cluster = IdOf<ClusterId>((*state)->cluster().cluster_id())},
      Guarded<absl::StatusOr<std::string>>(
          [this, id](const absl::StatusOr<std::string>& got) {
            OnLaunched(id, got);
          }));
}

void Autoscaler::OnLaunched(const InstanceId& id,
                            absl::StatusOr<std::string> got) {
  --launching_;
  busy_.erase(id);
  if (const auto state = host_.Readable();
      got.ok() && state.ok() && (*state)->fleet().IsAnothers(*got, id)) {
    got = absl::InternalError(
        absl::StrCat("its answer ", *got, " is the id of another instance"));
  }
  provider_error_ = got.ok() ? "" : std::string(got.status().message());
  const absl::StatusOr<ClusterState*> state = host_.Writable(Admission::kNode);
  const InstanceRecord* const instance =
      state.ok() ? (*state)->fleet().Find(id) : nullptr;
  // What it made of one that is gone is an orphan.
  if (instance == nullptr) return;
  Transition transition;
  if (got.ok()) {
    tries_.erase(id);
    // It may have joined before its provider has answered.
    if (instance->state() == v1::INSTANCE_STATE_REQUESTED) {
      (*state)->MoveInstance(id, v1::INSTANCE_STATE_ALLOCATED, *got,
                             transition);
    } else {
      (*state)->SetProviderId(id, *got, transition);
    }
  } else if (instance->state() != v1::INSTANCE_STATE_REQUESTED) {
    // Its node is here all the same; a list says what the provider calls it.
    tries_.erase(id);
  } else if (const int tries = ++tries_[id]; tries < kTriesMax) {
    again_at_[id] = clock_.Monotonic() + ProviderBackoff(tries);
    COHORT_LOG(kWarning, "launch_failed", {"instance", id},
               {"node_type", instance->node_type()}, {"why", got.status()});
  } else {
    // Perhaps it has it nevertheless: it is ended by its key.
    tries_.erase(id);
    again_at_.erase(id);
    const std::string why =
        absl::StrCat("the provider did not launch it: ",
                     Cut(got.status().message(), kReasonBytesMax));
    NoteFailure(*instance, why);
    (*state)->MoveInstance(id, v1::INSTANCE_STATE_TERMINATING, why, transition);
  }
  if (!transition.empty()) host_.Submit(std::move(transition));
  Poke();
}

void Autoscaler::Terminate(const InstanceId& id) {
  const absl::StatusOr<ClusterState*> state = host_.Writable(Admission::kNode);
  const InstanceRecord* const instance =
      state.ok() ? (*state)->fleet().Find(id) : nullptr;
  if (instance == nullptr) {
    busy_.erase(id);
    not_ended_.erase(id);
    return;
  }
  provider_->Terminate(
      (*state)->fleet().file()->provider(),
      IdOf<ClusterId>((*state)->cluster().cluster_id()),
      instance->provider_id(),
      Guarded<const absl::Status&>([this, id](const absl::Status& status) {
        OnTerminated(id, status);
      }));
}

void Autoscaler::Forget(const InstanceId& id) {
  not_ended_.erase(id);
  again_at_.erase(id);
  tries_.erase(id);
  joined_.erase(id);
}

void Autoscaler::OnTerminated(const InstanceId& id,
                              const absl::Status& status) {
  busy_.erase(id);
  provider_error_ = status.ok() ? "" : std::string(status.message());
  const absl::StatusOr<ClusterState*> state = host_.Writable(Admission::kNode);
  const InstanceRecord* const instance =
      state.ok() ? (*state)->fleet().Find(id) : nullptr;
  if (status.ok() || instance == nullptr) Forget(id);
  if (instance == nullptr) return;
  Transition transition;
  if (status.ok()) {
    (*state)->EndInstance(id, instance->reason(), transition);
  } else {
    NotEnded& vain = not_ended_[id];
    vain.why = Cut(status.message(), kReasonBytesMax);
    again_at_[id] = clock_.Monotonic() + ProviderBackoff(++vain.tries);
    COHORT_LOG(kWarning, "terminate_failed", {"instance", id}, {"why", status});
    if (!IsTold(vain.tries)) return;
    (*state)->NoteNotEnded(id, vain.tries, vain.why, transition);
  }
  host_.Submit(std::move(transition));
  Poke();
}

// ---- what the provider has ----

void Autoscaler::List() {
  const absl::StatusOr<ClusterState*> state = host_.Writable(Admission::kNode);
  if (!state.ok()) return;
  is_listing_ = true;
  provider_->List(
      (*state)->fleet().file()->provider(),
      IdOf<ClusterId>((*state)->cluster().cluster_id()),
      Guarded<absl::StatusOr<std::vector<ProvidedInstance>>>(
          [this, asked_at = clock_.Monotonic(),
           gone = std::exchange(said_gone_, {})](
              absl::StatusOr<std::vector<ProvidedInstance>> listed) mutable {
            OnListed(asked_at, std::move(gone), std::move(listed));
          }));
}

void Autoscaler::Watch(const ClusterState& state) {
  provider_->Watch(state.fleet().file()->provider(),
                   IdOf<ClusterId>(state.cluster().cluster_id()),
                   [self = self_](const ProviderEvent& event) {
                     if (*self != nullptr) (*self)->OnEvent(event);
                   });
}

void Autoscaler::OnEvent(const ProviderEvent& event) {
  const absl::StatusOr<ClusterState*> state = host_.Writable(Admission::kNode);
  if (!state.ok()) return;
  const auto& instances = (*state)->fleet().instances();
  const auto found = std::find_if(
      instances.begin(), instances.end(), [&event](const auto& each) {
        return each.second.provider_id() == event.id;
      });
  if (found == instances.end()) return;
  if (!event.notice.has_value()) {
    // It is believed once a list says the same.
    said_gone_[event.id] = event.reason;
    return Look();
  }
  // Of one that has not joined yet a list will say it again.
  Transition transition;
  Take(found->first, *event.notice, event.reason, **state, transition);
  if (!transition.empty()) host_.Submit(std::move(transition));
  Poke();
}

void Autoscaler::Take(const InstanceId& id, absl::Duration notice,
                      const std::string& reason, ClusterState& state,
                      Transition& transition) {
  const InstanceRecord& instance = *state.fleet().Find(id);
  if (instance.state() != v1::INSTANCE_STATE_JOINED) return;
  // What was asked there before its last job is not true any more.
  farewells_.Forget(IdOf<NodeId>(instance.node_id()));
  state.DrainInstance(
      id,
      absl::StrCat("the provider takes it in ", DurationToText(notice),
                   reason.empty() ? "" : ": ", reason),
      notice, transition);
}

void Autoscaler::OnListed(
    absl::Duration asked_at, SaidGone gone,
    absl::StatusOr<std::vector<ProvidedInstance>> listed) {
  is_listing_ = false;
  listed_at_ = clock_.Monotonic();
  provider_error_ = listed.ok() ? "" : std::string(listed.status().message());
  if (!listed.ok()) {
    COHORT_LOG(kWarning, "list_failed", {"why", listed.status()});
    said_gone_.merge(gone);
    return;
  }
  const absl::StatusOr<ClusterState*> state = host_.Writable(Admission::kNode);
  // A list that was asked for before the state was loaded says nothing of it.
  if (!state.ok() || asked_at < loaded_at_) return;
  if (!options_.dry_run) {
    Compare(*listed, asked_at, gone, **state);
    EndStrays(*listed, **state);
  }
  if (!std::exchange(was_listed_, true)) Poke();
}

void Autoscaler::Compare(const std::vector<ProvidedInstance>& listed,
                         absl::Duration asked_at, const SaidGone& gone,
                         ClusterState& state) {
  std::map<InstanceId, const ProvidedInstance*> by_key;
  for (const ProvidedInstance& each : listed) {
    const InstanceRecord* const known = state.fleet().Find(each.instance);
    const bool is_other = known != nullptr && !known->provider_id().empty() &&
                          known->provider_id() != each.id;
    if (!is_other) by_key[each.instance] = &each;
  }
  const absl::Time asked_at_wall =
      clock_.Wall() - (clock_.Monotonic() - asked_at);
  const auto instances = state.fleet().instances();  // a copy: it changes
  Transition transition;
  for (const auto& [id, instance] : instances) {
    if (busy_.contains(id)) continue;
    const auto found = by_key.find(id);
    if (found == by_key.end()) {
      EndUnlisted(id, instance, asked_at_wall, gone, state, transition);
      continue;
    }
    const ProvidedInstance& provided = *found->second;
    if (instance.provider_id().empty() &&
        !state.fleet().IsAnothers(provided.id, id)) {
      if (instance.state() == v1::INSTANCE_STATE_REQUESTED) {
        state.MoveInstance(id, v1::INSTANCE_STATE_ALLOCATED, provided.id,
                           transition);
      } else {
        state.SetProviderId(id, provided.id, transition);
      }
    }
    if (provided.failed && FromMicros(instance.since_us()) < asked_at_wall &&
        instance.state() < v1::INSTANCE_STATE_TERMINATING) {
      const std::string why =
          absl::StrCat("the provider says: ",
                       provided.reason.empty() ? "it failed" : provided.reason);
      if (IsLaunching(instance)) NoteFailure(instance, why);
      GiveUp(id, why, state, transition);
    } else if (provided.notice.has_value() &&
               instance.state() == v1::INSTANCE_STATE_JOINED) {
      Take(id, *provided.notice, provided.reason, state, transition);
    } else if (IsLaunching(instance) && instance.reason() != provided.reason) {
      state.SetInstanceReason(id, provided.reason, transition);
    }
  }
  if (!transition.empty()) host_.Submit(std::move(transition));
}

// The provider does not have it: of one that it was only just asked for that
// says nothing, and one whose node is here lives until that is dead.
void Autoscaler::EndUnlisted(const InstanceId& id,
                             const InstanceRecord& instance,
                             absl::Time asked_at, const SaidGone& gone,
                             ClusterState& state, Transition& transition) {
  if (instance.provider_id().empty()) {
    if (instance.state() == v1::INSTANCE_STATE_TERMINATING &&
        FromMicros(instance.since_us()) < asked_at) {
      state.EndInstance(id, instance.reason(), transition);
    }
    return;
  }
  const auto said = gone.find(instance.provider_id());
  if (said != gone.end() && instance.state() < v1::INSTANCE_STATE_TERMINATING) {
    const std::string why =
        absl::StrCat("the provider says that it is gone",
                     said->second.empty() ? "" : ": ", said->second);
    if (IsLaunching(instance)) NoteFailure(instance, why);
    return GiveUp(id, why, state, transition);
  }
  // Providers may list what they have made some time later.
  if (FromMicros(instance.allocated_at_us()) + kListDelay >= asked_at) return;
  // It did not say that it has ended it, but has it no more.
  if (not_ended_.contains(id)) {
    Forget(id);
    return state.EndInstance(id, instance.reason(), transition);
  }
  if (!IsLaunching(instance)) return;
  const std::string why = "the provider has it no more";
  NoteFailure(instance, why);
  state.EndInstance(id, why, transition);
}

void Autoscaler::EndStrays(const std::vector<ProvidedInstance>& listed,
                           ClusterState& state) {
  std::map<std::string, Stray> strays;
  Transition transition;
  for (const ProvidedInstance& each : listed) {
    // Made twice under one key, it is one too many.
    const InstanceRecord* const known = state.fleet().Find(each.instance);
    if (known != nullptr &&
        (known->provider_id().empty() || known->provider_id() == each.id)) {
      continue;
    }
    // Something may run there.
    if (known == nullptr &&
        state.AdoptInstance(each.instance, each.id, transition)) {
      continue;
    }
    Stray stray{.end_at = clock_.Monotonic() + options_.orphan_grace};
    const auto before = strays_.find(each.id);
    if (before != strays_.end()) stray = before->second;
    if (clock_.Monotonic() >= stray.end_at) EndStray(each.id, stray, state);
    strays[each.id] = stray;
  }
  strays_ = std::move(strays);
  if (!transition.empty()) host_.Submit(std::move(transition));
}

void Autoscaler::EndStray(const std::string& id, Stray& stray,
                          const ClusterState& state) {
  const int tries = ++stray.tries;
  // While it ends it may be listed.
  stray.end_at = clock_.Monotonic() +
                 std::max(options_.orphan_grace, ProviderBackoff(tries));
  provider_->Terminate(
      state.fleet().file()->provider(),
      IdOf<ClusterId>(state.cluster().cluster_id()), id,
      Guarded<const absl::Status&>([this, id, tries](const auto& status) {
        OnStrayTerminated(id, tries, status);
      }));
}

void Autoscaler::OnStrayTerminated(const std::string& id, int tries,
                                   const absl::Status& status) {
  COHORT_LOG(kWarning, "stray_terminated", {"provider_id", id},
             {"status", status});
  const absl::StatusOr<ClusterState*> state = host_.Writable(Admission::kNode);
  if (!state.ok() || !IsTold(tries)) return;
  const std::string what =
      absl::StrCat(id, ", which it has for this cluster and no instance knows");
  Transition transition;
  if (status.ok()) {
    (*state)->NoteScaling(
        "stray_ended", absl::StrCat("the provider ended ", what), transition);
  } else {
    (*state)->NoteScaling("stray_not_ended",
                          absl::StrCat("the provider did not end ", what,
                                       " (it is asked again): ",
                                       Cut(status.message(), kReasonBytesMax)),
                          transition);
  }
  host_.Submit(std::move(transition));
}

// ---- how launches went ----

void Autoscaler::NoteJoins(const ClusterState& state) {
  for (const auto& [id, instance] : state.fleet().instances()) {
    if (instance.node_id().empty() || !joined_.insert(id).second) continue;
    if (instance.failed()) {
      NoteFailure(instance, instance.reason());
    } else if (instance.state() == v1::INSTANCE_STATE_JOINED) {
      health_.NoteSuccess(instance.node_type(),
                          FromMicros(instance.since_us()) -
                              FromMicros(instance.created_at_us()));
    }
  }
}

void Autoscaler::NoteFailure(const InstanceRecord& instance,
                             const std::string& why) {
  const std::string& type = instance.node_type();
  health_.NoteFailure(type, FromMicros(instance.created_at_us()), why);
  look_at_ = std::min(look_at_, health_.types().at(type).again_at);
}

}  // namespace cohort::head

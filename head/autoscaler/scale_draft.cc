#include "head/autoscaler/scale_draft.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/duration_text.h"
#include "common/strong_id.h"
#include "head/autoscaler/scale_input.h"
#include "head/placement/node_form.h"
#include "head/placement/placement_index.h"
#include "head/state/waiting_line.h"

namespace cohort::head {
namespace {

// That are compared with a node before it goes.
constexpr size_t kRequestsMax = 1'000;

// Whether a rank of anything that waits could be on such a node.
bool AnyCouldUse(const WaitingLine& line, const NodeSnapshot& node) {
  const std::vector<const GangRequest*> requests = line.Requests(kRequestsMax);
  if (requests.size() == kRequestsMax) return true;
  const NodeForm form = FormOf(node);
  return std::any_of(requests.begin(), requests.end(),
                     [&](const GangRequest* request) {
                       return FormAllows(form, *request) &&
                              LabelsAllow(node.labels, request->selector) &&
                              Capacity(form, *request) > 0;
                     });
}

// How many instances there are of each type, and in all.
class Counts {
 public:
  explicit Counts(const Fleet& fleet) : total_(fleet.instances().size()) {
    for (const auto& [id, instance] : fleet.instances()) {
      ++all_[instance.node_type()];
      if (instance.state() > v1::INSTANCE_STATE_JOINED) {
        ++ending_[instance.node_type()];
      }
    }
  }

  // Counts one more, if there may be.
  bool Add(const v1::NodeType& type, size_t max_nodes) {
    if (total_ >= max_nodes || all_[type.name()] >= type.max()) return false;
    ++total_;
    ++all_[type.name()];
    return true;
  }
  // Counts one as ending, if enough are left.
  bool End(const v1::NodeType& type) {
    if (all_[type.name()] - ending_[type.name()] <= type.min()) return false;
    ++ending_[type.name()];
    return true;
  }

 private:
  size_t total_ = 0;
  std::map<std::string, size_t> all_;
  std::map<std::string, size_t> ending_;
};

// Nothing needs it any more, and nobody was asked for it yet.
void Withdraw(const InstanceId& id, bool more_wait, Counts& counts,
              ClusterState& state, Transition& transition) {
  const InstanceRecord& instance = *state.fleet().Find(id);
  const v1::NodeType* const type = state.fleet().FindType(instance.node_type());
  if (instance.state() != v1::INSTANCE_STATE_QUEUED || type == nullptr ||
      (more_wait && AnyCouldUse(state.line(), NodeOfType(*type, NodeId()))) ||
      !counts.End(*type)) {
    return;
  }
  state.EndInstance(id, "nothing needs it any more", transition);
}

}  // namespace

ScaleDraft::ScaleDraft(const ClusterState& state)
    : file_(*state.fleet().file()),
      wants_(state.fleet().wants_version()),
      nodes_(state.nodes().index().version()),
      arrivals_(state.line().arrivals()) {}

void ScaleDraft::Make(const Clock& clock) {
  const absl::Duration start = clock.Monotonic();
  plan_ = PlanScale(input);
  took_ = clock.Monotonic() - start;
  input = ScaleInput();
}

bool ScaleDraft::IsWanted(const ClusterState& state) const {
  return wants_ == state.fleet().wants_version();
}

bool ScaleDraft::Carry(ClusterState& state, Transition& transition) {
  CarryEnds(CarryLaunches(state, transition), state, transition);
  return launched_ == plan_.launches.size() && ended_ == plan_.ending.size();
}

size_t ScaleDraft::EndOfAsk(size_t first) const {
  const ScalePlan::Launch& ask = plan_.launches[first];
  size_t end = first + 1;
  if (ask.job == JobId()) return end;  // as many as there may be
  while (end < plan_.launches.size() && plan_.launches[end].job == ask.job &&
         plan_.launches[end].first == ask.first) {
    ++end;
  }
  return end;
}

size_t ScaleDraft::CarryLaunches(ClusterState& state, Transition& transition) {
  size_t steps = 0;
  Counts counts(state.fleet());
  // A part of what an ask needs would serve nobody.
  const auto has_room = [&](size_t from, size_t to, Counts trial) {
    for (size_t i = from; i < to; ++i) {
      const auto* const type = state.fleet().FindType(plan_.launches[i].type);
      if (type == nullptr || !trial.Add(*type, file_.max_nodes())) return false;
    }
    return true;
  };
  while (launched_ < plan_.launches.size() && steps < kStepsMax) {
    if (launched_ >= whole_until_) {
      whole_until_ = EndOfAsk(launched_);
      if (!has_room(launched_, whole_until_, counts)) {
        launched_ = whole_until_;
        continue;
      }
    }
    const ScalePlan::Launch& launch = plan_.launches[launched_++];
    const v1::NodeType* const type = state.fleet().FindType(launch.type);
    const bool waits = launch.job == JobId() ||
                       state.line().Contains(AskId{launch.job, launch.first});
    if (type == nullptr || !waits || !counts.Add(*type, file_.max_nodes())) {
      continue;
    }
    state.AddInstance(launch.type, launch.job,
                      launch.job == JobId()
                          ? launch.why
                          : absl::StrCat(launch.why, " of job ",
                                         NameOfJob(state, launch.job)),
                      transition);
    ++steps;
  }
  return steps;
}

void ScaleDraft::CarryEnds(size_t steps, ClusterState& state,
                           Transition& transition) {
  if (ended_ == plan_.ending.size()) return;
  const PlacementIndex& index = state.nodes().index();
  const bool more_wait = state.line().arrivals() != arrivals_;
  Counts counts(state.fleet());
  for (; ended_ < plan_.ending.size() && steps < kStepsMax; ++ended_, ++steps) {
    const NodeId& node = plan_.ending[ended_];
    if (const auto id = IdOf<InstanceId>(IdBytes(node));
        state.fleet().Find(id) != nullptr) {
      Withdraw(id, more_wait, counts, state, transition);
      continue;
    }
    const InstanceRecord* const instance = state.fleet().OfNode(node);
    if (instance == nullptr || instance->state() != v1::INSTANCE_STATE_JOINED ||
        index.Find(node) == nullptr || index.ChangedAt(node) > nodes_ ||
        (more_wait && AnyCouldUse(state.line(), *index.Find(node)))) {
      continue;
    }
    const v1::NodeType* const type =
        state.fleet().FindType(instance->node_type());
    if (type != nullptr && !counts.End(*type)) continue;
    state.DrainInstance(
        IdOf<InstanceId>(instance->instance_id()),
        type == nullptr
            ? "its node type is not in the cluster file any more"
            : absl::StrCat("idle for ", DurationToText(absl::Microseconds(
                                            type->idle_timeout_us()))),
        absl::InfiniteDuration(), transition);
  }
}

}  // namespace cohort::head

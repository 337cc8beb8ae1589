#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "cohort/v1/autoscaler.pb.h"
#include "common/clock.h"
#include "common/executor.h"
#include "common/job_id.h"
#include "common/strong_id.h"
#include "head/autoscaler/launch_health.h"
#include "head/autoscaler/node_farewells.h"
#include "head/autoscaler/provider.h"
#include "head/autoscaler/scale_draft.h"
#include "head/autoscaler/scale_plan.h"
#include "head/services/state_host.h"
#include "head/state/cluster_state.h"

namespace cohort::head {

struct AutoscalerOptions {
  // Says what it would do and does nothing.
  bool dry_run = false;
  // A node that is known may come back for so long after the head's start:
  // until then nothing is planned.
  absl::Duration settle_time = absl::Seconds(10);
  // Between two lists of what the provider has.
  absl::Duration list_period = absl::Seconds(10);
  // What the provider has of this cluster and no row knows is ended when it was
  // there for so long.
  absl::Duration orphan_grace = absl::Minutes(1);
  // Launches that the provider is asked for at once: others stay QUEUED, and go
  // again if nothing needs them any more.
  size_t launches_max = 32;
};

// Makes the cluster what the plan says, by a provider, through rows: every
// launch and every end is durable before the provider hears of it.
//
//   SC-6: what the provider has with our tag is in a row, or is ended.
//   SC-7: a launch has one key however often it is tried.
//   SC-8: nothing is ended that runs something, unless the provider takes it.
//   SC-9: no node is ended before the ends of its logs are kept, nor, while it
//         is idle, its results for data_timeout, unless it does not answer.
//
// Strand-bound; HeadCore owns it.
class Autoscaler final {
 public:
  // All outlive it; `last_logs` may be null: then none are kept; `provider` may
  // be null: then nothing is scaled.  Plans are made on `planning`, from
  // copies, and what has changed since is looked at again before they are
  // carried out.
  Autoscaler(AutoscalerOptions options, StateHost& host, NodeService& nodes,
             LastLogs* last_logs, Provider* provider, Executor& strand,
             Executor& planning, const Clock& clock);
  ~Autoscaler();

  Autoscaler(const Autoscaler&) = delete;
  Autoscaler& operator=(const Autoscaler&) = delete;

  // The state may have changed: looks at it, soon.  Costs nothing otherwise.
  void Poke();
  // Every tick, while the state can be written.
  void Tick();
  // The state is another one.
  void StateLoaded();
  // ---- for AutoscalerService ----

  // An instance that the provider was asked to end, and did not.
  struct NotEnded {
    int tries = 0;
    std::string why;
  };

  bool is_dry_run() const { return options_.dry_run; }
  // The last one, of the state when it was made.
  const ScalePlan& plan() const { return *plan_; }
  const LaunchHealth& health() const { return health_; }
  // Since when, on the monotonic clock, nodes with an instance have done
  // nothing.
  struct Idle {
    absl::Duration since;
    uint64_t changed_at = 0;  // of the node's entry in the index
  };
  const std::map<NodeId, Idle>& idle() const { return idle_; }
  // The jobs for whose results an idle node stays a while.
  const std::map<NodeId, std::vector<JobId>>& held_for() const {
    return held_for_;
  }
  const std::map<InstanceId, NotEnded>& not_ended() const { return not_ended_; }
  // On the monotonic clock.  REQUIRES: it is in not_ended().
  absl::Duration AskedAgainAt(const InstanceId& id) const {
    return again_at_.at(id);
  }
  const std::string& provider_error() const { return provider_error_; }
  // Of all types: another file may have mended what failed.
  void ForgetFailures() { health_.Clear(); }

 private:
  // What the provider has and no row knows, and when it is to be ended.
  struct Stray {
    absl::Duration end_at;
    int tries = 0;
  };

  void Look();
  enum class FillStep { kNodes, kDemand, kReleases };
  void FillIn(const std::shared_ptr<ScaleDraft>& draft, uint64_t life,
              FillStep step);
  void SetLimits(const ClusterFile& file, ScaleInput& input) const;
  void Plan(const std::shared_ptr<ScaleDraft>& draft, uint64_t life);
  void OnPlanned(const std::shared_ptr<ScaleDraft>& draft, uint64_t life);
  void Carry(ClusterState& state);
  bool HasSettled(const ClusterState& state);
  void AddNodes(const ClusterState& state, ScaleInput& input);
  bool MayGo(const NodeId& node, const v1::NodeType* type, absl::Duration idle,
             const ClusterState& state);
  // Of the quickest type that may be launched; zero: it is not known.
  absl::Duration LaunchTime(const ScaleInput& input) const;
  // Its node is empty, lost, or taken away: what lies there goes.
  void GiveUp(const InstanceId& id, const std::string& why, ClusterState& state,
              Transition& transition);
  void EndDrained(const InstanceId& id, const InstanceRecord& instance,
                  ClusterState& state, Transition& transition);
  // What is in rows and nobody works on is worked on.
  void Drive(ClusterState& state);
  void DriveOne(const InstanceId& id, ClusterState& state,
                Transition& transition);
  void Launch(const InstanceId& id);
  void OnLaunched(const InstanceId& id, absl::StatusOr<std::string> got);
  void Terminate(const InstanceId& id);
  void OnTerminated(const InstanceId& id, const absl::Status& status);
  // It is gone.
  void Forget(const InstanceId& id);
  void List();
  using SaidGone = std::map<std::string, std::string>;
  void OnListed(absl::Duration asked_at, SaidGone gone,
                absl::StatusOr<std::vector<ProvidedInstance>> listed);
  void Compare(const std::vector<ProvidedInstance>& listed,
               absl::Duration asked_at, const SaidGone& gone,
               ClusterState& state);
  void EndUnlisted(const InstanceId& id, const InstanceRecord& instance,
                   absl::Time asked_at, const SaidGone& gone,
                   ClusterState& state, Transition& transition);
  void Watch(const ClusterState& state);
  void OnEvent(const ProviderEvent& event);
  // The provider takes it away in so long.
  void Take(const InstanceId& id, absl::Duration notice,
            const std::string& reason, ClusterState& state,
            Transition& transition);
  void EndStrays(const std::vector<ProvidedInstance>& listed,
                 ClusterState& state);
  void EndStray(const std::string& id, Stray& stray, const ClusterState& state);
  void OnStrayTerminated(const std::string& id, int tries,
                         const absl::Status& status);
  void NoteFailure(const InstanceRecord& instance, const std::string& why);
  void NoteJoins(const ClusterState& state);
  // `task` of a provider's answer, unless this is gone by then.
  template <typename Result>
  absl::AnyInvocable<void(Result) &&> Guarded(
      absl::AnyInvocable<void(Result) &&> task);

  const AutoscalerOptions options_;
  StateHost& host_;
  Provider* const provider_;
  Executor& strand_;
  Executor& planning_;
  const Clock& clock_;

  bool is_poked_ = false;
  absl::Duration loaded_at_;
  bool has_settled_ = false;
  // What the last plan was made from, and when the next is to be at the latest.
  uint64_t nodes_seen_ = 0;
  uint64_t fleet_seen_ = 0;
  uint64_t line_seen_ = 0;
  absl::Duration look_at_;
  absl::Duration not_before_;
  bool is_planning_ = false;
  bool has_moves_left_ = false;  // of instances, which go on in the next turn
  // Shared: with its draft.
  std::shared_ptr<const ScalePlan> plan_ = std::make_shared<ScalePlan>();
  // Shared: one that is made belongs to its task until that is done.  Null: the
  // last one was carried out.
  std::shared_ptr<ScaleDraft> draft_;
  uint64_t life_ = 0;  // of the state
  std::map<NodeId, Idle> idle_;
  std::map<NodeId, std::vector<JobId>> held_for_;
  LaunchHealth health_;
  NodeFarewells farewells_;
  // Instances that a call to the provider is about, and when others are tried
  // again.
  std::set<InstanceId> busy_;
  std::map<InstanceId, absl::Duration> again_at_;
  std::map<InstanceId, int> tries_;
  std::map<InstanceId, NotEnded> not_ended_;
  size_t launching_ = 0;                 // calls of launches that are under way
  std::set<InstanceId> joined_;          // that were counted
  std::map<std::string, Stray> strays_;  // by what the provider calls them
  bool is_listing_ = false;
  bool was_listed_ = false;  // since the state was loaded
  absl::Duration listed_at_;
  std::string provider_error_;
  // What the provider said by itself is gone, and why, until a list was asked
  // for since.
  SaidGone said_gone_;

  // Shared: this and its calls, which find it empty once this is gone.
  const std::shared_ptr<Autoscaler*> self_;
};

}  // namespace cohort::head

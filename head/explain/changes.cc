#include "head/explain/changes.h"

#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

#include "head/explain/line_trial.h"
#include "head/state/dependencies.h"
#include "head/state/job_spec.h"

namespace cohort::head {
namespace {

// Elements whose ends are tried.
constexpr size_t kElementsTried = 16;

class ChangeFinder {
 public:
  ChangeFinder(const ClusterState& state, const JobRecord& job,
               const FullDiagnosis& full)
      : state_(state), job_(job), full_(full), trial_(state, job) {}

  Changes WithoutOthers() {
    if (full_.diagnosis.fits) return {};
    changes_.complete = full_.remedies.complete;
    for (const Remedy& remedy : full_.remedies.found) {
      if (IsOfRequest(remedy.kind) || StartsAfter(remedy)) {
        changes_.found.push_back(NameChange(remedy, state_.nodes()));
      }
    }
    return std::move(changes_);
  }

  // The only one besides, perhaps, the want of room.
  Changes With(const Wait& other) {
    switch (other.kind) {
      case v1::WAIT_KIND_ORPHAN:  // it needs no more room than it has there
        changes_.found = other.lifted_by;
        break;
      case v1::WAIT_KIND_AFTER:
        AddAfter(other);
        break;
      case v1::WAIT_KIND_ARRAY:
        AddArray(other);
        break;
      default:
        if (full_.diagnosis.fits) changes_.found = other.lifted_by;
    }
    return std::move(changes_);
  }

 private:
  bool Starts(const std::vector<NodeSnapshot>& changed,
              const std::set<JobId>& ended) {
    const std::optional<bool> starts = trial_.Starts(changed, ended);
    if (!starts.has_value()) changes_.complete = false;
    return starts.value_or(false);
  }

  bool StartsAfter(const Remedy& remedy) {
    if (remedy.kind == Remedy::Kind::kJobEnds) return StartsWithout(remedy.job);
    if (remedy.model.has_value()) return StartsOn(NewNodes(remedy), {});
    std::vector<NodeSnapshot> opened;
    for (const NodeId& node : remedy.nodes) {
      opened.push_back(state_.nodes().Imagine(node, {}));
    }
    return StartsOn(opened, {});
  }

  // Several nodes do not come, nor come free, at once.
  bool StartsOn(const std::vector<NodeSnapshot>& nodes,
                const std::set<JobId>& ended) {
    if (!Starts(nodes, ended)) return false;
    if (nodes.size() == 1) return true;
    const std::optional<bool> alone = trial_.HasNoRival(nodes);
    if (!alone.has_value()) changes_.complete = false;
    return alone.value_or(false);
  }

  bool StartsWithout(const JobId& job) {
    return StartsOn(trial_.NodesWithout(job), {job});
  }

  // The end of the one job that it waits for gives it its place, and the room
  // that this one has.  What is free once one has ended that did not start,
  // nobody knows.
  void AddAfter(const Wait& other) {
    std::vector<JobId> live;
    for (const Dependency& each : job_.spec->after()) {
      for (const JobId& id : state_.jobs().Named(JobOf(each))) {
        if (!HasEnded(state_.jobs().Find(id)->state)) live.push_back(id);
        if (live.size() > 1) break;
      }
    }
    for (const NamedChange& change : other.lifted_by) {
      const bool helps = change.of_request
                             ? full_.diagnosis.fits
                             : live.size() == 1 &&
                                   state_.jobs().Find(live[0])->state !=
                                       v1::JOB_STATE_PENDING &&
                                   StartsWithout(live[0]);
      if (helps) changes_.found.push_back(change);
    }
  }

  // The end of another element gives it the place and the room, if it is the
  // next.
  void AddArray(const Wait& other) {
    for (const NamedChange& change : other.lifted_by) {
      if (change.kind != "ELEMENT_ENDS" && full_.diagnosis.fits) {
        changes_.found.push_back(change);
      }
    }
    if (state_.gates().array().Before(job_) > 0) return;
    for (const JobId& element :
         state_.gates().array().RunningOf(job_.id.array(), kElementsTried)) {
      // A person speaks for it first.
      if (state_.orphans().OfJob(element) != nullptr) continue;
      if (!StartsWithout(element)) continue;
      changes_.found.push_back(
          {.kind = "ELEMENT_ENDS",
           .of_request = false,
           .text = absl::StrCat("the end of ", element.ToText()),
           .how = ""});
      return;
    }
  }

  const ClusterState& state_;
  const JobRecord& job_;
  const FullDiagnosis& full_;
  LineTrial trial_;
  Changes changes_;
};

}  // namespace

Changes FindChanges(const ClusterState& state, const JobRecord& job,
                    const std::vector<Wait>& others,
                    const FullDiagnosis& full) {
  if (others.size() > 1) return {};
  ChangeFinder finder(state, job, full);
  return others.empty() ? finder.WithoutOthers() : finder.With(others.front());
}

}  // namespace cohort::head

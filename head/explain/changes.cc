#include "head/explain/changes.h"

#include <algorithm>
#include <optional>
#include <set>

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
               const Diagnosis& diagnosis, v1::ExplainJobResponse& out)
      : state_(state),
        job_(job),
        diagnosis_(diagnosis),
        trial_(state, job),
        out_(out) {}

  void WithoutOthers() {
    if (diagnosis_.fits) return;
    if (!diagnosis_.remedies.complete) out_.set_changes_complete(false);
    const auto later = state_.later_store();
    for (const Remedy& remedy : diagnosis_.remedies.found) {
      // Nodes that refuse this head do not come back to it.
      const bool refuse =
          later.has_value() &&
          std::any_of(remedy.opened.begin(), remedy.opened.end(),
                      [&later](const NodeId& node) {
                        return later->nodes.contains(node);
                      });
      if (!refuse && (remedy.told.of_request() || StartsAfter(remedy))) {
        *out_.add_changes() = remedy.told;
      }
    }
  }

  // The only one besides, perhaps, the want of room.
  void With(const Wait& other) {
    switch (other.kind) {
      case v1::WAIT_KIND_AFTER:
        return AddAfter(other);
      case v1::WAIT_KIND_ARRAY:
        return AddArray(other);
      default:
        // An orphan needs no more room than it has there.
        if (!diagnosis_.fits && other.kind != v1::WAIT_KIND_ORPHAN) return;
        for (const NamedChange& change : other.lifted_by) Add(change);
    }
  }

  void Add(const NamedChange& change) {
    v1::Remedy& out = *out_.add_changes();
    out.set_kind(change.kind);
    out.set_of_request(change.of_request);
    out.set_text(change.text);
    out.set_how(change.how);
  }

 private:
  // What could not be found out is not told.
  bool IsTrue(std::optional<bool> found) {
    if (!found.has_value()) out_.set_changes_complete(false);
    return found.value_or(false);
  }

  bool StartsAfter(const Remedy& remedy) {
    if (remedy.ends.has_value()) return StartsWithout(*remedy.ends);
    if (remedy.model.has_value()) return StartsOn(NewNodes(remedy), {});
    std::vector<NodeSnapshot> opened;
    for (const NodeId& node : remedy.opened) {
      opened.push_back(state_.nodes().Imagine(node, {}));
    }
    return StartsOn(opened, {});
  }

  // Several nodes do not come, nor come free, at once.
  bool StartsOn(const std::vector<NodeSnapshot>& nodes,
                const std::set<JobId>& ended) {
    return IsTrue(trial_.Starts(nodes, ended)) &&
           (nodes.size() == 1 || IsTrue(trial_.HasNoRival(nodes)));
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
                             ? diagnosis_.fits
                             : live.size() == 1 &&
                                   state_.jobs().Find(live[0])->state !=
                                       v1::JOB_STATE_PENDING &&
                                   StartsWithout(live[0]);
      if (helps) Add(change);
    }
  }

  // The end of another element gives it the place and the room, if it is the
  // next.
  void AddArray(const Wait& other) {
    if (diagnosis_.fits) {
      for (const NamedChange& change : other.lifted_by) Add(change);
    }
    if (state_.gates().array().Before(job_) > 0) return;
    for (const JobId& element :
         state_.gates().array().RunningOf(job_.id.array(), kElementsTried)) {
      // A person speaks for it first.
      if (state_.orphans().OfJob(element) != nullptr) continue;
      if (!StartsWithout(element)) continue;
      return Add({.kind = "ELEMENT_ENDS",
                  .of_request = false,
                  .text = absl::StrCat("the end of ", element.ToText()),
                  .how = ""});
    }
  }

  const ClusterState& state_;
  const JobRecord& job_;
  const Diagnosis& diagnosis_;
  LineTrial trial_;
  v1::ExplainJobResponse& out_;
};

}  // namespace

void FindChanges(const ClusterState& state, const JobRecord& job,
                 const std::vector<Wait>& others, const Diagnosis& diagnosis,
                 v1::ExplainJobResponse& out) {
  out.set_changes_complete(true);
  ChangeFinder finder(state, job, diagnosis, out);
  const auto later = state.later_store();
  if (later.has_value() && !diagnosis.fits) {
    finder.Add(
        {.kind = "LATER_STORE",
         .of_request = false,
         .text = absl::StrCat("a head on the store of term ", later->term,
                              ", or this one restored anew"),
         .how = ""});
  }
  if (others.empty()) finder.WithoutOthers();
  if (others.size() == 1) finder.With(others.front());
}

}  // namespace cohort::head

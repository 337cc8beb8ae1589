#include "head/explain/changes.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"

#include "head/placement/placement.h"
#include "head/state/dependencies.h"
#include "head/state/job_spec.h"

namespace cohort::head {
namespace {

// Elements whose ends are tried.
constexpr size_t kElementsTried = 16;
// Requests of others that are tried.
constexpr size_t kRivalsMax = 256;

class ChangeFinder {
 public:
  ChangeFinder(const ClusterState& state, const Asked& asked,
               const Diagnosis& diagnosis, NodeTrial& trial,
               v1::ExplainJobResponse& out)
      : state_(state),
        job_(asked.job),
        slots_(asked.slots),
        own_(asked.request),
        place_(WaitingLine::PlaceOf(job_, FirstSlot())),
        in_line_(state.line().Contains(AskId{job_.id, FirstSlot()})),
        diagnosis_(diagnosis),
        trial_(trial),
        out_(out) {
    for (const WaitingLine::Waiting& each : state.line().FirstAheadOf(
             place_, 1, [](const GangRequest&) { return true; })) {
      ahead_.insert(*each.request);
    }
  }

  void WithoutOthers() {
    if (diagnosis_.fits) return;
    if (!diagnosis_.remedies.complete) out_.set_changes_complete(false);
    const auto later = state_.later_store();
    for (const Remedy& remedy : diagnosis_.remedies.found) {
      // Nodes that refuse this head do not come back to it.
      const bool refuse =
          later.has_value() &&
          std::any_of(remedy.opened.begin(), remedy.opened.end(),
                      [&later](const NodeSnapshot& node) {
                        return later->nodes.contains(node.id);
                      });
      if (refuse) continue;
      if (remedy.told.of_request()) {
        AddOfRequest(remedy);
      } else if (StartsAfter(remedy)) {
        Tell(remedy.told, slots_);
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
  int FirstSlot() const { return slots_.empty() ? -1 : slots_.front(); }

  void Tell(v1::Remedy change, const std::vector<int>& slots) {
    if (!slots.empty()) {
      change.set_text(absl::StrCat(RanksText(slots), ": ", change.text()));
    }
    *out_.add_changes() = std::move(change);
  }

  void AddOfRequest(const Remedy& remedy) {
    if (slots_.empty()) {
      v1::Remedy told = remedy.told;
      // Its program says what an actor asks for, not a flag of `submit`.
      if (job_.spec->has_actor()) told.clear_how();
      return Tell(std::move(told), {});
    }
    const auto fewer = static_cast<size_t>(remedy.request.num_workers);
    if (fewer >= slots_.size()) return;  // it is not a resize
    // The job goes without the first of those that are too many, and all above.
    const int size = slots_[fewer];
    v1::Remedy resize = remedy.told;
    resize.set_text(absl::StrCat(size, size == 1 ? " worker" : " workers",
                                 " instead of ", job_.row.num_workers()));
    resize.set_how(
        absl::StrCat("cohort jobs resize ", job_.id.ToText(), " ", size));
    Tell(std::move(resize), {slots_.begin(), slots_.begin() + fewer});
  }

  // What those ask for who come into the line before the job by these ends.
  void AddReleased(const std::set<JobId>& ended,
                   std::set<GangRequest>& rivals) const {
    const auto add = [&](const JobId& id) {
      const JobRecord& job = *state_.jobs().Find(id);
      const bool comes_first = WaitingLine::PlaceOf(job) < place_;
      if (job.row.state() != v1::JOB_STATE_PENDING || !comes_first) {
        return false;
      }
      if (job.row.held() || state_.gates().start_times().WaitOf(job)) {
        return false;
      }
      rivals.insert(RequestOf(job));
      return true;
    };
    for (const auto& [id, by] : state_.gates().after().KeptOnlyBy(ended)) {
      if (rivals.size() >= kRivalsMax) return;
      // The elements of an array ask for the same.
      const std::vector<JobId> jobs = state_.jobs().Named(id);
      (void)std::any_of(jobs.begin(), jobs.end(), add);
    }
    for (const JobId& job : ended) {
      if (!job.IsElement()) continue;
      const std::vector<JobId> next =
          state_.gates().array().NextOf(job.array(), kElementsTried);
      (void)std::any_of(next.begin(), next.end(), add);
    }
  }

  // Whether it is the job that starts once nodes are as `changed` says and jobs
  // `ended` have ended, which takes so many steps.
  bool Starts(const std::vector<NodeSnapshot>& changed,
              const std::set<JobId>& ended, size_t steps) {
    std::set<GangRequest> rivals = ahead_;
    AddReleased(ended, rivals);
    // After the first step those behind may start, but for those who ask for
    // the same.
    if (steps > 1) {
      for (const GangRequest* each : state_.line().Requests(kRivalsMax)) {
        if (!in_line_ || *each != own_) rivals.insert(*each);
      }
    }
    if (rivals.size() >= kRivalsMax) {
      out_.set_changes_complete(false);
      return false;
    }
    return trial_.Ask(changed, [&](const PlacementIndex& nodes) {
      return Fits(nodes, own_) &&
             std::none_of(rivals.begin(), rivals.end(),
                          [&nodes](const GangRequest& rival) {
                            return Fits(nodes, rival);
                          });
    });
  }

  bool StartsAfter(const Remedy& remedy) {
    if (remedy.ends.has_value()) return StartsWithout(*remedy.ends);
    const std::vector<NodeSnapshot> nodes =
        remedy.model.has_value() ? NewNodes(remedy) : remedy.opened;
    return Starts(nodes, {}, nodes.size());
  }

  // The nodes that an attempt of `job` is on, as they are without it.
  bool StartsWithout(const JobId& job) {
    std::vector<NodeSnapshot> nodes;
    const AttemptRecord* const attempt = state_.attempts().LastOf(job);
    if (attempt == nullptr) return false;
    size_t live = 0;
    for (const Place& place : attempt->places) {
      if (IsOver(place)) continue;
      ++live;
      const NodeSnapshot* const node = state_.nodes().index().Find(place.node);
      if (node == nullptr || node->gate != NodeGate::kOpen) continue;
      nodes.push_back(state_.nodes().Imagine(place.node, {attempt->id}));
    }
    // One that waits for its end takes no room before all of it is gone.
    return Starts(nodes, {job}, in_line_ ? nodes.size() : live);
  }

  // The end of the one job that it waits for gives it its place, and the room
  // that this one has.  What is free once one has ended that did not start,
  // nobody knows.
  void AddAfter(const Wait& other) {
    std::vector<JobId> live;
    for (const Dependency& each : job_.spec->after()) {
      for (const JobId& id : state_.jobs().Named(JobOf(each))) {
        if (!HasEnded(state_.jobs().Find(id)->row.state())) live.push_back(id);
        if (live.size() > 1) break;
      }
    }
    for (const NamedChange& change : other.lifted_by) {
      const bool helps = change.of_request
                             ? diagnosis_.fits
                             : live.size() == 1 &&
                                   state_.jobs().Find(live[0])->row.state() !=
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
  const std::vector<int>& slots_;
  const GangRequest& own_;
  const WaitingLine::Place place_;
  const bool in_line_;
  std::set<GangRequest> ahead_;
  const Diagnosis& diagnosis_;
  NodeTrial& trial_;
  v1::ExplainJobResponse& out_;
};

}  // namespace

void FindChanges(const ClusterState& state, const Asked& asked,
                 const std::vector<Wait>& others, const Diagnosis& diagnosis,
                 NodeTrial& trial, v1::ExplainJobResponse& out) {
  ChangeFinder finder(state, asked, diagnosis, trial, out);
  const auto later = state.later_store();
  if (later.has_value() && !diagnosis.fits) {
    finder.Add(
        {.kind = "LATER_STORE",
         .of_request = false,
         .text = absl::StrCat("a head on the store of term ", later->term,
                              ", or this one restored again"),
         .how = ""});
  }
  if (others.empty()) finder.WithoutOthers();
  if (others.size() == 1) finder.With(others.front());
}

}  // namespace cohort::head

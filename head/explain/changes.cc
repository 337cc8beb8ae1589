#include "head/explain/changes.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "head/explain/competition.h"
#include "head/explain/contenders.h"
#include "head/state/dependencies.h"

namespace cohort::head {
namespace {

using Kind = OtherBlocker::Kind;

// Ends of elements that are tried together.
constexpr size_t kElementsTried = 16;
// Of those that are waited for.
constexpr size_t kAfterTried = 16;

bool IsKeptBy(const std::vector<OtherBlocker>& others, Kind kind) {
  return std::any_of(
      others.begin(), others.end(),
      [kind](const OtherBlocker& other) { return other.kind == kind; });
}

// Whether a job that is submitted anew is free of it.
bool IsOfThisSubmission(Kind kind) {
  return kind == Kind::kHeld || kind == Kind::kArray || kind == Kind::kBackOff;
}

// What is left to be done where all of `done` end anyway; nothing: nothing.
std::optional<Remedy> Without(Remedy remedy, const std::set<JobId>& done) {
  if (!remedy.parts.empty()) {
    std::vector<Remedy> parts;
    for (Remedy& part : remedy.parts) {
      if (auto left = Without(std::move(part), done)) {
        parts.push_back(*std::move(left));
      }
    }
    if (parts.empty()) return std::nullopt;
    if (parts.size() == 1) return std::move(parts.front());
    remedy.parts = std::move(parts);
    return remedy;
  }
  if (remedy.kind != Remedy::Kind::kJobEnds) return remedy;
  std::erase_if(remedy.jobs,
                [&done](const JobId& job) { return done.contains(job); });
  if (remedy.jobs.empty()) return std::nullopt;
  return remedy;
}

class Finder {
 public:
  Finder(const ClusterState& state, const JobRecord& job,
         const std::vector<OtherBlocker>& others, const FullDiagnosis& full)
      : state_(state), job_(job), others_(others), full_(full) {}

  Changes Find() && {
    // It needs no more room than it has there.
    if (!others_.empty() && others_.back().kind == Kind::kUnclaimed) {
      return {.found = others_.back().lifted_by};
    }
    const bool has_room = full_.diagnosis.fits;
    if (!AddLifts(has_room)) return {};
    if (has_room && lifts_.empty()) return {};
    if (has_room) {
      // Others who waited for the same ends may take it.
      const bool is_rehearsed = !after_.empty() && foreseen_;
      if (is_rehearsed) TryRemedy({.kind = Remedy::Kind::kJobEnds});
      if (!is_rehearsed) changes_.found = {JoinChanges(lifts_)};
      if (others_.size() == 1) {
        const auto& ways = others_.front().lifted_by;
        changes_.found.insert(changes_.found.end(), ways.begin() + 1,
                              ways.end());
      }
      AddWithHolds();
      return std::move(changes_);
    }
    if (!foreseen_) {
      return {.found = {JoinChanges(lifts_)}, .complete = false};
    }
    changes_.complete = full_.remedies.complete;
    FindRoom();
    AddWithHolds();
    return std::move(changes_);
  }

 private:
  // False when something of it is lifted by nothing.
  bool AddLifts(bool has_room) {
    const bool again = IsKeptBy(others_, Kind::kPackage);
    for (const OtherBlocker& other : others_) {
      if (again && IsOfThisSubmission(other.kind)) continue;
      // Whoever makes room for it gives it a place.
      if (!has_room && other.kind == Kind::kArray) continue;
      if (other.lifted_by.empty()) return false;
      lifts_.push_back(other.lifted_by.front());
      if (other.kind == Kind::kAfter) {
        FindAfter();
      } else {
        let_in_ = true;
      }
    }
    return true;
  }

  // Jobs that are to end first, elements of arrays too.  What is free once
  // those have that did not start yet, nobody knows.
  void FindAfter() {
    for (const Dependency& each : job_.spec->after) {
      if (HasEnded(StateOf(state_.jobs(), each.job)
                       .value_or(JobState::kSucceeded))) {
        continue;
      }
      for (const JobId& id : state_.jobs().Named(each.job)) {
        const JobState state = state_.jobs().Find(id)->state;
        if (HasEnded(state)) continue;
        if (state == JobState::kPending || after_.size() == kAfterTried) {
          foreseen_ = false;
          return;
        }
        after_.push_back(id);
      }
    }
  }

  void FindRoom() {
    const bool at_limit =
        IsKeptBy(others_, Kind::kArray) && !IsKeptBy(others_, Kind::kPackage);
    if (!after_.empty() && TryRemedy({.kind = Remedy::Kind::kJobEnds})) return;
    if (at_limit && TryElements()) return;
    for (const Remedy& remedy : full_.remedies.found) {
      if (!IsOfRequest(remedy.kind)) {
        TryRemedy(remedy);
      } else if (!at_limit) {
        // Another submission, which is what there is room for now.
        Add(NameChange(remedy, state_.nodes()), {});
      }
    }
  }

  Overtaking Try(const Remedy& remedy) const {
    const ChangeForJob change{.remedy = remedy,
                              .request = full_.diagnosis.request,
                              .after = after_,
                              .let_in = let_in_};
    return WhoTakesIt(
        state_.nodes(), state_.attempts(),
        FindContenders(state_.line(), state_.eligibility(), state_.jobs(), job_,
                       EndsOf(change, state_.attempts()),
                       StepsOf(change, state_.attempts()) > 1),
        change);
  }

  // True when it is enough as it is.
  bool TryRemedy(const Remedy& remedy) {
    const Overtaking overtaking = Try(remedy);
    changes_.complete = changes_.complete && overtaking.known;
    if (!overtaking.known || !overtaking.helps) return false;
    const std::optional<Remedy> left =
        Without(remedy, std::set<JobId>(after_.begin(), after_.end()));
    const bool is_told = !left.has_value() && tried_after_;
    if (!left.has_value()) tried_after_ = true;
    if (is_told) return false;
    Add(left.has_value() ? NameChange(*left, state_.nodes()) : NamedChange(),
        overtaking.first);
    return overtaking.first.empty();
  }

  // Another element's end gives it the place and the room, as they ask for the
  // same; those of them that wait and come before it need theirs too.
  bool TryElements() {
    const JobId array = job_.id.array();
    const Eligibility::Kept kept = state_.eligibility().KeptBy(job_);
    const auto fewest = static_cast<size_t>(kept.before + 1);
    const std::vector<JobId> running =
        state_.eligibility().RunningOf(array, kElementsTried);
    for (size_t count = fewest; count <= running.size(); ++count) {
      Remedy ends{.kind = Remedy::Kind::kJobEnds};
      ends.jobs.assign(running.begin(),
                       running.begin() + static_cast<ptrdiff_t>(count));
      const Overtaking overtaking = Try(ends);
      if (!overtaking.known || !overtaking.helps) continue;
      // More of them may do without a hold.
      if (!overtaking.first.empty() && count < running.size()) continue;
      Add(ElementEnds(
              absl::StrCat(count == 1 ? "" : "all of ", NamesText(ends.jobs))),
          overtaking.first);
      return true;
    }
    if (fewest <= running.size()) return false;
    if (running.empty()) return false;
    Add(ElementEnds(absl::StrCat(fewest, " elements")), {});
    return true;
  }

  static NamedChange ElementEnds(const std::string& which) {
    return {.kind = "ELEMENT_ENDS",
            .of_request = false,
            .text = absl::StrCat("the end of ", which),
            .how = ""};
  }

  void AddWithHolds() {
    for (NamedChange& change : with_holds_) {
      changes_.found.push_back(std::move(change));
    }
  }

  // With what lifts the rest; empty: that is all.
  void Add(NamedChange change, const std::vector<JobId>& held) {
    std::vector<NamedChange> all = lifts_;
    if (!change.kind.empty()) all.push_back(std::move(change));
    NamedChange whole = JoinChanges(all);
    if (held.empty()) return changes_.found.push_back(std::move(whole));
    absl::StrAppend(&whole.text, ", with ", NamesText(held),
                    " held, which would take the room");
    whole.how.clear();
    with_holds_.push_back(std::move(whole));
  }

  const ClusterState& state_;
  const JobRecord& job_;
  const std::vector<OtherBlocker>& others_;
  const FullDiagnosis& full_;

  std::vector<NamedChange> lifts_;
  std::vector<JobId> after_;  // whose ends let it in
  bool let_in_ = false;       // something else has to be lifted
  bool foreseen_ = true;      // what is free then
  bool tried_after_ = false;  // what these ends do by themselves is told
  Changes changes_;
  // Such as need somebody else to be held come after the others.
  std::vector<NamedChange> with_holds_;
};

}  // namespace

Changes FindChanges(const ClusterState& state, const JobRecord& job,
                    const std::vector<OtherBlocker>& others,
                    const FullDiagnosis& full) {
  return Finder(state, job, others, full).Find();
}

}  // namespace cohort::head

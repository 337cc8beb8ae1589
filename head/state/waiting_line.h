#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "common/job_id.h"
#include "head/placement/placement.h"
#include "head/placement/placement_index.h"
#include "head/store/records.h"

namespace cohort::head {

// Who is tried before a job, of those who want what it wants.
struct Ahead {
  int64_t jobs = 0;
  bool more = false;         // there are more than were counted
  std::vector<JobId> first;  // the first of them, in line

  friend bool operator==(const Ahead&, const Ahead&) = default;
};

// What waits for resources: a new job, or slots of one that runs, from `first`
// on.
struct AskId {
  JobId job;
  int first = -1;  // -1: the whole job

  bool IsJob() const { return first < 0; }
  friend auto operator<=>(const AskId&, const AskId&) = default;
  friend bool operator==(const AskId&, const AskId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const AskId& ask) {
    return H::combine(std::move(h), ask.job, ask.first);
  }
};

// Asks that wait for resources, the highest priority first, then slots of jobs
// that run before new jobs, then in order of submission; grouped by what they
// ask for: equal requests share one failed attempt and one reason.
//
//   WL-1: a request that failed is tried again no later than something came
//         free with which it fits.
//   WL-2: it is not tried again before the nodes that changed may hold as many
//         more of its workers as found no room when it failed.
//
// A job may start before an earlier one that does not fit (there is no
// reservation yet); each release tries the line from its front.
// Thread-compatible; belongs to ClusterState, which rebuilds it from rows.
class WaitingLine {
 public:
  // REQUIRES: `job` waits nowhere.
  void Add(const JobRecord& job);
  // Slots of a job that runs.  REQUIRES: they wait nowhere.
  void AddSlots(const JobRecord& job, int first, GangRequest request);
  // Nothing when it does not wait.
  void Remove(const JobRecord& job) { Remove(job, -1); }
  void Remove(const JobRecord& job, int first);
  size_t size() const { return shapes_of_.size(); }
  // Asks that have come, all in all.
  uint64_t arrivals() const { return arrivals_; }

  // A pass over the line: the first ask whose request may fit as far as is
  // known.  None: nothing that waits can be placed.
  std::optional<AskId> Next() const;
  // The request does not fit.
  void Refuse(const AskId& ask, Refusal refusal);
  // What nodes of `nodes` have gained; who may fit now is tried again.  Takes
  // time linear in the distinct requests that failed and in the gains that
  // differ.
  void Freed(const Gains& gains, const PlacementIndex& nodes);

  bool Contains(const JobRecord& job) const { return Contains(AskId{job.id}); }
  bool Contains(const AskId& ask) const { return shapes_of_.contains(ask); }
  // What is asked for.  REQUIRES: it waits.  Valid until it is removed.
  const GangRequest& RequestFor(const AskId& ask) const {
    return shapes_of_.at(ask)->first;
  }
  // Whether any job waits that asks for this.
  bool Waits(const GangRequest& request) const {
    return shapes_.contains(request);
  }
  // What is waited for, `most` of them at most.  Valid until the line changes.
  std::vector<const GangRequest*> Requests(size_t most) const;
  // The first request after `request`, of all when null, that was refused and
  // not woken since; null: none.  Valid while a job waits with it.
  const GangRequest* NextRefused(const GangRequest* request) const;
  // Of a job that waits, and of one that would: those before it whose requests
  // `competes` picks, the first `shown` of them by name.  Looks at kCountedMax
  // of them at most.
  using Competes = absl::FunctionRef<bool(const GangRequest& other)>;
  Ahead AheadOf(const JobRecord& job, size_t shown, Competes competes) const;
  // The order: (-priority, whether it is a new job, sequence, first slot).
  using Place = std::tuple<int64_t, bool, uint64_t, int>;
  static Place PlaceOf(const JobRecord& job, int first = -1);
  // Those before a place, in their order, the first `most_each` of each
  // request, `most` in all.  Valid until the line changes.
  struct Waiting {
    JobId job;
    const GangRequest* request = nullptr;
    Place place;
  };
  std::vector<Waiting> FirstAheadOf(const Place& own, size_t most_each,
                                    Competes competes,
                                    size_t most = SIZE_MAX) const;
  // Of the jobs with sequences in [from, to) that wait with this request and
  // priority, as the elements of an array do: how many, and the first.
  struct Some {
    int64_t jobs = 0;
    std::optional<JobId> first;
  };
  Some CountSome(const GangRequest& request, int priority, uint64_t from,
                 uint64_t to) const;
  // Whether there are nodes and not even idle they hold it; also of a job that
  // does not stand in line, which costs a plan.
  bool NeverFits(const JobRecord& job, const PlacementIndex& nodes) const;
  // Whether an ask that `counts` waits for what the nodes have, though not
  // free. Looks at kLookedAtMax requests and asks of each.
  bool WantsRoom(const PlacementIndex& nodes,
                 absl::FunctionRef<bool(const JobId& job)> counts) const;
  // Why a waiting job waits, as the nodes are now; empty before it was tried.
  std::string ReasonOf(const JobRecord& job, const PlacementIndex& nodes) const;
  // The same of slots; empty when they do not wait here.
  std::string ReasonOf(const AskId& slots, const PlacementIndex& nodes) const;

 private:
  // Jobs that one answer counts: a few milliseconds.
  static constexpr int64_t kCountedMax = 100'000;
  static constexpr int kLookedAtMax = 64;

  struct Shape {
    std::map<Place, AskId> asks;
    bool refused = false;
    // Workers for which no room is known; meaningful when refused.
    int64_t missing = 0;
    mutable std::string reason;
    mutable bool never_fits = false;
    mutable uint64_t reason_version = 0;  // of the index it was made from
  };
  using Shapes = std::map<GangRequest, Shape>;

  void Add(const AskId& ask, const Place& place, GangRequest request);
  void Index(const Shape& shape);
  void Unindex(const Shape& shape);
  void TryAgain(Shape& shape);
  // With its reason as the nodes are now; null: none.
  const Shape* Refreshed(Shapes::const_iterator found,
                         const PlacementIndex& nodes) const;
  const Shape* Refreshed(const JobRecord& job,
                         const PlacementIndex& nodes) const;

  Shapes shapes_;
  // First place of each shape that may be tried.
  std::map<Place, const Shape*> heads_;
  // Of each ask: its request is made once.
  absl::flat_hash_map<AskId, Shapes::iterator> shapes_of_;
  uint64_t arrivals_ = 0;
};

// What a job asks of the planner.  Texts that do not parse, which no validated
// spec has, make a request with a fault.
GangRequest RequestOf(const JobSpec& spec);
// Of as many workers as it is to have.
GangRequest RequestOf(const JobRecord& job);

}  // namespace cohort::head

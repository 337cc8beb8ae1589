#include "head/explain/contenders.h"

#include <algorithm>
#include <map>
#include <utility>

namespace cohort::head {
namespace {

// On either side of the job: requests that differ, and jobs of each.
constexpr size_t kShapesTried = 64;
constexpr size_t kJobsTriedEach = 256;

class Finder {
 public:
  Finder(const WaitingLine& line, const Eligibility& eligibility,
         const JobTable& jobs, const JobRecord& job)
      : line_(line), eligibility_(eligibility), jobs_(jobs), job_(job) {}

  Contenders Find(const std::set<JobId>& ended, bool several_steps) && {
    if (job_.id.IsElement()) found_.own_array = ArrayOf(job_.id.array());
    AddWaiting(&WaitingLine::FirstAheadOf);
    if (several_steps) AddWaiting(&WaitingLine::FirstBehind);
    AddElements(ended);
    AddDependents(ended);
    std::stable_sort(found_.all.begin(), found_.all.end(),
                     [](const Contender& a, const Contender& b) {
                       return a.place < b.place;
                     });
    const WaitingLine::Place own = WaitingLine::PlaceOf(job_);
    found_.ahead = static_cast<size_t>(std::count_if(
        found_.all.begin(), found_.all.end(),
        [&own](const Contender& each) { return each.place < own; }));
    if (!several_steps) found_.all.resize(found_.ahead);
    return std::move(found_);
  }

 private:
  // Nothing for one without a limit.
  std::optional<size_t> ArrayOf(const JobId& id) {
    const auto known = arrays_.find(id);
    if (known != arrays_.end()) return known->second;
    const auto places = eligibility_.PlacesOf(id, /*next_max=*/0);
    if (!places.has_value()) return std::nullopt;
    const ArrayTable::Entry& entry = *jobs_.arrays().Find(id);
    const JobSpec& spec = *entry.record.spec;
    const auto in_line = line_.CountSome(
        RequestOf(spec), spec.priority, entry.first_sequence,
        entry.first_sequence + static_cast<uint64_t>(entry.size));
    found_.arrays.push_back({.id = id,
                             .limit = places->limit,
                             .taken = places->admitted - in_line.jobs});
    return arrays_[id] = found_.arrays.size() - 1;
  }

  void Add(const JobId& id, const GangRequest* request,
           WaitingLine::Place place, std::vector<JobId> after = {}) {
    if (id == job_.id) return;
    Contender& added = found_.all.emplace_back();
    added.hold = id.array() == job_.id.array() ? id : id.array();
    added.request = request;
    added.place = place;
    added.after = std::move(after);
    if (id.IsElement()) added.array = ArrayOf(id.array());
  }

  using Look = std::vector<WaitingLine::Waiting> (WaitingLine::*)(
      const JobRecord&, size_t, WaitingLine::Competes) const;

  void AddWaiting(Look look) {
    size_t shapes = 0;
    std::map<const GangRequest*, size_t> counts;
    for (const WaitingLine::Waiting& each :
         (line_.*look)(job_, kJobsTriedEach, [&shapes](const GangRequest&) {
           return ++shapes <= kShapesTried;
         })) {
      if (++counts[each.request] == kJobsTriedEach) {
        found_.cut.insert(each.request);
      }
      Add(each.job, each.request, each.place);
    }
    found_.too_many = found_.too_many || shapes > kShapesTried;
  }

  // Elements that get the places of those that end; of the job's own array
  // those that come before it.
  void AddElements(const std::set<JobId>& ended) {
    std::map<JobId, size_t> freed;
    for (const JobId& id : ended) {
      if (id.IsElement()) ++freed[id.array()];
    }
    if (found_.own_array.has_value()) freed[job_.id.array()] = kJobsTriedEach;
    for (const auto& [array, count] : freed) {
      const size_t most = std::min(count, kJobsTriedEach);
      const auto places = eligibility_.PlacesOf(array, most);
      if (!places.has_value() || places->next.empty()) continue;
      const GangRequest* const request = Own(*jobs_.Find(places->next.front()));
      for (const JobId& next : places->next) {
        Add(next, request, WaitingLine::PlaceOf(*jobs_.Find(next)));
      }
      const bool may_matter =
          WaitingLine::PlaceOf(*jobs_.Find(places->next.back())) <
          WaitingLine::PlaceOf(job_);
      if (places->more && most == kJobsTriedEach && may_matter) {
        found_.cut.insert(request);
      }
    }
  }

  void AddDependents(const std::set<JobId>& ended) {
    for (const auto& [who, after] : eligibility_.KeptOnlyBy(Over(ended))) {
      const GangRequest* request = nullptr;
      size_t added = 0;
      for (const JobId& id : jobs_.Named(who)) {
        const JobRecord& job = *jobs_.Find(id);
        if (job.state != JobState::kPending || job.held) continue;
        if (request == nullptr) request = Own(job);
        if (++added > kJobsTriedEach) {
          found_.cut.insert(request);
          break;
        }
        Add(id, request, WaitingLine::PlaceOf(job), ElementsOf(after, ended));
      }
    }
  }

  // With the arrays that have ended then.
  std::set<JobId> Over(const std::set<JobId>& ended) const {
    std::map<JobId, int64_t> elements;
    for (const JobId& id : ended) {
      if (id.IsElement()) ++elements[id.array()];
    }
    std::set<JobId> over = ended;
    for (const auto& [id, count] : elements) {
      const ArrayTable::Entry& array = *jobs_.arrays().Find(id);
      if (array.ended_count() + count == array.size) over.insert(id);
    }
    return over;
  }

  // Those of `ended` that `after` names, by themselves or by their array.
  static std::vector<JobId> ElementsOf(const std::vector<JobId>& after,
                                       const std::set<JobId>& ended) {
    std::vector<JobId> elements;
    for (const JobId& id : ended) {
      if (std::any_of(after.begin(), after.end(), [&id](const JobId& each) {
            return each == id || each == id.array();
          })) {
        elements.push_back(id);
      }
    }
    return elements;
  }

  const GangRequest* Own(const JobRecord& job) {
    return &found_.owned.emplace_back(RequestOf(*job.spec));
  }

  const WaitingLine& line_;
  const Eligibility& eligibility_;
  const JobTable& jobs_;
  const JobRecord& job_;
  Contenders found_;
  std::map<JobId, size_t> arrays_;  // where in found_
};

}  // namespace

Contenders FindContenders(const WaitingLine& line,
                          const Eligibility& eligibility, const JobTable& jobs,
                          const JobRecord& job, const std::set<JobId>& ended,
                          bool several_steps) {
  return Finder(line, eligibility, jobs, job).Find(ended, several_steps);
}

}  // namespace cohort::head

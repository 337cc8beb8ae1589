#include "head/state/job_query.h"

#include <algorithm>
#include <limits>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace cohort::head {
namespace {

bool HasPrefix(const JobId& id, absl::string_view prefix) {
  return prefix.empty() || absl::StartsWith(id.array().ToText(), prefix);
}

bool Matches(const JobQuery& query, const JobPage::Item& item) {
  const JobRecord& job = *item.job;
  const JobState state =
      item.array != nullptr ? item.array->State() : job.row.state();
  if (!query.states.empty() && !query.states.contains(state)) return false;
  const std::string& name_space = job.row.origin().namespace_();
  if (!query.name_space.empty() && name_space != query.name_space) return false;
  if (!query.granted.empty() &&
      !absl::c_linear_search(query.granted, name_space)) {
    return false;
  }
  if (!query.kinds.empty() && !query.kinds.contains(KindOf(*job.spec))) {
    return false;
  }
  if (!query.name.empty() && job.spec->name() != query.name) return false;
  for (const auto& [key, value] : query.labels) {
    const auto label = job.spec->labels().find(key);
    if (label == job.spec->labels().end() || label->second != value)
      return false;
  }
  return HasPrefix(job.id, query.id_prefix);
}

}  // namespace

v1::JobKind KindOf(const JobSpec& spec) {
  if (!spec.has_actor()) return v1::JOB_KIND_JOB;
  if (spec.actor().executor()) return v1::JOB_KIND_EXECUTOR;
  return spec.actor().dimensions().empty() ? v1::JOB_KIND_ACTOR
                                           : v1::JOB_KIND_GROUP;
}

absl::Status ValidateJobQuery(const JobTable& jobs, const JobQuery& query) {
  const JobId& array = query.array;
  if (array.IsNil() || jobs.arrays().Find(array) != nullptr) {
    return absl::OkStatus();
  }
  if (jobs.Find(array) == nullptr) return NoSuchJob(array);
  if (array.IsElement()) {
    return absl::InvalidArgumentError(
        absl::StrCat("job ", array.ToText(), " is an element: name its array, ",
                     array.array().ToText()));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("job ", array.ToText(), " is not an array of jobs"));
}

JobPage FindJobs(const JobTable& jobs, const JobQuery& query, size_t size,
                 size_t looked_max) {
  const std::map<uint64_t, JobId>& all = jobs.by_sequence();
  // What is looked at: sequences from `first` up to, not including, `past`.
  uint64_t first = 0;
  uint64_t past = query.before.value_or(std::numeric_limits<uint64_t>::max());
  if (!query.array.IsNil()) {
    const ArrayTable::Entry* array = jobs.arrays().Find(query.array);
    if (array == nullptr) return {};
    first = array->first_sequence;
    past = std::min(past, first + static_cast<uint64_t>(array->size));
  }
  if (past <= first) return {};
  const auto begin = all.lower_bound(first);
  auto end = all.lower_bound(past);
  JobPage page;
  size_t looked = 0;
  while (end != begin) {
    if (page.jobs.size() == size || looked == looked_max) {
      page.next = end == all.end() ? past : end->first;
      return page;
    }
    --end;
    ++looked;
    JobPage::Item item = {.job = jobs.Find(end->second)};
    if (query.fold_arrays && item.job->id.IsElement()) {
      item.array = jobs.arrays().Find(item.job->id.array());
      if (item.array != nullptr) {
        end = all.lower_bound(std::max(first, item.array->first_sequence));
      }
    }
    if (Matches(query, item)) page.jobs.push_back(item);
  }
  return page;
}

}  // namespace cohort::head

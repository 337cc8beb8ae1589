#include "client/explanation_wire.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "client/wire.h"
#include "common/status_macros.h"

namespace cohort::client {
namespace {

absl::StatusOr<JobId> JobFromWire(const std::string& bytes) {
  absl::StatusOr<JobId> id = JobId::FromBytes(bytes);
  if (id.ok()) return id;
  return absl::InternalError(absl::StrCat("the head's answer makes no sense: ",
                                          id.status().message()));
}

NodeFailure FromWire(const v1::NodeFailure& wire) {
  NodeFailure failure{.by = wire.by(),
                      .what = wire.what(),
                      .nodes = wire.nodes(),
                      .nodes_in_all = wire.nodes_in_all(),
                      .closest = wire.closest()};
  if (wire.short_least() > 0) {
    failure.short_least = Amount::FromTenThousandths(wire.short_least());
    failure.short_median = Amount::FromTenThousandths(wire.short_median());
  }
  if (wire.since_us() != 0) {
    failure.since = absl::FromUnixMicros(wire.since_us());
  }
  return failure;
}

absl::StatusOr<Blocker> FromWire(const v1::Blocker& wire) {
  Blocker blocker{.kind = wire.kind(),
                  .text = wire.text(),
                  .shape = wire.shape(),
                  .num_workers = wire.num_workers(),
                  .nodes = wire.nodes(),
                  .nodes_that_fit = wire.nodes_that_fit(),
                  .workers_that_fit = wire.workers_that_fit(),
                  .holders_complete = wire.holders_complete(),
                  .never_fits = wire.never_fits()};
  for (const v1::NodeFailure& failure : wire.failures()) {
    blocker.failures.push_back(FromWire(failure));
  }
  for (const v1::Holder& holder : wire.holders()) {
    Holder& out = blocker.holders.emplace_back();
    out.resource = holder.resource();
    COHORT_ASSIGN_OR_RETURN(out.job, JobFromWire(holder.job_id()));
    out.amount = Amount::FromTenThousandths(holder.amount());
    out.nodes = holder.nodes();
  }
  return blocker;
}

absl::StatusOr<Ahead> FromWire(const v1::Ahead& wire) {
  Ahead ahead{.jobs = wire.jobs(), .more = wire.more()};
  for (const v1::Ahead::First& first : wire.first()) {
    Ahead::Job& out = ahead.first.emplace_back();
    COHORT_ASSIGN_OR_RETURN(out.id, JobFromWire(first.job_id()));
    out.name = first.name();
    out.priority = first.priority();
  }
  return ahead;
}

}  // namespace

absl::StatusOr<Explanation> FromWire(const v1::ExplainJobResponse& wire) {
  Explanation explanation;
  COHORT_ASSIGN_OR_RETURN(explanation.job, JobFromWire(wire.job_id()));
  explanation.name = wire.name();
  explanation.state = JobStateFromWire(wire.state());
  explanation.summary = wire.summary();
  for (const v1::Blocker& each : wire.blockers()) {
    COHORT_ASSIGN_OR_RETURN(Blocker blocker, FromWire(each));
    explanation.blockers.push_back(std::move(blocker));
  }
  COHORT_ASSIGN_OR_RETURN(explanation.ahead, FromWire(wire.ahead()));
  for (const v1::Remedy& change : wire.changes()) {
    explanation.changes.push_back({.kind = change.kind(),
                                   .of_request = change.of_request(),
                                   .text = change.text(),
                                   .how = change.how()});
  }
  explanation.changes_complete = wire.changes_complete();
  for (const v1::WaitReason& reason : wire.history()) {
    WaitReason& out = explanation.history.emplace_back();
    out.since = absl::FromUnixMicros(reason.since_us());
    if (reason.until_us() != 0) {
      out.until = absl::FromUnixMicros(reason.until_us());
    }
    COHORT_ASSIGN_OR_RETURN(out.blocker, FromWire(reason.blocker()));
  }
  if (!wire.element_id().empty()) {
    COHORT_ASSIGN_OR_RETURN(explanation.element,
                            JobFromWire(wire.element_id()));
  }
  for (const v1::WaitingElements& elements : wire.elements()) {
    WaitingElements& out = explanation.elements.emplace_back();
    out.kind = elements.kind();
    out.count = elements.count();
    if (elements.first_id().empty()) continue;
    COHORT_ASSIGN_OR_RETURN(out.first, JobFromWire(elements.first_id()));
  }
  return explanation;
}

}  // namespace cohort::client

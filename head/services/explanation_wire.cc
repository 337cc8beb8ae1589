#include "head/services/explanation_wire.h"

#include "head/store/enum_text.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

v1::Blocker ToWire(const Wait& wait) {
  v1::Blocker wire;
  wire.set_kind(LowerEnumText(wait.kind));
  wire.set_text(wait.text);
  return wire;
}

void SetFailure(const NodeFailure& failure, v1::NodeFailure& wire) {
  wire.set_by(MisfitName(failure.by));
  wire.set_what(failure.what);
  wire.set_nodes(failure.nodes);
  wire.set_nodes_in_all(failure.nodes_in_all);
  wire.set_short_least(failure.short_least.ten_thousandths());
  wire.set_short_median(failure.short_median.ten_thousandths());
  wire.set_closest(failure.closest);
  if (failure.since != absl::InfiniteFuture() &&
      failure.since != absl::InfinitePast()) {
    *wire.mutable_since() = rpc::ToWire(failure.since);
  }
}

void SetAhead(const Ahead& ahead, const JobTable& jobs, v1::Ahead& wire) {
  wire.set_jobs(ahead.jobs);
  wire.set_more(ahead.more);
  for (const JobId& id : ahead.first) {
    v1::Ahead::First* const first = wire.add_first();
    first->set_job_id(id.bytes());
    const JobRecord* const job = jobs.Find(id);
    if (job == nullptr) continue;
    first->set_name(job->spec->name());
    first->set_priority(job->spec->priority());
  }
}

void SetRoom(const WaitReasonRecord& reason, v1::Blocker& blocker) {
  blocker.set_shape(reason.shape);
  blocker.set_num_workers(reason.num_workers);
  blocker.set_nodes(reason.nodes);
  blocker.set_nodes_that_fit(reason.nodes_that_fit);
  blocker.set_workers_that_fit(reason.workers_that_fit);
  blocker.set_never_fits(reason.never_fits);
  for (const WaitReasonRecord::Failure& failure : reason.failures) {
    v1::NodeFailure* const out = blocker.add_failures();
    out->set_by(failure.by);
    out->set_what(failure.what);
    out->set_nodes(failure.nodes);
    out->set_nodes_in_all(failure.nodes_in_all);
    out->set_short_least(failure.short_least.ten_thousandths());
    out->set_short_median(failure.short_median.ten_thousandths());
    out->set_closest(failure.closest);
  }
  for (const WaitReasonRecord::Holder& holder : reason.holders) {
    v1::Holder* const out = blocker.add_holders();
    out->set_resource(holder.resource);
    out->set_job_id(holder.job.bytes());
    out->set_amount(holder.amount.ten_thousandths());
    out->set_nodes(holder.nodes);
  }
}

void SetWait(const PastWait& wait, v1::WaitReason& wire) {
  *wire.mutable_since() = rpc::ToWire(wait.since);
  if (wait.until != absl::InfiniteFuture()) {
    *wire.mutable_until() = rpc::ToWire(wait.until);
  }
  v1::Blocker& blocker = *wire.mutable_blocker();
  blocker.set_kind(wait.kind);
  blocker.set_text(wait.text);
  if (wait.room.has_value()) SetRoom(*wait.room, blocker);
}

}  // namespace

v1::Blocker ToWire(const Diagnosis& diagnosis) {
  v1::Blocker wire;
  wire.set_kind("resources");
  wire.set_text(diagnosis.reason);
  wire.set_shape(Describe(diagnosis.request));
  wire.set_num_workers(diagnosis.request.num_workers);
  const Census& census = diagnosis.census;
  wire.set_nodes(census.nodes);
  wire.set_nodes_that_fit(census.nodes_that_fit);
  wire.set_workers_that_fit(census.workers_that_fit);
  for (const NodeFailure& failure : census.failures) {
    SetFailure(failure, *wire.add_failures());
  }
  for (const Holder& holder : diagnosis.holders) {
    v1::Holder* const out = wire.add_holders();
    out->set_resource(holder.resource);
    out->set_job_id(holder.job.bytes());
    out->set_amount(holder.amount.ten_thousandths());
    out->set_nodes(holder.nodes);
  }
  wire.set_holders_complete(diagnosis.holders_complete);
  wire.set_never_fits(diagnosis.never_fits);
  return wire;
}

v1::ExplainJobResponse ToWire(const Explanation& explanation,
                              const JobTable& jobs) {
  v1::ExplainJobResponse wire;
  wire.set_job_id(explanation.job.bytes());
  wire.set_name(explanation.name);
  wire.set_state(explanation.state);
  wire.set_summary(explanation.summary);
  for (const Wait& wait : explanation.others) {
    *wire.add_blockers() = ToWire(wait);
  }
  if (explanation.diagnosis.has_value()) {
    *wire.add_blockers() = ToWire(*explanation.diagnosis);
  }
  SetAhead(explanation.ahead, jobs, *wire.mutable_ahead());
  for (const NamedChange& change : explanation.changes) {
    v1::Remedy* const out = wire.add_changes();
    out->set_kind(change.kind);
    out->set_of_request(change.of_request);
    out->set_text(change.text);
    out->set_how(change.how);
  }
  wire.set_changes_complete(explanation.changes_complete);
  for (const PastWait& wait : explanation.history) {
    SetWait(wait, *wire.add_history());
  }
  if (explanation.element.has_value()) {
    wire.set_element_id(explanation.element->bytes());
  }
  for (const WaitingElements& elements : explanation.elements) {
    v1::WaitingElements* const out = wire.add_elements();
    out->set_kind(elements.kind);
    out->set_count(elements.count);
    if (elements.first.has_value()) {
      out->set_first_id(elements.first->bytes());
    }
  }
  return wire;
}

}  // namespace cohort::head

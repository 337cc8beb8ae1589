// What clients ask of jobs: ClusterState's part about submit, stop, hold and
// release, one job or all elements of an array.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/array_spec.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/state/array_rows.h"
#include "head/state/cause_chain.h"
#include "head/state/cluster_state.h"
#include "head/state/job_phases.h"
#include "head/state/job_spec.h"
#include "rpc/enum_text.h"

namespace cohort::head {
namespace {

// A job; of an array the element that failed it, when one has.
JobId DecidingJob(const JobTable& jobs, const JobId& id) {
  const ArrayTable::Entry* array = jobs.arrays().Find(id);
  if (array == nullptr || !array->first_failed.has_value()) return id;
  return jobs.by_sequence().at(*array->first_failed);
}

bool HasStarted(const AttemptRecord& attempt) {
  return std::any_of(attempt.processes.begin(), attempt.processes.end(),
                     [](const Process& process) {
                       return process.state >= v1::PROCESS_STATE_RUNNING;
                     });
}

// The last event of a job; 0: unknown.
uint64_t LastEventOf(const JobTable& jobs, const JobId& id) {
  const JobRecord* job = jobs.Find(DecidingJob(jobs, id));
  return job == nullptr ? 0 : job->row.origin().cause();
}

// How a job that others waited for came to its end, the first cause first.
std::vector<std::string> ChainOf(const JobTable& jobs, const JobId& id) {
  const JobId named = DecidingJob(jobs, id);
  const JobRecord* job = jobs.Find(named);
  std::vector<std::string> chain;
  if (job != nullptr) {
    chain.assign(job->row.causes().begin(), job->row.causes().end());
  }
  const JobState state =
      job != nullptr ? job->row.state() : jobs.arrays().Find(id)->State();
  chain.push_back(absl::StrCat(
      "job ", named.ToText(), " ended ", EnumText(state),
      job == nullptr || job->row.reason().empty() ? "" : ": ",
      job == nullptr ? "" : Cut(job->row.reason(), kCauseBytesMax)));
  Shorten(chain);
  return chain;
}

}  // namespace

// ---- submit ----

absl::Status ClusterState::CheckRoom(const JobSpec& spec, size_t count) const {
  const std::string& package = spec.launch().package_hash();
  if (!package.empty() && !packages_.IsWhole(package)) {
    return SetReason(absl::FailedPreconditionError(absl::StrCat(
                         "the package ", absl::BytesToHexString(package),
                         " is not complete here: upload it first")),
                     "no_package");
  }
  for (const Dependency& dependency : spec.after()) {
    if (StateOf(jobs_, JobOf(dependency)).has_value()) continue;
    return SetReason(
        absl::NotFoundError(absl::StrCat(
            "there is no job ", JobOf(dependency).ToText(),
            " here to start after: it was never submitted, or ended so long "
            "ago that it is not remembered any more")),
        "unknown_job");
  }
  const auto waiting =
      static_cast<size_t>(jobs_.CountOf(v1::JOB_STATE_PENDING));
  if (waiting + count > limits_.waiting_jobs_max) {
    return SetReason(absl::ResourceExhaustedError(absl::StrCat(
                         waiting, " jobs wait already: try again later")),
                     "too_many_jobs");
  }
  const int64_t live = jobs_.live_spec_bytes();
  const int64_t own = SpecBytes(spec);
  if (live + own <= limits_.live_spec_bytes_max) return absl::OkStatus();
  return SetReason(
      absl::ResourceExhaustedError(absl::StrCat(
          "no memory for this job's spec: it takes ", own,
          " bytes, those of jobs that wait or run take ", live, " of at most ",
          limits_.live_spec_bytes_max,
          " (try again when jobs have ended, or pass large arguments and "
          "variables in a file)")),
      "spec_memory_full");
}

absl::StatusOr<JobId> ClusterState::SubmitJob(const RequestKey& request,
                                              const std::string& name_space,
                                              JobSpec spec,
                                              Transition& transition) {
  return Mutate<JobId>(request, transition, [&](Change& change) {
    return SubmitJob(request, name_space, std::move(spec), change);
  });
}

absl::StatusOr<JobId> ClusterState::SubmitJob(const RequestKey& request,
                                              const std::string& name_space,
                                              JobSpec spec, Change& change) {
  FillJobSpec(spec);
  COHORT_RETURN_IF_ERROR(ValidateJobSpec(spec, name_space));
  COHORT_RETURN_IF_ERROR(SetStartTime(clock_.Wall(), spec));
  COHORT_RETURN_IF_ERROR(CheckActor(spec, name_space));
  if (box_ != nullptr) {
    for (auto& [name, value] : *spec.mutable_launch()->mutable_secrets()) {
      value = box_->Seal(value, random_);
    }
  }
  ArraySpec array;
  if (!spec.array().empty()) {
    COHORT_ASSIGN_OR_RETURN(array, ArraySpec::Parse(spec.array()));
  }
  COHORT_RETURN_IF_ERROR(
      CheckRoom(spec, std::max<size_t>(array.indices.size(), 1)));
  JobRecord job(JobId::New(random_));
  Origin& origin = *job.row.mutable_origin();
  origin.set_namespace_(name_space);
  origin.set_principal(request.principal);
  origin.set_user(request.user);
  origin.set_request_id(request.request_id);
  job.spec = std::move(spec);
  job.row.set_num_workers(job.spec->scaling().num_workers());
  job.row.set_held(job.spec->hold());
  if (job.row.held()) job.row.set_held_by(request.principal);
  job.row.set_submitted_at_us(ToMicros(clock_.Wall()));
  const JobId id = job.id;
  if (array.indices.empty()) {
    AddJobEvent(job, AttemptId(), "job_submitted", job.spec->name(), change);
    change.Put(SpecRecord{.id = id, .spec = job.spec});
    job.row.set_sequence(cluster_.next_job_sequence());
    cluster_.set_next_job_sequence(job.row.sequence() + 1);
    AddJob(std::move(job), change);
  } else {
    AddArray(std::move(job), array.indices, change);
  }
  PlaceWaiting(change);
  JobRecord* added = jobs_.FindMutable(id);
  if (added != nullptr && added->row.state() == v1::JOB_STATE_PENDING) {
    added->row.set_reason(ReasonOf(*added));
    change.watched.insert(id);  // drivers hear that it wants room
  }
  return id;
}

void ClusterState::AddJob(JobRecord job, Change& change) {
  const JobId id = job.id;
  if (!job.spec->launch().package_hash().empty())
    packages_.Pin(job.spec->launch().package_hash());
  jobs_.Add(std::move(job));
  const JobRecord& added = *jobs_.Find(id);
  gates_.Added(added);
  drivers_.AddActor(added);
  StandInLine(added);
  NotePhase(PhaseOf(added), added.submitted_at(), *jobs_.FindMutable(id));
  change.cluster = true;
  if (!added.behind) change.jobs.insert(id);
}

void ClusterState::AddArray(JobRecord model,
                            const std::vector<uint32_t>& indices,
                            Change& change) {
  const JobId id = model.id;
  AddJobEvent(
      model, AttemptId(), "job_submitted",
      absl::StrCat(model.spec->name(), model.spec->name().empty() ? "" : ", ",
                   indices.size(), " elements"),
      change);
  change.jobs.erase(id);  // it is not a job itself
  uint64_t sequence = cluster_.next_job_sequence();
  cluster_.set_next_job_sequence(sequence + indices.size());
  ArrayRecord record{.id = id, .spec = model.spec, .row = {}};
  record.row.set_array_id(IdBytes(id));
  *record.row.mutable_origin() = model.row.origin();
  record.row.set_submitted_at_us(model.row.submitted_at_us());
  record.row.set_first_sequence(sequence);
  change.Put(SpecRecord{.id = id, .spec = record.spec});
  change.arrays.insert(id);
  jobs_.AddArray(record);
  for (const uint32_t index : indices) {
    AddJob(NewElement(record, index, sequence++), change);
  }
  WriteElements(change);
}

// ---- stop, hold, release ----

uint64_t ClusterState::TellOf(const JobId& id, const char* kind,
                              std::string text, Change& change) {
  if (JobRecord* job = jobs_.FindMutable(id)) {
    AddJobEvent(*job, AttemptId(), kind, std::move(text), change);
    return job->row.origin().cause();
  }
  const Origin& origin = jobs_.arrays().Find(id)->record.row.origin();
  EventRecord event =
      EventOf(kind, std::move(text), {.job = id, .cause = origin.cause()});
  event.set_namespace_(origin.namespace_());
  event.set_principal(origin.principal());
  event.set_request_id(origin.request_id());
  return AddEvent(std::move(event), change);
}

absl::StatusOr<std::vector<JobId>> ClusterState::JobsOf(const JobId& id) const {
  std::vector<JobId> jobs = jobs_.Named(id);
  if (jobs.empty()) return NoJob(id);
  return jobs;
}

absl::Status ClusterState::NoJob(const JobId& id) const {
  const OrphanTable::Entry* const entry = orphans_.OfJob(id);
  if (entry == nullptr) return NoSuchJob(id);
  const std::string attempt = entry->attempt.ToHex();
  return SetReason(
      absl::NotFoundError(absl::StrCat(
          "the store that was restored does not know job ", id.ToText(),
          "; attempt ", attempt, " of it is an orphan: `cohort end ", attempt,
          "` ends it")),
      "unknown_job");
}

absl::Status ClusterState::StopJob(const RequestKey& request, const JobId& id,
                                   Transition& transition) {
  return Mutate<JobId>(request, transition,
                       [&](Change& change) { return StopJob(id, change); })
      .status();
}

absl::StatusOr<JobId> ClusterState::StopJob(const JobId& id, Change& change) {
  const ArrayTable::Entry* const array = jobs_.arrays().Find(id);
  JobRecord* const job = jobs_.FindMutable(id);
  if (array == nullptr && job == nullptr) return NoJob(id);
  if (job != nullptr) {
    Stop(*job, change);
  } else if (!array->HasEnded()) {
    change.cause = TellOf(id, "job_stop_requested", "", change);
    ArrayEnd end;
    end.set_to(v1::JOB_STATE_STOPPED);
    end.set_reason(kStoppedOnRequest);
    end.set_cause(change.cause);
    EndArray(id, std::move(end), change);
  }
  return id;
}

void ClusterState::Stop(JobRecord& job, Change& change,
                        const std::string& why) {
  // Who stops the job speaks for its attempt.
  const bool quietly = std::exchange(change.quietly, false);
  const AttemptRecord* last = attempts_.LastOf(job.id);
  if (last != nullptr && last->orphaned()) Claim(last->id, change);
  if (job.row.state() == v1::JOB_STATE_PENDING) {
    change.quietly = quietly;
    job.row.set_reason(why);
    MoveJob(job, v1::JOB_STATE_STOPPED, change);
    change.quietly = false;
  } else if (job.row.state() == v1::JOB_STATE_STARTING ||
             job.row.state() == v1::JOB_STATE_RUNNING) {
    AttemptRecord& attempt =
        *attempts_.FindMutable(attempts_.LastOf(job.id)->id);
    if (!quietly) {
      AddJobEvent(job, attempt.id, "job_stop_requested", "", change);
    }
    ApplyOutcome(job, attempt, controller_.Stop(job, attempt, why), change);
  }
}

absl::Status ClusterState::HoldJob(const RequestKey& request, const JobId& id,
                                   Transition& transition) {
  return Mutate<JobId>(request, transition,
                       [&](Change& change) { return HoldJob(id, change); })
      .status();
}

absl::StatusOr<JobId> ClusterState::HoldJob(const JobId& id, Change& change) {
  COHORT_ASSIGN_OR_RETURN(std::vector<JobId> jobs, JobsOf(id));
  const auto runs = [this](const JobId& each) {
    return jobs_.Find(each)->row.state() != v1::JOB_STATE_PENDING;
  };
  jobs.erase(std::remove_if(jobs.begin(), jobs.end(), runs), jobs.end());
  if (jobs.empty()) {
    return SetReason(
        absl::FailedPreconditionError(absl::StrCat(
            "job ", id.ToText(), " is ", EnumText(*StateOf(jobs_, id)),
            ": only what waits can be held; `cohort jobs stop` ends what "
            "runs")),
        "not_waiting");
  }
  const auto is_held = [this](const JobId& each) {
    return jobs_.Find(each)->row.held();
  };
  if (!std::all_of(jobs.begin(), jobs.end(), is_held)) {
    HoldAll(id, jobs, /*held=*/true, change);
  }
  return id;
}

void ClusterState::HoldAll(const JobId& id, const std::vector<JobId>& jobs,
                           bool held, Change& change) {
  ArrayHold hold;
  hold.set_held(held);
  if (held) hold.set_by(change.principal);
  hold.set_cause(TellOf(id, held ? "job_held" : "job_released", "", change));
  for (const JobId& each : jobs) {
    JobRecord& job = *jobs_.FindMutable(each);
    if (!SetHeld(hold, job)) continue;
    job.behind = each.IsElement();
    if (held) {
      LeaveLine(job);
      // From now on it is kept: another element has its place (EL-2).
      gates_.Pass(job);
    } else {
      StandInLine(job);
    }
  }
  if (jobs_.arrays().Find(id) == nullptr) return;
  jobs_.SetArrayHold(id, hold);
  change.arrays.insert(id);
  WriteElements(change);
}

absl::Status ClusterState::ReleaseJob(const RequestKey& request,
                                      const JobId& id, Transition& transition) {
  return Mutate<JobId>(request, transition,
                       [&](Change& change) { return ReleaseJob(id, change); })
      .status();
}

absl::StatusOr<JobId> ClusterState::ReleaseJob(const JobId& id,
                                               Change& change) {
  COHORT_ASSIGN_OR_RETURN(std::vector<JobId> jobs, JobsOf(id));
  const JobState whole = *StateOf(jobs_, id);
  if (HasEnded(whole)) {
    return SetReason(absl::FailedPreconditionError(absl::StrCat(
                         "job ", id.ToText(), " is ", EnumText(whole),
                         ": only what waits can be released")),
                     "not_waiting");
  }
  std::erase_if(jobs, [this](const JobId& each) {
    const JobRecord& job = *jobs_.Find(each);
    return !job.row.held() || job.row.state() != v1::JOB_STATE_PENDING;
  });
  if (!jobs.empty()) HoldAll(id, jobs, /*held=*/false, change);
  return id;
}

absl::Status ClusterState::RemoveJob(const RequestKey& request, const JobId& id,
                                     Transition& transition) {
  return Mutate<JobId>(request, transition,
                       [&](Change& change) { return RemoveJob(id, change); })
      .status();
}

absl::StatusOr<JobId> ClusterState::RemoveJob(const JobId& id, Change& change) {
  COHORT_RETURN_IF_ERROR(JobsOf(id).status());
  const JobState state = *StateOf(jobs_, id);
  const auto refuse = [&id](absl::string_view why) {
    return SetReason(absl::FailedPreconditionError(
                         absl::StrCat("job ", id.ToText(), " ", why)),
                     "not_removable");
  };
  if (id.IsElement()) {
    return refuse(
        absl::StrCat("is an element: remove its array, ", id.array().ToText()));
  }
  if (!HasEnded(state)) {
    return refuse(absl::StrCat("is ", EnumText(state),
                               ": only what has ended can be removed "
                               "(`cohort jobs stop` ends it)"));
  }
  if (!history_.MayForget(id)) {
    return refuse(
        "is waited for by other jobs, or an attempt of it has not "
        "ended (try again when they have)");
  }
  TellOf(id, "job_removed", "", change);
  history_.Forget(id, change);
  return id;
}

// ---- how long they ran ----

absl::Duration ClusterState::RanOf(const JobRecord& job) const {
  const AttemptRecord* last = attempts_.LastOf(job.id);
  if (last == nullptr || last->state == v1::ATTEMPT_STATE_ENDED) {
    return job.ran();
  }
  const auto since = running_since_.find(last->id);
  if (since != running_since_.end()) {
    return job.ran() + clock_.Monotonic() - since->second;
  }
  // A gang that starts runs once all of its parts do.
  const bool runs_yet = job.row.state() != v1::JOB_STATE_STARTING &&
                        job.started_at() != absl::InfinitePast();
  if (!runs_yet || !HasStarted(*last)) return job.ran();
  // It ran before this head started.
  absl::Time began = job.started_at();
  if (job.row.attempts() > 1 && !job.row.phases().empty()) {
    began = FromMicros(job.row.phases().rbegin()->since_us());
  }
  const absl::Duration runs = clock_.Wall() - began;
  return job.ran() + std::max(runs, absl::ZeroDuration());
}

// ---- what keeps jobs from the line ----

void ClusterState::StandInLine(const JobRecord& job) {
  if (orphans_.Keeps(job)) {
    return jobs_.SetGate(job.id, v1::WAIT_KIND_ORPHAN);  // until Requeue (OR-2)
  }
  const AttemptRecord* last = attempts_.LastOf(job.id);
  // It begins with the end of the attempt, whatever keeps the job besides.
  if (last != nullptr) {
    gates_.back_off().Begin(job.id, RetryDelayAfter(job, *last));
  }
  if (!WillEnd(job) && gates_.Pass(job)) line_.Add(job);
}

void ClusterState::LeaveLine(const JobRecord& job) {
  line_.Remove(job);
  gates_.Leave(job);
}

void ClusterState::Occupy(const JobRecord& job, Change& change) {
  LeaveLine(job);
  StandInLine(job);
  TellPhase(job, change);
  for (const JobId& id : gates_.array().Occupy(job)) {
    const JobRecord& displaced = *jobs_.Find(id);
    LeaveLine(displaced);
    StandInLine(displaced);
    TellPhase(displaced, change);
  }
}

WaitKind ClusterState::PhaseOf(const JobRecord& job) const {
  return job.row.state() == v1::JOB_STATE_PENDING ? gates_.PhaseOf(job)
                                                  : v1::WAIT_KIND_NOTHING;
}

void ClusterState::AdmitReady(Change& change) {
  EndElements(change);
  FailBroken(change);
  // Who may not come after all leaves a place to others.
  for (;;) {
    const std::vector<JobId> opened = gates_.TakeOpened();
    if (opened.empty()) return;
    AskAgain(opened, change);
  }
}

void ClusterState::AskAgain(const std::vector<JobId>& jobs, Change& change) {
  for (const JobId& id : jobs) {
    const JobRecord* job = jobs_.Find(id);
    if (job == nullptr || job->row.state() != v1::JOB_STATE_PENDING) continue;
    // Another of its gates may have let it in, in this decision.
    if (!line_.Contains(*job)) StandInLine(*job);
    TellPhase(*job, change);
  }
}

void ClusterState::FailBroken(Change& change) {
  while (!TurnIsFull(change)) {
    const std::optional<Dependencies::Broken> broken =
        gates_.after().TakeBroken();
    if (!broken.has_value()) return;
    FailWaiting(*broken, change);
  }
}

void ClusterState::FailWaiting(const Dependencies::Broken& broken,
                               Change& change) {
  const JobState state = *StateOf(jobs_, broken.dependency);
  const std::string reason =
      absl::StrCat("it was to start after ", broken.dependency.ToText(),
                   " had SUCCEEDED, which ended ", EnumText(state));
  const std::vector<std::string> chain = ChainOf(jobs_, broken.dependency);
  const uint64_t before =
      std::exchange(change.cause, LastEventOf(jobs_, broken.dependency));
  JobRecord* const job = jobs_.FindMutable(broken.who);
  const ArrayTable::Entry* const array = jobs_.arrays().Find(broken.who);
  if (job != nullptr && job->row.state() == v1::JOB_STATE_PENDING) {
    job->row.set_reason(reason);
    job->row.mutable_causes()->Assign(chain.begin(), chain.end());
    MoveJob(*job, v1::JOB_STATE_FAILED, change);
  } else if (array != nullptr && !array->record.row.has_end() &&
             array->CountOf(v1::JOB_STATE_PENDING) > 0) {
    // Some elements may have been stopped.
    ArrayEnd end;
    end.set_to(v1::JOB_STATE_FAILED);
    end.set_reason(reason);
    end.mutable_causes()->Assign(chain.begin(), chain.end());
    end.set_cause(TellOf(broken.who, "job_moved",
                         absl::StrCat("FAILED: ", reason), change));
    EndArray(broken.who, std::move(end), change);
  }
  change.cause = before;
}

void ClusterState::FailWithoutPackage(const JobRecord& failed, Change& change) {
  // It may have been uploaded again meanwhile.
  if (!failed.id.IsElement() || !HasEnded(failed.row.state()) ||
      packages_.IsWhole(failed.spec->launch().package_hash())) {
    return;
  }
  const JobId array = failed.id.array();
  const ArrayTable::Entry* const entry = jobs_.arrays().Find(array);
  if (entry == nullptr || entry->record.row.has_end() ||
      entry->CountOf(v1::JOB_STATE_PENDING) == 0) {
    return;
  }
  std::vector<JobId> jobs = jobs_.Named(array);
  // Who is held may yet find its package there.
  std::erase_if(jobs, [this](const JobId& each) {
    const JobRecord& job = *jobs_.Find(each);
    return job.row.state() != v1::JOB_STATE_PENDING || job.row.held() ||
           orphans_.OfJob(each) != nullptr;
  });
  if (jobs.empty()) return;
  const std::string reason =
      absl::StrCat("as job ", failed.id.ToText(), ", ", failed.row.reason());
  const uint64_t before =
      std::exchange(change.cause, failed.row.origin().cause());
  ArrayEnd end;
  end.set_to(v1::JOB_STATE_FAILED);
  end.set_reason(reason);
  *end.mutable_causes() = failed.row.causes();
  end.set_failure_class(failed.row.failure_class());
  end.set_spares_held(true);
  end.set_cause(TellOf(
      array, "job_moved",
      absl::StrCat("FAILED, ", jobs.size(), " elements that waited: ", reason),
      change));
  EndArray(array, std::move(end), change);
  change.cause = before;
}

}  // namespace cohort::head

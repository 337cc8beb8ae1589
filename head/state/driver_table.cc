#include "head/state/driver_table.h"

#include <utility>

#include "common/check.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

DriverId IdOfRow(const DriverRecord& record) {
  return DriverId::FromBytes(record.driver_id()).value_or(DriverId());
}

std::pair<std::string, std::string> NameOf(const JobRecord& job) {
  return {job.row.origin().namespace_(), job.spec->name()};
}

// One that is being ended has its name until another takes it.
bool KeepsName(const JobRecord& job) {
  return job.row.state() != v1::JOB_STATE_STOPPING;
}

}  // namespace

DriverId DriverOf(const JobSpec& spec) {
  return DriverId::FromBytes(spec.actor().driver_id()).value_or(DriverId());
}

ProcessId OwnerOf(const DriverRecord& driver) {
  return {.attempt =
              AttemptId::FromBytes(driver.attempt_id()).value_or(AttemptId()),
          .slot = driver.slot(),
          .incarnation = driver.incarnation()};
}

void DriverTable::Add(DriverRecord record) {
  const DriverId id = IdOfRow(record);
  const AttemptId attempt = OwnerOf(record).attempt;
  if (!attempt.IsNil()) by_attempt_[attempt].insert(id);
  if (record.ending()) ending_.emplace(id, JobId());
  const bool is_new = drivers_.emplace(id, std::move(record)).second;
  COHORT_CHECK(is_new) << id;
}

const DriverRecord* DriverTable::Find(const DriverId& driver) const {
  const auto found = drivers_.find(driver);
  return found == drivers_.end() ? nullptr : &found->second;
}

void DriverTable::SetEnding(const DriverId& driver, std::string reason) {
  DriverRecord& record = drivers_.at(driver);
  record.set_ending(true);
  record.set_reason(std::move(reason));
  unowned_.erase(driver);
  ending_.emplace(driver, JobId());
}

void DriverTable::SetTold(const DriverId& driver, const JobId& up_to) {
  const auto found = ending_.find(driver);
  if (found != ending_.end()) found->second = up_to;
}

void DriverTable::TellAgain(const DriverId& driver) {
  const DriverRecord* const record = Find(driver);
  if (record != nullptr && record->ending()) ending_[driver] = JobId();
}

void DriverTable::Remove(const DriverId& driver) {
  const auto at = drivers_.find(driver);
  COHORT_CHECK(at != drivers_.end()) << driver;
  const auto of_attempt = by_attempt_.find(OwnerOf(at->second).attempt);
  if (of_attempt != by_attempt_.end()) {
    of_attempt->second.erase(driver);
    if (of_attempt->second.empty()) by_attempt_.erase(of_attempt);
  }
  drivers_.erase(at);
  ending_.erase(driver);
  unowned_.erase(driver);
}

const std::set<DriverId>& DriverTable::OfAttempt(
    const AttemptId& attempt) const {
  static const auto& none = *new std::set<DriverId>();
  const auto found = by_attempt_.find(attempt);
  return found == by_attempt_.end() ? none : found->second;
}

void DriverTable::NoteUnowned(const DriverId& driver) {
  if (!drivers_.at(driver).ending()) unowned_.insert(driver);
}

void DriverTable::AddActor(const JobRecord& job) {
  if (!job.spec->has_actor()) return;
  const DriverId driver = DriverOf(*job.spec);
  if (!driver.IsNil()) actors_[driver].insert(job.id);
  if (job.spec->name().empty()) return;
  if (KeepsName(job)) {
    names_[NameOf(job)] = job.id;
  } else {
    names_.emplace(NameOf(job), job.id);
  }
}

void DriverTable::RemoveActor(const JobRecord& job) {
  if (!job.spec->has_actor()) return;
  const auto owned = actors_.find(DriverOf(*job.spec));
  if (owned != actors_.end() && owned->second.erase(job.id) == 1 &&
      owned->second.empty()) {
    actors_.erase(owned);
  }
  const auto named = names_.find(NameOf(job));
  if (named != names_.end() && named->second == job.id) names_.erase(named);
}

const std::set<JobId>& DriverTable::ActorsOf(const DriverId& driver) const {
  static const auto& none = *new std::set<JobId>();
  const auto found = actors_.find(driver);
  return found == actors_.end() ? none : found->second;
}

JobId DriverTable::ActorNamed(const std::string& name_space,
                              const std::string& name) const {
  const auto found = names_.find({name_space, name});
  return found == names_.end() ? JobId() : found->second;
}

}  // namespace cohort::head

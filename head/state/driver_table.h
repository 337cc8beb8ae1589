#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "common/job_id.h"
#include "common/process_id.h"
#include "common/strong_id.h"
#include "head/store/records.h"

namespace cohort::head {

// Programs that own actors, and which actors live: each is a job with
// `JobSpec.actor` that has not ended.
//
//   AC-1: of the live actors of a namespace at most one has a given name.
//
// The actors are derived from jobs, the drivers are rows.  Thread-compatible;
// belongs to ClusterState.
class DriverTable {
 public:
  // REQUIRES: its id is new.
  void Add(DriverRecord record);
  // Null: there is none, or it is gone.
  const DriverRecord* Find(const DriverId& driver) const;
  // From now on its actors are to end.  REQUIRES: it is here.
  void SetEnding(const DriverId& driver, std::string reason);
  // REQUIRES: it is here.
  void Remove(const DriverId& driver);

  // Of a job that has not ended; nothing for one that is not an actor.
  void AddActor(const JobRecord& job);
  // Of one that has; nothing for one that is not here.
  void RemoveActor(const JobRecord& job);

  // Those that are processes of that attempt.
  const std::set<DriverId>& OfAttempt(const AttemptId& attempt) const;
  // Its process is gone: it is to end, too.  Nothing for one that is ending.
  void NoteUnowned(const DriverId& driver);
  // Those noted that are not ending yet.
  const std::set<DriverId>& unowned() const { return unowned_; }

  const std::set<JobId>& ActorsOf(const DriverId& driver) const;
  // Nil: no live actor has that name.
  JobId ActorNamed(const std::string& name_space,
                   const std::string& name) const;

  // Those that are ending and own actors which were not told to, each with the
  // actor up to which all were.
  const std::map<DriverId, JobId>& ending() const { return ending_; }
  // Nothing for one that is not there.
  void SetTold(const DriverId& driver, const JobId& up_to);
  void AllTold(const DriverId& driver) { ending_.erase(driver); }
  // One of its actors was passed over: if it is ending, all are told again.
  void TellAgain(const DriverId& driver);
  size_t size() const { return drivers_.size(); }
  const std::map<DriverId, DriverRecord>& records() const { return drivers_; }

 private:
  std::map<DriverId, DriverRecord> drivers_;
  std::map<DriverId, JobId> ending_;
  std::map<AttemptId, std::set<DriverId>> by_attempt_;
  std::set<DriverId> unowned_;
  std::map<DriverId, std::set<JobId>> actors_;
  // By namespace and name.
  std::map<std::pair<std::string, std::string>, JobId> names_;
};

// Whose actor the job is; nil: nobody's, as it is detached or no actor.
DriverId DriverOf(const JobSpec& spec);

// The process that the driver is; its attempt is nil: of no job.
ProcessId OwnerOf(const DriverRecord& driver);

}  // namespace cohort::head

// Programs that own actors: ClusterState's part about their sessions, and the
// end of their actors in turns (BD-1, docs/design/0012-actors.md).

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/state/cluster_state.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

constexpr absl::Duration kDefaultDriverTimeout = absl::Seconds(30);
constexpr absl::Duration kDriverTimeoutMax = absl::Hours(24);
constexpr size_t kDriverNameBytesMax = 256;

absl::Status SessionOver(const DriverId& driver) {
  return SetReason(
      absl::NotFoundError(absl::StrCat(
          "the session of driver ", driver.ToHex(),
          " is over: the head waited for it, and its actors were ended (start "
          "the program again; RuntimeOptions::driver_timeout makes the head "
          "wait "
          "longer)")),
      "session_over");
}

std::string TextOf(const DriverRecord& driver) {
  return absl::StrCat("driver ", driver.name());
}

}  // namespace

absl::StatusOr<DriverId> ClusterState::OpenDriver(
    const std::string& principal, const std::optional<ProcessId>& owner,
    const v1::OpenDriver& request, Transition& transition) {
  if (request.name().size() > kDriverNameBytesMax ||
      !IsPrintableUtf8(request.name())) {
    return absl::InvalidArgumentError(
        absl::StrCat("the driver's name is not one line of at most ",
                     kDriverNameBytesMax, " bytes: shorten it"));
  }
  const absl::Duration timeout = request.has_timeout()
                                     ? rpc::FromWire(request.timeout())
                                     : kDefaultDriverTimeout;
  if (timeout <= absl::ZeroDuration() || timeout > kDriverTimeoutMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("driver timeout ", absl::FormatDuration(timeout),
                     " is not possible: it is above 0 and at most ",
                     absl::FormatDuration(kDriverTimeoutMax)));
  }
  if (drivers_.size() >= limits_.drivers_max) {
    return SetReason(absl::ResourceExhaustedError(absl::StrCat(
                         drivers_.size(),
                         " drivers are connected already, which is all that "
                         "the head serves: try again when some have ended")),
                     "too_many_drivers");
  }
  DriverRecord record;
  if (owner.has_value()) {
    record.set_attempt_id(IdBytes(owner->attempt));
    record.set_slot(owner->slot);
    record.set_incarnation(owner->incarnation);
    if (!IsOwned(record)) {
      return SetReason(absl::FailedPreconditionError(absl::StrCat(
                           "process ", owner->ToText(),
                           " is over, says the head: it can own no actors")),
                       "session_over");
    }
  }
  Change change;
  change.principal = principal;
  const DriverId id = DriverId::New(random_);
  record.set_driver_id(IdBytes(id));
  record.mutable_origin()->set_principal(principal);
  record.set_name(request.name());
  record.set_opened_at_us(ToMicros(clock_.Wall()));
  record.set_timeout_us(absl::ToInt64Microseconds(timeout));
  change.Put(record);
  drivers_.Add(std::move(record));
  AddEvent(EventOf("driver_opened", request.name()), change);
  Finish(change, transition);
  return id;
}

absl::Status ClusterState::ResumeDriver(const DriverId& driver) {
  const DriverRecord* const record = drivers_.Find(driver);
  if (record == nullptr || record->ending() || !IsOwned(*record)) {
    return SessionOver(driver);
  }
  deadlines_.Erase({DueKind::kDriver, driver});
  return absl::OkStatus();
}

void ClusterState::AwaitDriver(const DriverId& driver) {
  const DriverRecord* const record = drivers_.Find(driver);
  if (record == nullptr || record->ending()) return;
  deadlines_.Set({DueKind::kDriver, driver},
                 absl::Microseconds(record->timeout_us()));
}

void ClusterState::EndDriver(const DriverId& driver, absl::string_view why,
                             Transition& transition) {
  Change change;
  EndDriver(driver, why, change);
  PlaceWaiting(change);
  Finish(change, transition);
}

void ClusterState::EndDriver(const DriverId& driver, absl::string_view why,
                             Change& change) {
  const DriverRecord* const record = drivers_.Find(driver);
  if (record == nullptr || record->ending()) return;
  deadlines_.Erase({DueKind::kDriver, driver});
  drivers_.SetEnding(driver, absl::StrCat(TextOf(*record), " ", why));
  AddEvent(EventOf("driver_ended", record->reason()), change);
  change.drivers.insert(driver);
  EndActors(change);
}

bool ClusterState::IsOwned(const DriverRecord& driver) const {
  const ProcessId owner = OwnerOf(driver);
  if (owner.attempt.IsNil()) return true;
  const AttemptRecord* const attempt = attempts_.Find(owner.attempt);
  if (attempt == nullptr || owner.slot < 0 ||
      owner.slot >= static_cast<int>(attempt->processes.size())) {
    return false;
  }
  const Process& process = attempt->processes[static_cast<size_t>(owner.slot)];
  return process.incarnation == owner.incarnation && !process.waits() &&
         process.state < v1::PROCESS_STATE_EXITED;
}

void ClusterState::NoteUnownedDrivers(const Change& change) {
  const auto look_at = [this](const AttemptId& attempt) {
    for (const DriverId& driver : drivers_.OfAttempt(attempt)) {
      if (!IsOwned(*drivers_.Find(driver))) drivers_.NoteUnowned(driver);
    }
  };
  for (const AttemptId& attempt : change.attempts) look_at(attempt);
  for (const auto& [attempt, slots] : change.slots) look_at(attempt);
}

void ClusterState::EndUnownedDrivers(Change& change) {
  NoteUnownedDrivers(change);
  // As those that are absent: the processes may be at another head.
  while (!drivers_.unowned().empty() && !cluster_.settling() &&
         !TurnIsFull(change)) {
    const DriverId driver = *drivers_.unowned().begin();
    EndDriver(driver,
              absl::StrCat("has ended with rank ",
                           drivers_.Find(driver)->slot(), " of its job"),
              change);
    // What ended may have owned drivers itself.
    if (drivers_.unowned().empty()) NoteUnownedDrivers(change);
  }
  if (!drivers_.unowned().empty()) NoteUnownedDrivers(change);
}

void ClusterState::EndAbsentDrivers(Change& change) {
  // A restored store may know drivers that are at another head.
  if (cluster_.settling()) return;
  while (!TurnIsFull(change)) {
    const auto due = deadlines_.TakeDue(DueKind::kDriver, 1);
    if (due.empty()) return;
    const DriverId& driver = due.front().driver();
    const absl::Duration timeout =
        absl::Microseconds(drivers_.Find(driver)->timeout_us());
    EndDriver(driver,
              absl::StrCat("was away for ", absl::FormatDuration(timeout)),
              change);
  }
}

void ClusterState::EndActors(Change& change) {
  while (!drivers_.ending().empty()) {
    const DriverId driver = drivers_.ending().begin()->first;
    if (!EndActorsOf(driver, change)) return;
    drivers_.AllTold(driver);
    ForgetDriver(driver, change);
  }
}

bool ClusterState::EndActorsOf(const DriverId& driver, Change& change) {
  const std::string why = drivers_.Find(driver)->reason();
  JobId told = drivers_.ending().at(driver);
  for (;;) {
    // One that waits leaves them at once.
    const std::set<JobId>& actors = drivers_.ActorsOf(driver);
    const auto next = actors.upper_bound(told);
    if (next == actors.end()) return true;
    if (TurnIsFull(change)) break;
    told = *next;
    // What becomes of an orphan a person says.
    if (orphans_.OfJob(told) != nullptr) continue;
    Stop(*jobs_.FindMutable(told), change, why);
  }
  drivers_.SetTold(driver, told);
  return false;
}

void ClusterState::ForgetDriver(const DriverId& driver, Change& change) {
  const DriverRecord* const record = drivers_.Find(driver);
  if (record == nullptr || !record->ending() ||
      !drivers_.ActorsOf(driver).empty()) {
    return;
  }
  change.drivers.erase(driver);
  change.Delete<DriverRecord>(record->driver_id());
  drivers_.Remove(driver);
}

absl::Status ClusterState::CheckActor(const JobSpec& spec,
                                      const std::string& name_space) const {
  if (!spec.has_actor()) return absl::OkStatus();
  const DriverId driver = DriverOf(spec);
  if (!driver.IsNil()) {
    const DriverRecord* const record = drivers_.Find(driver);
    if (record == nullptr || record->ending() || !IsOwned(*record)) {
      return SessionOver(driver);
    }
  }
  const JobId other = spec.name().empty()
                          ? JobId()
                          : drivers_.ActorNamed(name_space, spec.name());
  // Who was killed may take its time, and its name is free.
  if (other.IsNil() ||
      jobs_.Find(other)->row.state() == v1::JOB_STATE_STOPPING) {
    return absl::OkStatus();
  }
  return SetReason(
      absl::AlreadyExistsError(absl::StrCat(
          "name \"", spec.name(), "\" is taken: actor ", other.ToText(),
          " of namespace ", name_space,
          " has it (GetActor finds it; choose another name, or kill it)")),
      "name_taken");
}

}  // namespace cohort::head

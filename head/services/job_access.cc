#include "head/services/job_access.h"

#include "absl/strings/str_cat.h"

#include "head/state/attempt_table.h"
#include "head/state/driver_table.h"

namespace cohort::head {
namespace {

bool IsRank(const rpc::Principal& principal) {
  return principal.role == rpc::Role::kRank;
}

// Nil: the head does not know the attempt.
JobId JobOf(const ClusterState& state, const AttemptId& attempt) {
  const AttemptRecord* const record = state.attempts().Find(attempt);
  return record == nullptr ? JobId() : record->job;
}

}  // namespace

JobId JobOfRank(const ClusterState& state, const rpc::Principal& rank) {
  const AttemptRecord* const record =
      state.attempts().Find(rank.process.attempt);
  if (record == nullptr) return JobId();
  const auto slot = static_cast<size_t>(rank.process.slot);
  const bool is_there =
      rank.node.IsNil() || (slot < record->processes.size() &&
                            record->processes[slot].node == rank.node);
  return is_there ? record->job : JobId();
}

std::string UserOfRank(const ClusterState& state,
                       const rpc::Principal& principal) {
  if (!IsRank(principal)) return "";
  const JobRecord* const own = state.jobs().Find(JobOfRank(state, principal));
  if (own == nullptr) return "";
  const v1::Origin& origin = own->row.origin();
  return origin.user().empty() ? origin.principal() : origin.user();
}

absl::Status CheckMayDrive(const ClusterState& state,
                           const rpc::Principal& principal,
                           const DriverId& driver) {
  const DriverRecord* const record = state.drivers().Find(driver);
  // One that is gone is for others to refuse.
  if (record == nullptr) return absl::OkStatus();
  if (!IsRank(principal)) {
    if (principal.namespaces.empty() ||
        record->origin().principal() == principal.name) {
      return absl::OkStatus();
    }
    return absl::PermissionDeniedError("that driver is another user's");
  }
  if (OwnerOf(*record) == principal.process &&
      !JobOfRank(state, principal).IsNil()) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      "a rank's credential is good for its own driver only");
}

absl::Status CheckMaySubmit(const ClusterState& state,
                            const rpc::Principal& principal,
                            const std::string& name_space,
                            const v1::JobSpec& spec) {
  if (!IsRank(principal)) return rpc::CheckMayUse(principal, name_space);
  if (!spec.has_actor() || spec.actor().driver_id().empty()) {
    return absl::PermissionDeniedError(
        "a rank's credential is good for actors that end with the rank: give "
        "the cluster's credential for jobs and detached actors "
        "(RuntimeOptions::credential_file)");
  }
  const JobRecord* const own = state.jobs().Find(JobOfRank(state, principal));
  // Names of another namespace are other people's.
  if (own != nullptr && !spec.name().empty() &&
      own->row.origin().namespace_() != name_space) {
    return absl::PermissionDeniedError(absl::StrCat(
        "a rank names actors in the namespace of its job only, which is ",
        own->row.origin().namespace_(), " (RuntimeOptions::name_space)"));
  }
  return CheckMayDrive(state, principal, DriverOf(spec));
}

absl::Status CheckMayUse(const ClusterState& state,
                         const rpc::Principal& principal, const JobId& id) {
  const JobRecord* const job = state.jobs().Find(id);
  if (!IsRank(principal)) {
    const ArrayTable::Entry* const array = state.jobs().arrays().Find(id);
    if (job == nullptr && array == nullptr) return absl::OkStatus();
    const auto& origin =
        job != nullptr ? job->row.origin() : array->record.row.origin();
    return rpc::CheckMayUse(principal, origin.namespace_());
  }
  const DriverRecord* const driver =
      job == nullptr ? nullptr : state.drivers().Find(DriverOf(*job->spec));
  const JobId own = JobOfRank(state, principal);
  if (driver != nullptr && !own.IsNil() &&
      JobOf(state, OwnerOf(*driver).attempt) == own) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      "a rank's credential is good for actors of its own job only");
}

absl::Status CheckMayCall(const ClusterState& state,
                          const rpc::Principal& principal, const JobId& id) {
  absl::Status refused = CheckMayUse(state, principal, id);
  if (refused.ok() || !IsRank(principal)) return refused;
  const JobRecord* const job = state.jobs().Find(id);
  const JobRecord* const own = state.jobs().Find(JobOfRank(state, principal));
  if (job == nullptr || own == nullptr) return refused;
  const DriverId driver = DriverOf(*own->spec);
  return !driver.IsNil() && DriverOf(*job->spec) == driver ? absl::OkStatus()
                                                           : refused;
}

}  // namespace cohort::head

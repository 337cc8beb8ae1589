#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "rpc/credential.h"

// Where the cluster is and what opens it, when a program does not say.
namespace cohort::client {

// Where `cohort up` keeps its state unless told otherwise: /var/lib/cohort/up
// for root, else ~/.local/state/cohort/up.  Its files `address` (one line,
// HOST:PORT) and `credential` are for clients of this machine.  Errors as
// DefaultStateDirectory.
absl::StatusOr<std::string> UpDirectory();

// Whether a `cohort up` runs in `state_dir`.  NotFound: there is no such
// directory.
absl::StatusOr<bool> UpRunsIn(const std::string& state_dir);

// The cluster that this program has started for itself (private_cluster.h),
// while it runs: who names none and has no COHORT_ADDRESS means that one.
// Thread-safe.
void SetOwnCluster(std::string address, std::string credential_file);
void ClearOwnCluster();
bool HasOwnCluster();

// Whether `given` or COHORT_ADDRESS names a cluster, this program has its own,
// one is in use (saved_clusters.h), or `cohort up` runs here: who finds none
// may start one (private_cluster.h).
bool HasCluster(const std::string& given);

// `given`, else COHORT_ADDRESS, else the program's own, else that of the
// cluster in use, else UpDirectory()'s.  InvalidArgument when it is not a
// HOST:PORT; NotFound, naming the ways, when there is none.
absl::StatusOr<std::string> FindAddress(const std::string& given);

// `given`, else the program's own where FindAddress means that cluster, else
// COHORT_CREDENTIAL_FILE, else that of the cluster in use, else
// UpDirectory()'s. NotFound, naming the file and the three ways, when there is
// none; InvalidArgument when the file that was named cannot be one; else as
// rpc::Credential::Load.
absl::StatusOr<rpc::Credential> FindCredential(const std::string& given);

}  // namespace cohort::client

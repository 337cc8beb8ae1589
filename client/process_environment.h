#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/process_id.h"

// What a worker daemon tells a process that it started, in its environment.
namespace cohort::client {

struct ProcessEnvironment {
  std::string worker_socket;    // COHORT_WORKER_SOCKET
  std::string credential_file;  // COHORT_CREDENTIAL_FILE
  ProcessId process;  // COHORT_ATTEMPT_ID, COHORT_SLOT, COHORT_INCARNATION
};

// Whether a worker daemon started this process, and whether as an actor.
bool IsRank();
bool IsActor();

// InvalidArgument, naming the variable, when one is missing or malformed.
absl::StatusOr<ProcessEnvironment> ReadProcessEnvironment();

}  // namespace cohort::client

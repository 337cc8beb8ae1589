#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace cohort::worker {

// A process that cannot be mistaken for a later one with the same pid.
// Immutable value.
struct ProcessIdentity {
  int64_t pid = 0;
  uint64_t start_time = 0;  // clock ticks after boot: /proc/PID/stat, field 22
  std::string boot_id;      // /proc/sys/kernel/random/boot_id

  bool operator==(const ProcessIdentity&) const = default;
};

// The identity that `pid` has now.  NotFound when there is no such process.
absl::StatusOr<ProcessIdentity> IdentityOf(int64_t pid);

// A pidfd (close-on-exec) of exactly this process: readable once it has ended.
// NotFound when it is gone.  The caller closes it.
absl::StatusOr<int> OpenPidfd(const ProcessIdentity& process);

}  // namespace cohort::worker

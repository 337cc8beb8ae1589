#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

#include "common/mutex.h"

namespace cohort {

// Named faults that tests arm and code asks about where the world may fail:
//
//   if (faults_.Fires("store.append")) return
//   absl::UnavailableError("injected"); EXPECT_GT(faults.fired("store.append"),
//   0) << "the fault never happened";
//
// One object a process or a simulation, owned by whoever builds it; unarmed, as
// in production, asking costs one load.  Thread-safe.
class FaultPoints {
 public:
  FaultPoints() = default;
  FaultPoints(const FaultPoints&) = delete;
  FaultPoints& operator=(const FaultPoints&) = delete;

  // The next `skip` questions answer no, the `times` after them yes, the rest
  // no.  Replaces what was armed under `name`.
  void Arm(absl::string_view name, int64_t skip = 0, int64_t times = 1);

  void Disarm(absl::string_view name);

  // Whether the fault happens now.
  bool Fires(absl::string_view name);

  // How often the fault has happened, and how often it was asked about while
  // any fault was armed.
  int64_t fired(absl::string_view name) const;
  int64_t asked(absl::string_view name) const;

 private:
  struct Fault {
    int64_t skip = 0;
    int64_t times = 0;
    int64_t fired = 0;
    int64_t asked = 0;
  };

  // Whether anything was ever armed.
  std::atomic<bool> in_use_{false};
  mutable Mutex mutex_;
  absl::flat_hash_map<std::string, Fault> faults_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort

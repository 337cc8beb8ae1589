#pragma once

#include <map>
#include <string>

#include "absl/time/time.h"

#include "common/clock.h"

namespace cohort::head {

// How long to wait after so many failures in a row: 5 s, then twice as long, up
// to 5 min.
absl::Duration ProviderBackoff(int failures);

// How launches of each node type went.  Thread-compatible.
class LaunchHealth final {
 public:
  struct OfType {
    int failures = 0;  // one after the other
    absl::Time failed_at = absl::InfinitePast();
    std::string failure;
    absl::Duration again_at;  // on the monotonic clock
    absl::Time again_at_wall;
    absl::Duration usual;  // from launch to registration; 0: not known
  };

  // `clock` outlives it.
  explicit LaunchHealth(const Clock& clock) : clock_(clock) {}

  // Of a launch that was decided on then.
  void NoteFailure(const std::string& type, absl::Time decided_at,
                   const std::string& why);
  void NoteSuccess(const std::string& type, absl::Duration took);
  // Another file may have mended what failed.
  void Clear() { types_.clear(); }

  bool BacksOff(const std::string& type) const;
  const std::map<std::string, OfType>& types() const { return types_; }

 private:
  const Clock& clock_;
  std::map<std::string, OfType> types_;
};

}  // namespace cohort::head

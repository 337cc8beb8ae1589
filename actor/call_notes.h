#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/clock.h"
#include "shm/served_calls.h"

namespace cohort::actor {

// What an actor's process notes down of the calls that it serves, for people
// (`cohort timeline`).  Thread-compatible, but for Now.
class CallNotes {
 public:
  struct Note {
    uint64_t call = 0;
    uint32_t track = 0;
  };

  // Both outlive it; null: nothing is noted down.
  CallNotes(shm::ServedCalls* served, const Clock* clock)
      : served_(served), clock_(clock) {}

  // In microseconds since 1970.
  int64_t Now() const;

  // A number for Begin, of a method as it is called (method.h).
  uint32_t AddMethod(const std::string& mangled);

  // At `now_us`; 0: now.
  Note Begin(uint32_t method, const std::string& caller, int64_t queued_us,
             int64_t now_us);
  void End(const Note& note, int64_t now_us);

 private:
  shm::ServedCalls* const served_;
  const Clock* const clock_;
  // No two calls that run have the same.
  uint32_t tracks_ = 0;
  std::vector<uint32_t> free_tracks_;
};

}  // namespace cohort::actor

#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"

#include "cohort/v1/domain.pb.h"
#include "common/clock.h"
#include "worker/device_source.h"

namespace cohort::worker {

// What an Xid is to a device; the table is NVIDIA's
// (docs.nvidia.com/deploy/xid-errors), judged in docs/design/0004-devices.md.
enum class XidMeaning : uint8_t {
  kApplication = 1,  // of a program that ran there: says nothing of the device
  kSuspect = 2,
  kFault = 3,  // the device is to be reset
  kLost = 4,   // it fell off the bus
};
XidMeaning MeaningOf(uint64_t xid);
// "double-bit ECC error"; empty for those that are not named.
const char* XidName(uint64_t xid);

// Without an answer of the driver for so long; one of errors only is none.
inline constexpr absl::Duration kSuspectAfter = absl::Seconds(10);

// How one device is, by what was seen of it.
//
//   DV-2: one state, and unless it is healthy a reason that names device and
//         cause.
//   DV-3: FENCED and SUSPECT end only when their cause is over; SUSPECT not
//         before it has been so for a minute, or ten after an Xid.
// Thread-compatible; belongs to DeviceMonitor.
class DeviceHealth {
 public:
  // `name` is the device in reasons: "GPU 2 (GPU-5ee1...)".  `clock` outlives
  // it.
  DeviceHealth(std::string name, const Clock& clock);

  // What it said of itself, now.
  void NoteAnswer(const DeviceAnswer& answer);
  // The driver reports a fault of it.
  void NoteXid(uint64_t xid);
  // Processes of an ended holder have memory on it; "" when none has.
  void NoteStuck(std::string who);
  // Time went by: without samples that means something.
  void Tick();
  // So long we ourselves did not run: it counts as nobody's silence.
  void Pardon(absl::Duration pause) { heard_at_ += pause; }

  v1::DeviceState state() const { return state_; }
  const std::string& reason() const { return reason_; }
  // It will not come back: what runs on it waits for ever.
  bool IsLost() const { return !lost_.empty(); }
  // Of the device itself, as opposed to what is left on it or to the driver:
  // a rank that failed meanwhile failed by it.
  bool HasFault() const {
    return IsLost() || !latched_.empty() || !counted_.empty();
  }
  uint64_t last_xid() const { return last_xid_; }  // 0: none yet

 private:
  // Why it is suspect, and until when at least.
  struct Doubt {
    std::string why;
    absl::Duration until;
  };

  void Doubtful(const char* kind, std::string why, absl::Duration quiet);
  void Judge();

  const std::string name_;
  const Clock& clock_;

  std::string lost_;     // for good
  std::string latched_;  // by Xids, for good
  std::string counted_;  // by counters, while they say so
  std::string stuck_;
  std::string silent_;
  std::string error_;                    // of what it said last
  std::map<std::string, Doubt> doubts_;  // by kind
  absl::Duration heard_at_;
  int errors_ = 0;
  uint64_t last_xid_ = 0;

  v1::DeviceState state_ = v1::DEVICE_STATE_HEALTHY;
  std::string reason_;
};

}  // namespace cohort::worker

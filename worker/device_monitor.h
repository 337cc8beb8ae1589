#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"

#include "common/clock.h"
#include "common/executor.h"
#include "worker/device_health.h"
#include "worker/device_occupants.h"
#include "worker/device_source.h"

namespace cohort::worker {

// How long the processes of an ended holder may keep memory: a killed one that
// the driver cleans up after takes some 100 ms.
inline constexpr absl::Duration kReleaseDeadline = absl::Seconds(30);

// How this node's devices are, and when one that was given back is free.
//
//   DV-1: the strand never waits for the driver: it is asked on a thread of its
//         own, which may hang.
//   DV-8: a holder's end is told once no process of it has memory on its
//         devices, or kReleaseDeadline later, and then those are fenced, with
//         the pid, until it has none.  So are those that could not be asked,
//         until they were, and those on which a daemon that starts finds what
//         an ended holder left.
//
// Strand-bound to the node strand.  Lives as long as Worker.
class DeviceMonitor {
 public:
  struct Events {
    // A state or reason is another one.
    absl::AnyInvocable<void()> on_change;
    // A device has a fault; `lost`: what runs on it waits for ever.  After
    // on_change, once for each fault, and again when it is lost.  With an empty
    // reason: it has none any more.
    absl::AnyInvocable<void(const std::string& id, const std::string& reason,
                            bool lost)>
        on_fault;
  };
  // Has a question asked off the strand, one after the other, and what it gives
  // run on the strand: DeviceThread::Ask.
  using Ask = absl::AnyInvocable<void(absl::AnyInvocable<Task() &&>)>;

  // `devices`: those of the source that this node offers.  All references
  // outlive it and what it posted.  `wait`: as `ask`, beside it, for faults.
  DeviceMonitor(const std::vector<Device>& devices,
                std::shared_ptr<DeviceSource> source, Executor& strand, Ask ask,
                Ask wait, const Clock& clock, Events events,
                InspectFunction inspect = InspectProcess);

  // Looks once, then `looked`, then each period.  `looked` also when the driver
  // does not answer for as long as makes a device suspect.
  void Start(absl::AnyInvocable<void() &&> looked);

  // `process` (ProcessKey::ToString) is about to have these devices: who is
  // there now is not its.
  void Hold(const std::string& process, const std::vector<std::string>& ids);
  // It has them: a daemon that was restarted.  Who tells nothing may be its.
  void Adopt(const std::string& process, const std::vector<std::string>& ids);
  // It has nothing there any more, unless it was released: then that is still
  // looked at.
  void Forget(const std::string& process);
  // It has ended; `done` when its devices are free, or fenced (DV-8).  At once,
  // but never inside the call, when it held none.
  void Release(const std::string& process, absl::AnyInvocable<void() &&> done);

  // In the order of the devices.
  const std::vector<v1::DeviceStatus>& statuses() const { return statuses_; }

 private:
  // By device; without those of which it is not known.
  using Occupants = std::map<std::string, std::vector<Occupant>>;

  struct Holder {
    std::vector<std::string> ids;
    // Were there before it, by device.
    Occupants others;
    bool leaving = false;
    bool given_up = false;  // its end was told
    absl::Duration ended_at;
    std::set<std::string> unasked;  // of `ids`, since its end
    Occupants left;                 // what was found last
    absl::AnyInvocable<void() &&> done;
  };
  // What an ended holder left on a device.
  struct Leftover {
    Occupant occupant;
    std::string process;  // empty: of an untold one
  };
  struct Answer {
    std::vector<DeviceAnswer> devices;
    Occupants occupants;
  };

  void Note(const std::string& process, const std::vector<std::string>& ids,
            bool adopted);
  // Whether it has this device.
  bool IsHeld(const std::string& id) const;
  // Whether an ended holder left what a daemon that starts finds.
  bool IsLeftOver(const std::string& id, const Occupant& occupant) const;
  void WaitForXid();
  void NoteXid(const Xid& xid);
  void Look();
  void OnAnswer(Answer answer);
  void NoteOccupants(const std::string& id, const std::vector<Occupant>& now);
  void AskOccupants(const std::vector<std::string>& ids,
                    absl::AnyInvocable<void(Occupants) &&> then);
  void Probe(const std::string& process);
  void OnProbed(const std::string& process, Occupants found);
  // `holder` left these, and its end is told.
  void FenceLeft(const std::string& process, Holder& holder);
  void GiveUp(const std::string& process);
  void Finish(const std::string& process);
  // Fences a device for what ended holders left on it, or not any more.
  void Judge(const std::string& id);
  void TickAll();
  // Tells what is new.
  void Publish();

  const std::shared_ptr<DeviceSource> source_;
  Executor& strand_;
  Ask ask_;
  Ask wait_;
  const Clock& clock_;
  Events events_;
  const InspectFunction inspect_;

  std::vector<DeviceHealth> healths_;  // as statuses_
  std::vector<v1::DeviceStatus> statuses_;
  std::map<std::string, size_t> index_;
  std::map<std::string, Holder> holders_;
  std::map<std::string, std::vector<Leftover>> stuck_;  // by device
  // Devices on which it is not known yet what there was before this daemon.
  std::set<std::string> unseen_;
  std::set<std::string> faults_told_;
  std::set<std::string> losses_told_;
  bool asking_ = false;
  std::optional<absl::Duration> looked_at_;
  absl::AnyInvocable<void() &&> on_looked_;
};

}  // namespace cohort::worker

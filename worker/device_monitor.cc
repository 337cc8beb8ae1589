#include "worker/device_monitor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/log.h"
#include "rpc/enum_text.h"

namespace cohort::worker {
namespace {

constexpr absl::Duration kSamplePeriod = absl::Seconds(1);
// One wait for faults; what a daemon that ends may have to wait for.
constexpr absl::Duration kXidWait = absl::Milliseconds(500);
constexpr absl::Duration kReleasePeriod = absl::Milliseconds(100);

bool IsAmong(const std::vector<Occupant>& before, const Occupant& now) {
  return std::any_of(before.begin(), before.end(), [&](const Occupant& each) {
    return IsSameProcess(each, now);
  });
}

// Those that could be asked.
template <typename Ids>
std::map<std::string, std::vector<Occupant>> AskEach(
    DeviceSource& source, const Ids& ids, const InspectFunction& inspect) {
  std::map<std::string, std::vector<Occupant>> found;
  for (const std::string& id : ids) {
    std::optional<std::vector<Occupant>> occupants =
        OccupantsOf(source, id, inspect);
    if (occupants.has_value()) found[id] = *std::move(occupants);
  }
  return found;
}

}  // namespace

DeviceMonitor::DeviceMonitor(const std::vector<Device>& devices,
                             std::shared_ptr<DeviceSource> source,
                             Executor& strand, Ask ask, Ask wait,
                             const Clock& clock, Events events,
                             InspectFunction inspect)
    : source_(std::move(source)),
      strand_(strand),
      ask_(std::move(ask)),
      wait_(std::move(wait)),
      clock_(clock),
      events_(std::move(events)),
      inspect_(std::move(inspect)) {
  for (const Device& device : devices) {
    index_.emplace(device.id(), statuses_.size());
    healths_.emplace_back(absl::StrCat("GPU ", device.id()), clock_);
    v1::DeviceStatus& status = statuses_.emplace_back();
    status.set_id(device.id());
    status.set_state(v1::DEVICE_STATE_HEALTHY);
    unseen_.insert(device.id());
  }
}

void DeviceMonitor::Start(absl::AnyInvocable<void() &&> looked) {
  on_looked_ = std::move(looked);
  if (statuses_.empty()) {
    if (on_looked_) std::exchange(on_looked_, nullptr)();
    return;
  }
  strand_.PostAfter(kSuspectAfter, [this] {
    if (!on_looked_) return;
    for (const std::string& id : unseen_) Judge(id);
    Publish();
    std::exchange(on_looked_, nullptr)();
  });
  Look();
  WaitForXid();
}

void DeviceMonitor::WaitForXid() {
  const absl::Duration began = clock_.Monotonic();
  wait_([this, source = source_, timeout = kXidWait, began]() -> Task {
    bool supported = false;
    std::optional<Xid> xid = source->WaitXid(timeout, &supported);
    return [this, supported, began, xid = std::move(xid)] {
      if (xid.has_value()) NoteXid(*xid);
      if (!supported) return;
      // A driver that does not wait is not asked all the time.
      const bool at_once =
          !xid.has_value() && clock_.Monotonic() - began < kXidWait / 2;
      strand_.PostAfter(at_once ? kXidWait : absl::ZeroDuration(),
                        [this] { WaitForXid(); });
    };
  });
}

void DeviceMonitor::Look() {
  const absl::Duration now = clock_.Monotonic();
  const absl::Duration gap = now - looked_at_.value_or(now);
  looked_at_ = now;
  if (gap > 2 * kSamplePeriod) {
    for (DeviceHealth& health : healths_) health.Pardon(gap - kSamplePeriod);
  }
  TickAll();
  strand_.PostAfter(kSamplePeriod, [this] { Look(); });
  if (std::exchange(asking_, true)) return;  // the driver hangs
  std::set<std::string> ids = unseen_;
  for (const auto& [id, leftovers] : stuck_) ids.insert(id);
  ask_([this, source = source_, inspect = inspect_,
        ids = std::move(ids)]() -> Task {
    Answer answer;
    answer.devices = source->Sample();
    answer.occupants = AskEach(*source, ids, inspect);
    return [this, answer = std::move(answer)]() mutable {
      OnAnswer(std::move(answer));
    };
  });
}

void DeviceMonitor::OnAnswer(Answer answer) {
  asking_ = false;
  for (const DeviceAnswer& device : answer.devices) {
    const auto found = index_.find(device.id);
    if (found == index_.end()) continue;  // another worker's share
    healths_[found->second].NoteAnswer(device);
    *statuses_[found->second].mutable_sample() = device.sample;
  }
  for (const auto& [id, now] : answer.occupants) NoteOccupants(id, now);
  for (const std::string& id : unseen_) Judge(id);
  Publish();
  if (on_looked_) std::exchange(on_looked_, nullptr)();
}

void DeviceMonitor::NoteOccupants(const std::string& id,
                                  const std::vector<Occupant>& now) {
  std::vector<Leftover>& stuck = stuck_[id];
  if (unseen_.erase(id) > 0) {
    for (const Occupant& each : now) {
      if (IsLeftOver(id, each)) stuck.push_back({each, each.process});
    }
  }
  std::erase_if(stuck, [&now](const Leftover& before) {
    return std::none_of(now.begin(), now.end(), [&](const Occupant& each) {
      return IsSameProcess(before.occupant, each);
    });
  });
  if (stuck.empty()) stuck_.erase(id);
  Judge(id);
}

bool DeviceMonitor::IsLeftOver(const std::string& id,
                               const Occupant& occupant) const {
  if (!occupant.process.empty()) return !holders_.contains(occupant.process);
  return occupant.untold && !IsHeld(id);
}

bool DeviceMonitor::IsHeld(const std::string& id) const {
  return std::any_of(
      holders_.begin(), holders_.end(), [&id](const auto& holder) {
        const std::vector<std::string>& ids = holder.second.ids;
        return std::find(ids.begin(), ids.end(), id) != ids.end();
      });
}

void DeviceMonitor::NoteXid(const Xid& xid) {
  for (size_t i = 0; i < statuses_.size(); ++i) {
    const bool meant =
        xid.ids.empty() || std::find(xid.ids.begin(), xid.ids.end(),
                                     statuses_[i].id()) != xid.ids.end();
    if (!meant) continue;
    COHORT_LOG(kWarning, "xid", {"device", statuses_[i].id()},
               {"xid", xid.code}, {"name", XidName(xid.code)});
    healths_[i].NoteXid(xid.code);
  }
  Publish();
}

void DeviceMonitor::TickAll() {
  for (DeviceHealth& health : healths_) health.Tick();
  Publish();
}

void DeviceMonitor::Publish() {
  bool changed = false;
  for (size_t i = 0; i < statuses_.size(); ++i) {
    const DeviceHealth& health = healths_[i];
    v1::DeviceStatus& status = statuses_[i];
    status.mutable_sample()->set_last_xid(health.last_xid());
    if (status.state() == health.state() &&
        status.reason() == health.reason()) {
      continue;
    }
    status.set_state(health.state());
    status.set_reason(health.reason());
    changed = true;
    if (status.reason().empty()) {
      COHORT_LOG(kInfo, "device_state", {"device", status.id()},
                 {"state", LowerEnumText(status.state())});
      continue;
    }
    COHORT_LOG(kWarning, "device_state", {"device", status.id()},
               {"state", LowerEnumText(status.state())},
               {"why", status.reason()});
  }
  if (changed) events_.on_change();
  for (size_t i = 0; i < statuses_.size(); ++i) {
    const std::string& id = statuses_[i].id();
    if (!healths_[i].HasFault()) {
      if (faults_told_.erase(id) > 0) events_.on_fault(id, "", false);
      continue;
    }
    const bool lost = healths_[i].IsLost();
    if (lost ? losses_told_.insert(id).second
             : faults_told_.insert(id).second) {
      events_.on_fault(id, statuses_[i].reason(), lost);
    }
  }
}

// ---- holders ----

void DeviceMonitor::AskOccupants(const std::vector<std::string>& ids,
                                 absl::AnyInvocable<void(Occupants) &&> then) {
  ask_([source = source_, inspect = inspect_, ids,
        then = std::move(then)]() mutable -> Task {
    Occupants found = AskEach(*source, ids, inspect);
    return [then = std::move(then), found = std::move(found)]() mutable {
      std::move(then)(std::move(found));
    };
  });
}

void DeviceMonitor::Hold(const std::string& process,
                         const std::vector<std::string>& ids) {
  Note(process, ids, /*adopted=*/false);
}

void DeviceMonitor::Adopt(const std::string& process,
                          const std::vector<std::string>& ids) {
  Note(process, ids, /*adopted=*/true);
}

void DeviceMonitor::Note(const std::string& process,
                         const std::vector<std::string>& ids, bool adopted) {
  std::vector<std::string> ours;
  for (const std::string& id : ids) {
    if (index_.contains(id)) ours.push_back(id);
  }
  if (ours.empty()) return;
  holders_[process].ids = ours;
  AskOccupants(ours, [this, process, adopted](Occupants found) {
    const auto holder = holders_.find(process);
    if (holder == holders_.end()) return;
    for (auto& [id, occupants] : found) {
      std::erase_if(occupants, [&](const Occupant& each) {
        return each.process == process || (adopted && each.untold);
      });
    }
    holder->second.others = std::move(found);
  });
}

void DeviceMonitor::Forget(const std::string& process) {
  const auto holder = holders_.find(process);
  if (holder != holders_.end() && !holder->second.leaving) {
    holders_.erase(holder);
  }
}

void DeviceMonitor::Release(const std::string& process,
                            absl::AnyInvocable<void() &&> done) {
  const auto holder = holders_.find(process);
  if (holder == holders_.end()) {
    strand_.Post([done = std::move(done)]() mutable { std::move(done)(); });
    return;
  }
  holder->second.leaving = true;
  holder->second.unasked = {holder->second.ids.begin(),
                            holder->second.ids.end()};
  holder->second.ended_at = clock_.Monotonic();
  holder->second.done = std::move(done);
  strand_.PostAfter(kReleaseDeadline, [this, process] { GiveUp(process); });
  Probe(process);
}

void DeviceMonitor::Probe(const std::string& process) {
  const auto holder = holders_.find(process);
  if (holder == holders_.end() || !holder->second.leaving) return;
  AskOccupants(holder->second.ids, [this, process](Occupants found) {
    OnProbed(process, std::move(found));
  });
}

void DeviceMonitor::OnProbed(const std::string& process, Occupants found) {
  const auto place = holders_.find(process);
  if (place == holders_.end() || !place->second.leaving) return;
  Holder& holder = place->second;
  for (auto& [id, occupants] : found) {
    const std::vector<Occupant>& others = holder.others[id];
    std::erase_if(occupants, [&](const Occupant& each) {
      return (!each.process.empty() && each.process != process) ||
             IsAmong(others, each);
    });
    holder.unasked.erase(id);
    holder.left[id] = std::move(occupants);
  }
  for (const std::string& id : holder.ids) {
    // It will never say, and stays fenced.
    if (found.contains(id) || !healths_[index_.at(id)].IsLost()) continue;
    holder.unasked.erase(id);
    holder.left.erase(id);
  }
  const bool free =
      std::all_of(holder.left.begin(), holder.left.end(),
                  [](const auto& device) { return device.second.empty(); });
  if (holder.given_up) {
    FenceLeft(process, holder);
    Publish();
  }
  if (holder.unasked.empty() && (free || holder.given_up)) {
    return Finish(process);
  }
  strand_.PostAfter(holder.given_up ? kSamplePeriod : kReleasePeriod,
                    [this, process] { Probe(process); });
}

void DeviceMonitor::GiveUp(const std::string& process) {
  const auto place = holders_.find(process);
  if (place == holders_.end() || !place->second.leaving ||
      clock_.Monotonic() - place->second.ended_at < kReleaseDeadline) {
    return;
  }
  Holder& holder = place->second;
  holder.given_up = true;
  FenceLeft(process, holder);
  TickAll();  // publishes
  absl::AnyInvocable<void()&&> done = std::exchange(holder.done, nullptr);
  // Else it is kept until the driver has said what it left.
  if (holder.unasked.empty()) holders_.erase(place);
  std::move(done)();
}

void DeviceMonitor::FenceLeft(const std::string& process, Holder& holder) {
  for (const auto& [id, occupants] : holder.left) {
    for (const Occupant& each : occupants) {
      stuck_[id].push_back({each, process});
    }
  }
  const std::vector<std::string> before =
      std::exchange(holder.ids, {holder.unasked.begin(), holder.unasked.end()});
  holder.left.clear();
  for (const std::string& id : before) Judge(id);
}

void DeviceMonitor::Finish(const std::string& process) {
  auto holder = holders_.extract(process);
  if (holder.mapped().done) std::move(holder.mapped().done)();
}

void DeviceMonitor::Judge(const std::string& id) {
  std::vector<std::string> reasons;
  if (unseen_.contains(id)) {
    reasons.emplace_back("it could not be asked which processes are on it");
  }
  std::map<std::string, std::vector<std::string>> left;  // by process
  if (const auto stuck = stuck_.find(id); stuck != stuck_.end()) {
    for (const Leftover& each : stuck->second) {
      left[each.process].push_back(OccupantText(each.occupant));
    }
  }
  for (const auto& [process, processes] : left) {
    reasons.push_back(absl::StrCat(
        absl::StrJoin(processes, ", "),
        process.empty() ? " was on it when the worker started, and does not "
                          "tell whose it is"
                        : " is still on it after the end of process ",
        process));
  }
  for (const auto& [process, holder] : holders_) {
    if (!holder.given_up || !holder.unasked.contains(id)) continue;
    reasons.push_back(absl::StrCat(
        "it could not be asked since the end of process ", process));
  }
  healths_[index_.at(id)].NoteStuck(absl::StrJoin(reasons, "; "));
}

}  // namespace cohort::worker

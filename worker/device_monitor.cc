#include "worker/device_monitor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/log.h"

namespace cohort::worker {
namespace {

const char* StateName(DeviceState state) {
  switch (state) {
    case DeviceState::kHealthy:
      return "healthy";
    case DeviceState::kSuspect:
      return "suspect";
    case DeviceState::kFenced:
      return "fenced";
  }
  return "unknown";
}

bool IsAmong(const std::vector<Occupant>& before, const Occupant& now) {
  return std::any_of(before.begin(), before.end(), [&](const Occupant& each) {
    return IsSameProcess(each, now);
  });
}

}  // namespace

DeviceMonitor::DeviceMonitor(DeviceMonitorOptions options,
                             const std::vector<Device>& devices,
                             std::shared_ptr<DeviceSource> source,
                             Executor& strand, Ask ask, Ask wait,
                             const Clock& clock, Events events)
    : options_(std::move(options)),
      source_(std::move(source)),
      strand_(strand),
      ask_(std::move(ask)),
      wait_(std::move(wait)),
      clock_(clock),
      events_(std::move(events)) {
  for (const Device& device : devices) {
    index_.emplace(device.id, statuses_.size());
    healths_.emplace_back(options_.health, absl::StrCat("GPU ", device.id),
                          clock_);
    statuses_.push_back({.id = device.id});
  }
}

void DeviceMonitor::Start(absl::AnyInvocable<void() &&> looked) {
  on_looked_ = std::move(looked);
  if (statuses_.empty()) {
    if (on_looked_) std::exchange(on_looked_, nullptr)();
    return;
  }
  strand_.PostAfter(options_.health.suspect_after, [this] {
    if (on_looked_) std::exchange(on_looked_, nullptr)();
  });
  Look();
  WaitForXid();
}

void DeviceMonitor::WaitForXid() {
  const absl::Duration began = clock_.Monotonic();
  wait_([this, source = source_, timeout = options_.xid_wait, began]() -> Task {
    bool supported = false;
    std::optional<Xid> xid = source->WaitXid(timeout, &supported);
    return [this, supported, began, xid = std::move(xid)] {
      if (xid.has_value()) NoteXid(*xid);
      if (!supported) return;
      // A driver that does not wait is not asked all the time.
      const bool at_once = !xid.has_value() &&
                           clock_.Monotonic() - began < options_.xid_wait / 2;
      strand_.PostAfter(at_once ? options_.xid_wait : absl::ZeroDuration(),
                        [this] { WaitForXid(); });
    };
  });
}

void DeviceMonitor::Look() {
  TickAll();
  strand_.PostAfter(options_.sample_period, [this] { Look(); });
  if (std::exchange(asking_, true)) return;  // the driver hangs
  std::vector<std::string> stuck;
  for (const auto& [id, occupants] : stuck_) stuck.push_back(id);
  ask_([this, source = source_, inspect = options_.inspect,
        stuck = std::move(stuck)]() -> Task {
    Answer answer;
    answer.devices = source->Sample();
    for (const std::string& id : stuck) {
      answer.on_stuck[id] = OccupantsOf(*source, id, inspect);
    }
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
    statuses_[found->second].sample = device.sample;
  }
  for (const auto& [id, now] : answer.on_stuck) {
    const auto stuck = stuck_.find(id);
    if (stuck == stuck_.end()) continue;
    std::erase_if(stuck->second, [&now = now](const Occupant& before) {
      return std::none_of(now.begin(), now.end(), [&](const Occupant& each) {
        return IsSameProcess(before, each);
      });
    });
    if (!stuck->second.empty()) continue;
    stuck_.erase(stuck);
    healths_[index_.at(id)].NoteStuck("");
  }
  Publish();
  if (on_looked_) std::exchange(on_looked_, nullptr)();
}

void DeviceMonitor::NoteXid(const Xid& xid) {
  for (size_t i = 0; i < statuses_.size(); ++i) {
    const bool meant =
        xid.ids.empty() || std::find(xid.ids.begin(), xid.ids.end(),
                                     statuses_[i].id) != xid.ids.end();
    if (!meant) continue;
    COHORT_LOG(kWarning, "xid", {"device", statuses_[i].id}, {"xid", xid.code},
               {"name", XidName(xid.code)});
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
    DeviceStatus& status = statuses_[i];
    status.sample.last_xid = health.last_xid();
    if (status.state == health.state() && status.reason == health.reason()) {
      continue;
    }
    status.state = health.state();
    status.reason = health.reason();
    changed = true;
    COHORT_LOG(kWarning, "device_state", {"device", status.id},
               {"state", StateName(status.state)}, {"why", status.reason});
  }
  if (changed) events_.on_change();
  for (size_t i = 0; i < statuses_.size(); ++i) {
    const std::string& id = statuses_[i].id;
    if (!healths_[i].HasFault()) {
      if (faults_told_.erase(id) > 0) events_.on_fault(id, "", false);
      continue;
    }
    const bool lost = healths_[i].IsLost();
    if (lost ? losses_told_.insert(id).second
             : faults_told_.insert(id).second) {
      events_.on_fault(id, statuses_[i].reason, lost);
    }
  }
}

// ---- holders ----

void DeviceMonitor::AskOccupants(const std::vector<std::string>& ids,
                                 absl::AnyInvocable<void(Occupants) &&> then) {
  ask_([source = source_, inspect = options_.inspect, ids,
        then = std::move(then)]() mutable -> Task {
    Occupants found;
    for (const std::string& id : ids) {
      found[id] = OccupantsOf(*source, id, inspect);
    }
    return [then = std::move(then), found = std::move(found)]() mutable {
      std::move(then)(std::move(found));
    };
  });
}

void DeviceMonitor::Hold(const std::string& attempt,
                         const std::vector<std::string>& ids) {
  std::vector<std::string> ours;
  for (const std::string& id : ids) {
    if (index_.contains(id)) ours.push_back(id);
  }
  if (ours.empty()) return;
  holders_[attempt].ids = ours;
  AskOccupants(ours, [this, attempt](Occupants found) {
    const auto holder = holders_.find(attempt);
    if (holder == holders_.end()) return;
    for (auto& [id, occupants] : found) {
      std::erase_if(occupants, [&](const Occupant& each) {
        return each.attempt == attempt;
      });
    }
    holder->second.others = std::move(found);
  });
}

void DeviceMonitor::Release(const std::string& attempt,
                            absl::AnyInvocable<void() &&> done) {
  const auto holder = holders_.find(attempt);
  if (holder == holders_.end()) {
    strand_.Post([done = std::move(done)]() mutable { std::move(done)(); });
    return;
  }
  holder->second.leaving = true;
  holder->second.ended_at = clock_.Monotonic();
  holder->second.done = std::move(done);
  strand_.PostAfter(options_.release_deadline,
                    [this, attempt] { GiveUp(attempt); });
  Probe(attempt);
}

void DeviceMonitor::Probe(const std::string& attempt) {
  const auto holder = holders_.find(attempt);
  if (holder == holders_.end() || !holder->second.leaving) return;
  AskOccupants(holder->second.ids, [this, attempt](Occupants found) {
    OnProbed(attempt, std::move(found));
  });
}

void DeviceMonitor::OnProbed(const std::string& attempt, Occupants found) {
  const auto place = holders_.find(attempt);
  if (place == holders_.end() || !place->second.leaving) return;
  Holder& holder = place->second;
  bool free = true;
  for (auto& [id, occupants] : found) {
    const std::vector<Occupant>& others = holder.others[id];
    std::erase_if(occupants, [&](const Occupant& each) {
      return (!each.attempt.empty() && each.attempt != attempt) ||
             IsAmong(others, each);
    });
    free = free && occupants.empty();
  }
  if (free) return Finish(attempt);
  holder.left = std::move(found);
  strand_.PostAfter(options_.release_period,
                    [this, attempt] { Probe(attempt); });
}

void DeviceMonitor::GiveUp(const std::string& attempt) {
  const auto place = holders_.find(attempt);
  if (place == holders_.end() || !place->second.leaving ||
      clock_.Monotonic() - place->second.ended_at < options_.release_deadline) {
    return;
  }
  for (const auto& [id, occupants] : place->second.left) {
    if (occupants.empty()) continue;
    std::vector<Occupant>& stuck = stuck_[id];
    stuck.insert(stuck.end(), occupants.begin(), occupants.end());
    healths_[index_.at(id)].NoteStuck(absl::StrCat(
        absl::StrJoin(occupants, ", ",
                      [](std::string* out, const Occupant& each) {
                        out->append(OccupantText(each));
                      }),
        " is still on it ", absl::FormatDuration(options_.release_deadline),
        " after the end of attempt ", attempt));
  }
  TickAll();  // a driver that hangs has said nothing of them
  Finish(attempt);
}

void DeviceMonitor::Finish(const std::string& attempt) {
  const auto holder = holders_.extract(attempt);
  std::move(holder.mapped().done)();
}

}  // namespace cohort::worker

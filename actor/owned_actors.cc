#include "actor/owned_actors.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "actor/actor_end.h"
#include "actor/call_channel.h"
#include "actor/connect_actor.h"
#include "common/executor.h"

namespace cohort::actor {
namespace {

constexpr int kLookedAtMax = 8;
constexpr uint32_t kLastSlot = std::numeric_limits<uint32_t>::max();

size_t WaitingMax(int max_pending_calls) {
  return max_pending_calls > 0 ? static_cast<size_t>(max_pending_calls)
                               : std::numeric_limits<size_t>::max();
}

// Of all actors that share the process together.
ActorOptions OptionsOfProcess(const ActorOptions& options,
                              const Spread& spread) {
  ActorOptions process = options;
  const int64_t actors = (spread.ranks() - 1) / spread.processes() + 1;
  process.max_pending_calls = static_cast<int>(std::min<int64_t>(
      actors * options.max_pending_calls, std::numeric_limits<int>::max()));
  return process;
}

}  // namespace

std::shared_ptr<OwnedTarget> OwnedActors::TargetOf(const ActorRef& ref,
                                                   const ActorOptions& options,
                                                   size_t window_bytes) {
  MutexLock lock(mutex_);
  if (!over_.ok()) return std::make_shared<OwnedTarget>(over_);
  std::shared_ptr<OwnedTarget>& target =
      targets_[{ref.job, ref.slot, ref.secret}];
  if (target == nullptr) {
    const CallChannelOptions channel = {
        .job_id = std::string(ref.job.bytes()),
        .max_pending_calls = options.max_pending_calls,
        .max_task_retries = options.max_task_retries,
        .window_bytes = window_bytes,
        .spinner = &machinery_->spinner};
    ActorRef process = ref;
    process.actor = 0;
    target = std::make_shared<OwnedTarget>(
        std::shared_ptr<Line>(
            new Line{machinery_,
                     {channel, ConnectOverGrpc(), machinery_->calls,
                      machinery_->clock, machinery_->random}}),
        process);
  }
  return target;
}

std::shared_ptr<OwnedTarget> OwnedActors::Known(const ActorRef& ref) {
  MutexLock lock(mutex_);
  const auto known = targets_.find({ref.job, ref.slot, ref.secret});
  return known == targets_.end() ? nullptr : known->second;
}

OwnedActors::Group OwnedActors::AddGroup(const JobId& id,
                                         const std::string& secret,
                                         const ActorOptions& options,
                                         const Spread& spread) {
  const ActorOptions of_process = OptionsOfProcess(options, spread);
  Group made;
  for (int slot = 0; slot < spread.processes(); ++slot) {
    made.processes.push_back(
        TargetOf({id, static_cast<uint32_t>(slot), secret}, of_process));
  }
  made.calls = std::make_shared<GroupCalls>(
      GroupCalls::Options{.may_relay = options.max_task_retries == 0,
                          .waiting_max = WaitingMax(options.max_pending_calls),
                          .ranks = spread.ranks()},
      made.processes,
      std::shared_ptr<Executor>(machinery_, &machinery_->calls));
  MutexLock lock(mutex_);
  std::erase_if(groups_,
                [](const auto& each) { return each.second.expired(); });
  groups_[id] = made.calls;
  return made;
}

std::shared_ptr<GroupCalls> OwnedActors::KnownGroup(const JobId& id) {
  MutexLock lock(mutex_);
  const auto found = groups_.find(id);
  return found == groups_.end() ? nullptr : found->second.lock();
}

std::vector<std::shared_ptr<Line>> OwnedActors::LinesTo(const JobId& id) {
  std::vector<std::shared_ptr<Line>> lines;
  MutexLock lock(mutex_);
  for (auto it = targets_.lower_bound({id, 0, ""});
       it != targets_.end() && std::get<JobId>(it->first) == id; ++it) {
    const auto line = it->second->line();
    if (line != nullptr) lines.push_back(line);
  }
  return lines;
}

void OwnedActors::Tell(const JobId& id, const v1::ActorStanding& standing) {
  std::vector<Told> told;
  std::shared_ptr<GroupCalls> group;
  {
    MutexLock lock(mutex_);
    TellSlots(id, standing, {standing.slot(), standing.slot()}, told);
    TellSlots(id, standing, {standing.slots(), kLastSlot}, told);
    const auto of_group = groups_.find(id);
    if (of_group != groups_.end()) group = of_group->second.lock();
    if (of_group != groups_.end() && group == nullptr) groups_.erase(of_group);
  }
  for (const auto& [target, its] : told) {
    const auto line = target->line();
    if (line != nullptr) line->channel.SetStanding(its);
  }
  if (group != nullptr && !IsRefusal(standing)) group->SetStanding(standing);
}

void OwnedActors::TellSlots(const JobId& id, const v1::ActorStanding& standing,
                            std::pair<uint32_t, uint32_t> slots,
                            std::vector<Told>& told) {
  for (auto it = targets_.lower_bound({id, slots.first, ""});
       it != targets_.end(); ++it) {
    const auto& [job, slot, secret] = it->first;
    if (job != id || slot > slots.second) return;
    auto its = StandingFor(standing, slot, secret);
    if (its.has_value()) told.emplace_back(it->second, *std::move(its));
  }
}

void OwnedActors::DropAll(const absl::Status& why) {
  std::map<Slot, std::shared_ptr<OwnedTarget>> targets;
  std::map<JobId, std::weak_ptr<GroupCalls>> groups;
  {
    MutexLock lock(mutex_);
    if (over_.ok()) over_ = why;
    targets.swap(targets_);
    groups.swap(groups_);
  }
  for (const auto& [slot, target] : targets) target->Drop(why);
  for (const auto& [id, weak] : groups) {
    if (const auto group = weak.lock()) group->EndStandings();
  }
}

void OwnedActors::ForgetSome() {
  std::vector<std::shared_ptr<OwnedTarget>> forgotten;
  MutexLock lock(mutex_);
  auto it = targets_.upper_bound(looked_at_);
  for (int looked = 0; looked < kLookedAtMax && it != targets_.end();
       ++looked) {
    looked_at_ = it->first;
    const auto line = it->second->line();
    const bool is_needed =
        it->second.use_count() > 1 || !line->channel.IsOver();
    if (!is_needed) forgotten.push_back(std::move(it->second));
    it = is_needed ? std::next(it) : targets_.erase(it);
  }
  if (it == targets_.end()) looked_at_ = Slot();
}

}  // namespace cohort::actor

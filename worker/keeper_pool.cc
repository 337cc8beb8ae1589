#include "worker/keeper_pool.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/log.h"

namespace cohort::worker {
namespace {

// Of one owner.  One that is lost takes the processes of its share along, and
// each parents at most keeper::kProcessesMax.
constexpr int kKeepersPerOwner = 4;

AttemptId AttemptOf(const v1::DesiredPlace& place) {
  return *AttemptId::FromBytes(place.attempt_id());
}

}  // namespace

std::string KeeperPool::KeeperOf(const v1::DesiredPlace& place) {
  if (place.owner().empty()) return absl::BytesToHexString(place.attempt_id());
  const auto share =
      static_cast<unsigned char>(place.attempt_id().back()) % kKeepersPerOwner;
  return absl::StrCat("owner-", absl::BytesToHexString(place.owner()), "-",
                      share);
}

std::string KeeperPool::KeeperOf(const AttemptId& attempt) const {
  const auto found = places_.find(attempt);
  return found == places_.end() ? attempt.ToHex() : found->second.keeper;
}

KeeperPool::Shared* KeeperPool::Enter(const v1::DesiredPlace& place) {
  if (place.owner().empty()) return nullptr;
  Place& entered = places_[AttemptOf(place)];
  entered.keeper = KeeperOf(place);
  Shared& shared = shared_[entered.keeper];
  shared.places.insert(AttemptOf(place));
  return &shared;
}

void KeeperPool::Begin(const v1::DesiredPlace& place,
                       std::vector<ProcessSpec> specs,
                       KeeperHost::DoneCallback done) {
  Shared* const shared = Enter(place);
  if (shared == nullptr) {
    return keepers_.Begin(KeeperOf(place), std::move(specs), std::move(done));
  }
  Place& entered = places_[AttemptOf(place)];
  for (const ProcessSpec& spec : specs) entered.processes.insert(spec.key());
  WhenSteady(*shared, [this, keeper = entered.keeper, specs = std::move(specs),
                       done = std::move(done)]() mutable {
    shared_[keeper].state = State::kOpen;
    keepers_.Begin(keeper, std::move(specs), std::move(done));
  });
}

void KeeperPool::Adopt(const v1::DesiredPlace& place,
                       KeeperHost::AdoptCallback done) {
  Shared* const shared = Enter(place);
  const std::string keeper = KeeperOf(place);
  if (shared == nullptr) return keepers_.Adopt(keeper, std::move(done));
  if (shared->state == State::kNew) {
    shared->state = State::kAdopting;
    keepers_.Adopt(keeper, [this, keeper](auto adopted) {
      if (adopted.ok()) EndUnknown(keeper, *adopted);
      shared_[keeper].adopted = std::move(adopted);
      Steady(keeper, State::kOpen);
    });
  }
  WhenSteady(*shared, [this, keeper, attempt = AttemptOf(place),
                       done = std::move(done)]() mutable {
    std::move(done)(AdoptedOf(keeper, attempt));
  });
}

absl::StatusOr<AdoptedKeeper> KeeperPool::AdoptedOf(const std::string& keeper,
                                                    const AttemptId& attempt) {
  const absl::StatusOr<AdoptedKeeper>& adopted = shared_[keeper].adopted;
  if (!adopted.ok()) return adopted.status();
  AdoptedKeeper own = {.known = {}, .message = adopted->message};
  for (const ProcessKey& process : adopted->known) {
    if (process.attempt != attempt.ToHex()) continue;
    places_[attempt].processes.insert(process);
    own.known.push_back(process);
  }
  return own;
}

void KeeperPool::EndUnknown(const std::string& keeper,
                            const AdoptedKeeper& adopted) {
  std::vector<ProcessKey> unknown;
  for (const ProcessKey& process : adopted.known) {
    const auto attempt = AttemptId::FromHex(process.attempt);
    if (attempt.ok() && places_.contains(*attempt)) continue;
    COHORT_LOG(kWarning, "leftover_process_ended",
               {"process", process.ToString()}, {"keeper", keeper},
               {"why", "this state directory does not know its attempt"});
    unknown.push_back(process);
  }
  if (!unknown.empty()) keepers_.Kill(keeper, std::move(unknown));
}

void KeeperPool::Stop(const ProcessId& process, absl::Duration grace) {
  keepers_.Stop(KeeperOf(process.attempt), {KeyOf(process)}, grace);
}

void KeeperPool::Kill(const ProcessId& process) {
  keepers_.Kill(KeeperOf(process.attempt), {KeyOf(process)});
}

void KeeperPool::Forget(const ProcessId& process,
                        KeeperHost::DoneCallback done) {
  const auto place = places_.find(process.attempt);
  if (place != places_.end()) place->second.processes.erase(KeyOf(process));
  keepers_.Forget(KeeperOf(process.attempt), {KeyOf(process)},
                  [this, attempt = process.attempt,
                   done = std::move(done)](absl::Status forgotten) mutable {
                    std::move(done)(std::move(forgotten));
                    // Its place may stay: nothing begins there any more.
                    const auto its = places_.find(attempt);
                    if (!keeps_idle_ && its != places_.end())
                      CloseIdle(its->second.keeper);
                  });
}

void KeeperPool::Close(const AttemptId& attempt,
                       KeeperHost::DoneCallback done) {
  const auto place = places_.find(attempt);
  if (place == places_.end()) {
    return keepers_.Close(attempt.ToHex(), std::move(done));
  }
  const std::set<ProcessKey>& processes = place->second.processes;
  keepers_.Forget(
      place->second.keeper, {processes.begin(), processes.end()},
      [this, attempt, done = std::move(done)](absl::Status forgotten) mutable {
        // Nothing was ever begun there.
        if (absl::IsNotFound(forgotten)) {
          forgotten = absl::OkStatus();
        }
        if (forgotten.ok()) Leave(attempt);
        std::move(done)(std::move(forgotten));
      });
}

void KeeperPool::Leave(const AttemptId& attempt) {
  const auto place = places_.extract(attempt);
  if (place.empty()) return;
  const std::string& keeper = place.mapped().keeper;
  Shared& shared = shared_[keeper];
  shared.places.erase(attempt);
  if (shared.places.empty()) CloseLater(keeper, ++shared.emptied);
}

void KeeperPool::CloseLater(const std::string& keeper, int emptied) {
  if (!keeps_idle_) return CloseIdle(keeper);
  strand_.PostAfter(kIdle, [this, keeper, emptied] {
    const auto found = shared_.find(keeper);
    if (found != shared_.end() && found->second.emptied == emptied) {
      CloseIdle(keeper);
    }
  });
}

void KeeperPool::CloseIdle(const std::string& keeper) {
  Shared& shared = shared_[keeper];
  if (!IsIdle(shared) || shared.state == State::kClosing) return;
  shared.state = State::kClosing;
  keepers_.Close(keeper, [this, keeper](const absl::Status& closed) {
    Steady(keeper, State::kNew);
    if (!IsIdle(shared_[keeper])) return;
    if (closed.ok()) {
      shared_.erase(keeper);
      TellIfNoneIsLeft();
    } else {
      COHORT_LOG(kWarning, "keeper_not_closed", {"keeper", keeper},
                 {"status", closed});
    }
  });
}

bool KeeperPool::IsIdle(const Shared& shared) const {
  if (keeps_idle_) return shared.places.empty();
  return absl::c_all_of(shared.places, [this](const AttemptId& place) {
    return places_.at(place).processes.empty();
  });
}

void KeeperPool::KeepNoIdle(absl::AnyInvocable<void() &&> none_left) {
  keeps_idle_ = false;
  none_left_ = std::move(none_left);
  std::vector<std::string> idle;
  for (const auto& [keeper, shared] : shared_) {
    if (IsIdle(shared)) idle.push_back(keeper);
  }
  for (const std::string& keeper : idle) CloseIdle(keeper);
  TellIfNoneIsLeft();
}

void KeeperPool::TellIfNoneIsLeft() {
  if (shared_.empty() && none_left_) std::exchange(none_left_, {})();
}

void KeeperPool::WhenSteady(Shared& shared, Waiting go_on) {
  if (shared.state == State::kAdopting || shared.state == State::kClosing) {
    shared.waiting.push_back(std::move(go_on));
  } else {
    std::move(go_on)();
  }
}

void KeeperPool::Steady(const std::string& keeper, State state) {
  shared_[keeper].state = state;
  for (Waiting& go_on : std::exchange(shared_[keeper].waiting, {})) {
    std::move(go_on)();
  }
}

}  // namespace cohort::worker

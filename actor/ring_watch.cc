#include "actor/ring_watch.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "actor/call_limits.h"

namespace cohort::actor {
namespace {

// Looks until a caller that was pushed to and does not look is kicked: some
// microseconds, in which one that waits for its result begins to.
constexpr int kLooksUntilKick = 64;

}  // namespace

bool RingWatch::HasRoom() {
  if (spinner_ == nullptr) return false;
  MutexLock lock(mutex_);
  std::erase_if(rings_, [](const auto& each) { return each.expired(); });
  count_ = rings_.size();
  return rings_.size() < kRingsOffered;
}

void RingWatch::Add(const std::shared_ptr<CallStream>& caller) {
  MutexLock lock(mutex_);
  rings_.push_back(caller);
  count_ = rings_.size();
}

void RingWatch::Remove(const CallStream& caller) {
  std::shared_ptr<CallStream> hold;
  MutexLock lock(mutex_);
  for (auto it = rings_.begin(); it != rings_.end(); ++it) {
    hold = it->lock();
    if (hold.get() != &caller) continue;
    rings_.erase(it);
    break;
  }
  count_ = rings_.size();
}

bool RingWatch::WillKick(CallStream& caller) {
  caller.owes_kick = true;
  return caller.is_watched;
}

RingWatch::Streams RingWatch::Shared() {
  Streams streams;
  MutexLock lock(mutex_);
  for (const auto& each : rings_) {
    std::shared_ptr<CallStream> stream = each.lock();
    if (stream != nullptr && stream->ring->IsShared()) {
      streams.push_back(std::move(stream));
    }
  }
  return streams;
}

void RingLooker::Start() {
  if (is_looking_ || watch_.count_ == 0) return;
  RingWatch::Streams streams = watch_.Shared();
  const bool other_looks =
      std::any_of(streams.begin(), streams.end(),
                  [](const auto& each) { return each->ring->IsLookedAt(); });
  const std::optional<shm::Instant> until = watch_.spinner_->Begin(other_looks);
  if (!until.has_value() || watch_.is_looking_.exchange(true)) return;
  is_looking_ = true;
  until_ = *until;
  streams_ = std::move(streams);
  arrivals_ = watch_.arrivals_.load(std::memory_order_acquire);
  for (const auto& stream : streams_) {
    stream->is_watched = true;
    stream->ring->StartLooking();
  }
}

void RingLooker::Look() {
  for (int looks = 0;; ++looks) {
    TakeAll();
    const uint64_t arrivals = watch_.arrivals_.load(std::memory_order_acquire);
    if (std::exchange(arrivals_, arrivals) != arrivals) return;
    if (looks == kLooksUntilKick) KickAll();
    if (watch_.spinner_->Pause(until_)) continue;
    return Stop();
  }
}

void RingLooker::Stop() {
  if (!std::exchange(is_looking_, false)) return;
  for (const auto& stream : streams_) stream->ring->StopLooking();
  // What was pushed until then, by callers and for them.
  TakeAll();
  for (const auto& stream : streams_) stream->is_watched = false;
  KickAll();
  watch_.is_looking_ = false;
  streams_.clear();
}

void RingLooker::TakeAll() {
  for (const auto& stream : streams_) {
    if (stream->ring->HasMore()) watch_.owner_.TakeFromRing(stream);
  }
}

void RingLooker::KickAll() {
  for (const auto& stream : streams_) {
    if (stream->owes_kick && stream->owes_kick.exchange(false)) {
      watch_.owner_.Kick(*stream);
    }
  }
}

}  // namespace cohort::actor

#include "actor/caller_record.h"

#include <atomic>

#include "actor/call_limits.h"

namespace cohort::actor {

size_t BytesOf(const v1::ActorResults::Result& result) {
  return sizeof(result) + result.value().size() +
         result.failure().message().size();
}

void CallerRecord::NoteSent(Results results, size_t bytes) {
  sent_.emplace_back(std::move(results), bytes);
  ++sent_count_;
  sent_bytes_ += bytes;
  while (sent_bytes_ > kResultsKeptBytes) {
    sent_bytes_ -= sent_.front().second;
    sent_.pop_front();
  }
}

CallerRecord::Results CallerRecord::NewMessage() {
  if (spare_ == nullptr) return std::make_shared<v1::ActorResults>();
  spare_->Clear();
  return std::exchange(spare_, nullptr);
}

bool CallerRecord::NoteTaken(uint64_t messages, std::vector<Results>& gone) {
  if (messages > sent_count_) return false;
  const uint64_t left = sent_count_ - messages;
  while (sent_.size() > left) {
    auto& [results, bytes] = sent_.front();
    sent_bytes_ -= bytes;
    const bool is_small = bytes <= kResultsUntoldBytes;
    // Else a thread has it yet that wrote it.
    if (spare_ == nullptr && is_small && results.use_count() == 1) {
      // What that thread read of it comes before what is written now.
      std::atomic_thread_fence(std::memory_order_acquire);
      spare_ = std::move(results);
    } else {
      gone.push_back(std::move(results));
    }
    sent_.pop_front();
  }
  return true;
}

void CallerRecord::NoteStreamOver() {
  // Copied: another thread may be writing them.
  for (const auto& [results, bytes] : sent_) {
    for (const auto& result : results->results()) Keep(result);
  }
  sent_.clear();
  sent_count_ = 0;
  sent_bytes_ = 0;
}

void CallerRecord::Keep(v1::ActorResults::Result result) {
  const uint64_t sequence = result.sequence();
  const size_t bytes = BytesOf(result);
  // The first result counts.  A caller that asks again while the result is on
  // its way is answered "forgotten" afterwards.
  if (!kept_.emplace(sequence, std::move(result)).second) return;
  kept_bytes_ += bytes;
  while (kept_bytes_ > kResultsKeptBytes) Drop(kept_.begin());
}

CallerRecord::Kept::iterator CallerRecord::Drop(Kept::iterator kept) {
  kept_bytes_ -= BytesOf(kept->second);
  return kept_.erase(kept);
}

std::optional<v1::ActorResults::Result> CallerRecord::TakeKept(
    uint64_t sequence) {
  while (!kept_.empty() && kept_.begin()->first < sequence) {
    Drop(kept_.begin());
  }
  if (kept_.empty() || kept_.begin()->first != sequence) return std::nullopt;
  kept_bytes_ -= BytesOf(kept_.begin()->second);
  return std::move(kept_.extract(kept_.begin()).mapped());
}

void CallerRecord::DropKept() {
  kept_.clear();
  kept_bytes_ = 0;
}

}  // namespace cohort::actor

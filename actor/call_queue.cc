#include "actor/call_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/check.h"

namespace cohort::actor {
namespace {

// Where the call of that number is, if it has no end.
std::optional<size_t> FindLive(const std::deque<CallQueue::Call>& calls,
                               uint64_t number) {
  const auto found = std::lower_bound(
      calls.begin(), calls.end(), number,
      [](const CallQueue::Call& call, uint64_t n) { return call.number < n; });
  if (found == calls.end() || found->number != number ||
      found->done == nullptr) {
    return std::nullopt;
  }
  return static_cast<size_t>(found - calls.begin());
}

}  // namespace

void CallQueue::Add(Call call) {
  waiting_.push_back(std::move(call));
  ++waiting_live_;
  ++pending_;
}

bool CallQueue::MayTake() const {
  if (!HasWaiting()) return false;
  if (unfinished_ == 0) return true;
  return unfinished_ < kWindowCalls && sent_bytes_ < window_bytes_;
}

CallQueue::Sent CallQueue::Take() {
  Call call = std::move(waiting_.front());
  waiting_.pop_front();
  --waiting_live_;
  DropEndedWaiting();
  sent_bytes_ += call.bytes;
  ++unfinished_;
  if (sent_.size() >= kWindowCalls) {
    overtaken_.emplace(first_sequence_++, std::move(sent_.front()));
    sent_.pop_front();
    DropFinishedSent();
  }
  Sent sent{
      first_sequence_ + sent_.size(), call.method,
      call.retries_left == 0 ? std::move(call.arguments) : call.arguments};
  sent_.push_back(std::move(call));
  return sent;
}

CallTarget::Done CallQueue::Finish(uint64_t sequence) {
  const auto overtaken = overtaken_.find(sequence);
  if (overtaken != overtaken_.end()) {
    CallTarget::Done done = TakeDone(overtaken->second);
    overtaken_.erase(overtaken);
    return done;
  }
  const uint64_t index = sequence - first_sequence_;
  // Of a sequence below the first, too.
  if (index >= sent_.size() || sent_[index].finished) return nullptr;
  CallTarget::Done done = TakeDone(sent_[index]);
  DropFinishedSent();
  return done;
}

CallTarget::Done CallQueue::TakeDone(Call& call) {
  sent_bytes_ -= call.bytes;
  --unfinished_;
  call.finished = true;
  CallTarget::Done done = std::exchange(call.done, nullptr);
  if (done != nullptr) --pending_;
  return done;
}

void CallQueue::DropFinishedSent() {
  while (!sent_.empty() && sent_.front().finished) {
    sent_.pop_front();
    ++first_sequence_;
  }
}

CallQueue::Cancelled CallQueue::Cancel(uint64_t number) {
  Cancelled cancelled;
  if (const auto waiting = FindLive(waiting_, number)) {
    cancelled.done = std::exchange(waiting_[*waiting].done, nullptr);
    waiting_[*waiting].arguments = std::string();
    --waiting_live_;
    DropEndedWaiting();
  } else if (const auto sent = FindLive(sent_, number)) {
    cancelled.done = std::exchange(sent_[*sent].done, nullptr);
    cancelled.sequence = first_sequence_ + *sent;
  } else if (const auto lost = FindLive(lost_, number)) {
    cancelled.done = std::exchange(lost_[*lost].done, nullptr);
  }
  for (auto& [sequence, call] : overtaken_) {
    if (call.number != number || call.done == nullptr) continue;
    cancelled.done = std::exchange(call.done, nullptr);
    cancelled.sequence = sequence;
  }
  if (cancelled.done != nullptr) --pending_;
  return cancelled;
}

void CallQueue::Break() {
  COHORT_CHECK(lost_.empty() || unfinished_ == 0);
  for (auto& [sequence, call] : overtaken_) {
    if (call.done != nullptr) lost_.push_back(std::move(call));
  }
  for (Call& call : sent_) {
    if (call.done != nullptr) lost_.push_back(std::move(call));
  }
  overtaken_.clear();
  sent_.clear();
  unfinished_ = 0;
  sent_bytes_ = 0;
  first_sequence_ = 1;
}

void CallQueue::Settle(const absl::Status& may_have_run,
                       std::vector<EndedCall>& ended) {
  std::deque<Call> again;
  for (Call& call : lost_) {
    if (call.done == nullptr) continue;
    if (call.retries_left == 0) {
      End(call, may_have_run, ended);
      continue;
    }
    if (call.retries_left > 0) --call.retries_left;
    call.was_lost = true;
    again.push_back(std::move(call));
  }
  lost_.clear();
  waiting_live_ += again.size();
  waiting_.insert(waiting_.begin(), std::make_move_iterator(again.begin()),
                  std::make_move_iterator(again.end()));
}

void CallQueue::EndWaiting(const absl::Status& not_started,
                           const absl::Status& may_have_run,
                           std::vector<EndedCall>& ended) {
  for (Call& call : waiting_) {
    End(call, call.was_lost ? may_have_run : not_started, ended);
  }
  waiting_.clear();
  waiting_live_ = 0;
}

void CallQueue::EndAll(const absl::Status& status,
                       std::vector<EndedCall>& ended) {
  for (auto& [sequence, call] : overtaken_) End(call, status, ended);
  overtaken_.clear();
  for (std::deque<Call>* calls : {&lost_, &sent_, &waiting_}) {
    for (Call& call : *calls) End(call, status, ended);
    calls->clear();
  }
  waiting_live_ = 0;
  unfinished_ = 0;
  sent_bytes_ = 0;
}

void CallQueue::End(Call& call, const absl::Status& status,
                    std::vector<EndedCall>& ended) {
  if (call.done == nullptr) return;
  ended.push_back({std::exchange(call.done, nullptr), status});
  --pending_;
}

void CallQueue::DropEndedWaiting() {
  while (!waiting_.empty() && waiting_.front().done == nullptr) {
    waiting_.pop_front();
  }
}

}  // namespace cohort::actor

#include "actor/call_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "actor/actor_end.h"
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
  if (!call.is_own) ++pending_;
  waiting_.push_back(std::move(call));
  ++waiting_live_;
}

bool CallQueue::MayTake() const {
  if (again_from_ > 0) return true;
  if (is_lost_ || !HasWaiting()) return false;
  if (unfinished_ == 0) return true;
  return unfinished_ < kWindowCalls && sent_bytes_ < window_bytes_;
}

CallQueue::Sent CallQueue::Take() {
  if (again_from_ > 0) {
    const Call& call = *FindSent(again_from_);
    Sent again{again_from_++, call.method, call.arguments, call.is_cancelled,
               call.is_withdrawn};
    SkipFinishedAgain();
    return again;
  }
  Call call = std::move(waiting_.front());
  waiting_.pop_front();
  --waiting_live_;
  DropEndedWaiting();
  sent_bytes_ += call.arguments.size();
  ++unfinished_;
  if (sent_.size() >= kWindowCalls) {
    overtaken_.emplace(first_sequence_++, std::move(sent_.front()));
    sent_.pop_front();
    DropFinishedSent();
  }
  sent_.push_back(std::move(call));
  const Call& sent = sent_.back();
  return {last_sequence(), sent.method, sent.arguments, sent.is_cancelled,
          sent.is_withdrawn};
}

CallQueue::Call* CallQueue::FindSent(uint64_t sequence) {
  const auto overtaken = overtaken_.find(sequence);
  if (overtaken != overtaken_.end()) return &overtaken->second;
  // Of a sequence below the first, too.
  const uint64_t index = sequence - first_sequence_;
  return index < sent_.size() ? &sent_[index] : nullptr;
}

CallTarget::Done CallQueue::Finish(uint64_t sequence) {
  Call* const call = FindSent(sequence);
  if (call == nullptr || call->finished) return nullptr;
  CallTarget::Done done = TakeDone(*call);
  overtaken_.erase(sequence);
  DropFinishedSent();
  SkipFinishedAgain();
  return done;
}

CallTarget::Done CallQueue::TakeDone(Call& call) {
  sent_bytes_ -= call.arguments.size();
  call.arguments = std::string();
  --unfinished_;
  call.finished = true;
  return CountEnd(call);
}

CallTarget::Done CallQueue::CountEnd(Call& call) {
  if (call.done != nullptr && !call.is_own) --pending_;
  return std::exchange(call.done, nullptr);
}

void CallQueue::DropFinishedSent() {
  while (!sent_.empty() && sent_.front().finished) {
    sent_.pop_front();
    ++first_sequence_;
  }
}

void CallQueue::SkipFinishedAgain() {
  if (again_from_ == 0) return;
  const auto overtaken = overtaken_.lower_bound(again_from_);
  if (overtaken != overtaken_.end()) {
    again_from_ = overtaken->first;
    return;
  }
  again_from_ = std::max(again_from_, first_sequence_);
  while (again_from_ <= last_sequence() && FindSent(again_from_)->finished) {
    ++again_from_;
  }
  if (again_from_ > last_sequence()) again_from_ = 0;
}

CallQueue::Cancelled CallQueue::Cancel(uint64_t number) {
  Cancelled cancelled = CancelWaiting(number, CallNotice::kCancelled);
  if (cancelled.done != nullptr) return cancelled;
  const uint64_t sequence = SentAs(number);
  if (sequence == 0) return cancelled;
  if (cancelled.sequence.has_value()) {
    cancelled.done = CountEnd(*FindSent(sequence));
  } else {
    cancelled.done = Finish(sequence);
    cancelled_.push_back(sequence);
  }
  return cancelled;
}

CallQueue::Cancelled CallQueue::CancelWaiting(uint64_t number,
                                              CallNotice notice) {
  Cancelled cancelled;
  if (const auto waiting = FindLive(waiting_, number)) {
    cancelled.done = CountEnd(waiting_[*waiting]);
    waiting_[*waiting].arguments = std::string();
    --waiting_live_;
    DropEndedWaiting();
    return cancelled;
  }
  const uint64_t sequence = SentAs(number);
  if (sequence == 0) return cancelled;
  Call& call = *FindSent(sequence);
  (notice == CallNotice::kCancelled ? call.is_cancelled : call.is_withdrawn) =
      true;
  const bool is_lost = is_lost_ || (again_from_ > 0 && sequence >= again_from_);
  if (!is_lost) cancelled.sequence = sequence;
  return cancelled;
}

uint64_t CallQueue::SentAs(uint64_t number) const {
  if (const auto sent = FindLive(sent_, number)) return first_sequence_ + *sent;
  for (const auto& [sequence, call] : overtaken_) {
    if (call.number == number && call.done != nullptr) return sequence;
  }
  return 0;
}

void CallQueue::Break() {
  is_lost_ = true;
  again_from_ = 0;
  // Nobody would send them again.
  for (const auto& [sequence, call] : overtaken_) {
    if (call.done == nullptr) cancelled_.push_back(sequence);
  }
  for (size_t i = 0; i < sent_.size(); ++i) {
    if (sent_[i].done == nullptr && !sent_[i].finished) {
      cancelled_.push_back(first_sequence_ + i);
    }
  }
  DropSentIf([](const Call& call) { return call.done == nullptr; });
}

std::vector<uint64_t> CallQueue::Resume() {
  is_lost_ = false;
  again_from_ = 1;
  SkipFinishedAgain();
  return std::exchange(cancelled_, {});
}

template <typename Predicate>
void CallQueue::DropSentIf(Predicate predicate) {
  for (auto each = overtaken_.begin(); each != overtaken_.end();) {
    const bool goes = predicate(each->second);
    if (goes) TakeDone(each->second);
    each = goes ? overtaken_.erase(each) : std::next(each);
  }
  for (Call& call : sent_) {
    if (!call.finished && predicate(call)) TakeDone(call);
  }
  DropFinishedSent();
}

void CallQueue::GiveUp(const absl::Status& may_have_run, bool retries_too,
                       std::vector<EndedCall>& ended) {
  DropSentIf([&](Call& call) {
    if (call.retries_left != 0 && !retries_too) return false;
    End(call, may_have_run, ended);
    return true;
  });
}

void CallQueue::Settle(const absl::Status& may_have_run,
                       std::vector<EndedCall>& ended) {
  COHORT_CHECK(!HasSent());
  std::deque<Call> again;
  const auto settle = [&](Call& call) {
    if (call.finished) return;
    if (call.retries_left == 0) return End(call, may_have_run, ended);
    if (call.retries_left > 0) --call.retries_left;
    call.was_lost = true;
    again.push_back(std::move(call));
  };
  for (auto& [sequence, call] : overtaken_) settle(call);
  for (Call& call : sent_) settle(call);
  unfinished_ = 0;
  StartAnew();
  waiting_live_ += again.size();
  waiting_.insert(waiting_.begin(), std::make_move_iterator(again.begin()),
                  std::make_move_iterator(again.end()));
}

void CallQueue::StartAnew() {
  COHORT_CHECK(unfinished_ == 0);
  overtaken_.clear();
  sent_.clear();
  cancelled_.clear();
  sent_bytes_ = 0;
  first_sequence_ = 1;
  is_lost_ = false;
  again_from_ = 0;
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
  for (Call& call : sent_) End(call, status, ended);
  for (Call& call : waiting_) End(call, status, ended);
  waiting_.clear();
  waiting_live_ = 0;
  unfinished_ = 0;
  StartAnew();
}

void CallQueue::End(Call& call, const absl::Status& status,
                    std::vector<EndedCall>& ended) {
  if (call.done == nullptr) return;
  ended.push_back({CountEnd(call), OfCall(status, call.method.name)});
}

void CallQueue::DropEndedWaiting() {
  while (!waiting_.empty() && waiting_.front().done == nullptr) {
    waiting_.pop_front();
  }
}

}  // namespace cohort::actor

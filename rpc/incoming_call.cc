#include "rpc/incoming_call.h"

#include <algorithm>
#include <utility>

#include "common/executor.h"

namespace cohort::rpc {

void LastingCalls::Add(const std::string& token,
                       const std::shared_ptr<IncomingCall>& call) {
  MutexLock lock(mutex_);
  calls_[token].emplace(call.get(), call);
}

void LastingCalls::Remove(const std::string& token, const IncomingCall* call) {
  MutexLock lock(mutex_);
  const auto found = calls_.find(token);
  if (found == calls_.end()) return;
  found->second.erase(call);
  if (found->second.empty()) calls_.erase(found);
}

std::vector<std::string> LastingCalls::Tokens() const {
  std::vector<std::string> tokens;
  MutexLock lock(mutex_);
  tokens.reserve(calls_.size());
  for (const auto& [token, calls] : calls_) tokens.push_back(token);
  return tokens;
}

std::vector<std::shared_ptr<IncomingCall>> LastingCalls::CallsOf(
    const std::string& token) const {
  std::vector<std::shared_ptr<IncomingCall>> held;
  MutexLock lock(mutex_);
  const auto found = calls_.find(token);
  if (found == calls_.end()) return held;
  for (const auto& [address, weak] : found->second) {
    if (auto call = weak.lock(); call != nullptr) {
      held.push_back(std::move(call));
    }
  }
  return held;
}

void RouterCore::SetStamp(Stamp stamp) {
  MutexLock lock(mutex_);
  stamp_ = std::move(stamp);
}

std::optional<Stamp> RouterCore::stamp() const {
  MutexLock lock(mutex_);
  return stamp_;
}

IncomingCall::IncomingCall(std::shared_ptr<RouterCore> core, Admitted admitted,
                           const CallInfo& info, ServerTransport& transport)
    : transport_(&transport),
      core_(std::move(core)),
      place_(std::move(admitted.place)),
      admitted_(std::move(admitted)),
      peer_(info.peer),
      began_(core_->clock().Monotonic()),
      deadline_(core_->clock().Monotonic() + info.time_left) {}

IncomingCall::~IncomingCall() {
  const std::string& token = admitted_.principal.token_id;
  if (!token.empty()) core_->lasting().Remove(token, this);
}

absl::Duration IncomingCall::DeadlineLeft() const {
  if (deadline_ == absl::InfiniteDuration()) return deadline_;
  return std::max(absl::ZeroDuration(), deadline_ - core_->clock().Monotonic());
}

void IncomingCall::OnCancel(absl::AnyInvocable<void() &&> callback) {
  {
    MutexLock lock(mutex_);
    if (transport_ != nullptr) {
      std::swap(on_cancel_, callback);
      return;  // What it replaces is destroyed after the lock.
    }
  }
  if (IsCancelled()) PostUnlessNull(std::move(callback));
}

absl::Status IncomingCall::CancelStatus(absl::Status by_caller) const {
  if (IsLate()) {
    return absl::DeadlineExceededError("the call's deadline passed");
  }
  return by_caller;
}

void IncomingCall::FinishLocked(absl::Status status,
                                std::optional<std::string> message) {
  ServerTransport* const transport = std::exchange(transport_, nullptr);
  if (!IsCancelled()) Admission::Place(std::move(place_));
  core_->Observe(method().path, method().open != nullptr, status.code(),
                 core_->clock().Monotonic() - began_);
  transport->Finish({.status = std::move(status),
                     .message = std::move(message),
                     .stamp = core_->stamp()});
}

absl::AnyInvocable<void() &&> IncomingCall::CancelLocked() {
  cancelled_.store(true, std::memory_order_release);
  return std::exchange(on_cancel_, nullptr);
}

void IncomingCall::Post(Task task) {
  if (admitted_.method->line == nullptr) {
    admitted_.method->strand->Post(std::move(task));
  } else {
    admitted_.method->line->Post(admitted_.caller, std::move(task));
  }
}

void IncomingCall::Dispatch(Task task) {
  if (admitted_.method->line == nullptr) {
    admitted_.method->strand->Dispatch(std::move(task));
  } else {
    admitted_.method->line->Dispatch(admitted_.caller, std::move(task));
  }
}

void IncomingCall::PostUnlessNull(absl::AnyInvocable<void() &&> callback) {
  if (callback == nullptr) return;
  Post(std::move(callback));
}

}  // namespace cohort::rpc

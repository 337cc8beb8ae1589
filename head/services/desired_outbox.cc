#include "head/services/desired_outbox.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "head/services/node_wire.h"

namespace cohort::head {

absl::Status DesiredOutbox::Add(const std::vector<DesiredAttempt>& attempts) {
  for (const DesiredAttempt& attempt : attempts) {
    const auto [place, is_new] =
        newest_.insert_or_assign(attempt.attempt, attempt);
    if (is_new) order_.push_back(attempt.attempt);
  }
  if (order_.size() <= kAttemptsMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "the worker does not read: ", order_.size(), " attempts wait for it"));
}

absl::Status DesiredOutbox::AddExchanges(
    const std::vector<SharedExchange>& exchanges) {
  exchanges_.insert(exchanges_.end(), exchanges.begin(), exchanges.end());
  if (exchanges_.size() <= kExchangesMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the worker does not read: ", exchanges_.size(),
                   " exchanges wait for it"));
}

v1::Desired DesiredOutbox::Next(size_t bytes_max) {
  v1::Desired desired;
  desired.set_version(++version_);
  size_t bytes = 0;
  while (!order_.empty() && bytes < bytes_max) {
    auto next = newest_.extract(order_.front());
    order_.pop_front();
    v1::DesiredAttempt* const added = desired.add_attempts();
    *added = ToWire(next.mapped());
    bytes += added->ByteSizeLong();
  }
  if (full_) {
    desired.set_full(true);
    desired.set_more(!order_.empty());
    full_ = desired.more();
  }
  if (desired.attempts_size() == 0 && !exchanges_.empty()) {
    *desired.add_exchanges() = ToWire(*exchanges_.front());
    exchanges_.pop_front();
  }
  return desired;
}

}  // namespace cohort::head

#include "head/services/desired_outbox.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cohort::head {

namespace {

// What `before` told to forget and `now` does not speak of.
void KeepForgotten(const v1::DesiredPlace& before, v1::DesiredPlace& now) {
  if (now.goal() == v1::GOAL_FORGET) return;
  std::set<Incarnation> named;
  for (const v1::DesiredProcess& each : now.processes()) {
    named.emplace(each.slot(), each.incarnation());
  }
  for (const v1::DesiredProcess& each : before.processes()) {
    if (each.goal() == v1::GOAL_FORGET &&
        named.emplace(each.slot(), each.incarnation()).second) {
      *now.add_processes() = each;
    }
  }
}

}  // namespace

absl::Status DesiredOutbox::Add(const std::vector<v1::DesiredPlace>& places) {
  for (const v1::DesiredPlace& place : places) {
    const auto [newest, is_new] = newest_.try_emplace(place.attempt_id());
    if (is_new) order_.push_back(place.attempt_id());
    const v1::DesiredPlace before =
        std::exchange(newest->second, v1::DesiredPlace(place));
    KeepForgotten(before, newest->second);
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
    v1::DesiredPlace* const added = desired.add_places();
    *added = std::move(next.mapped());
    if (added->goal() == v1::GOAL_FORGET) {
      launched_.erase(added->attempt_id());
    } else if (!launched_.insert(added->attempt_id()).second) {
      added->clear_launch();
    }
    bytes += added->ByteSizeLong();
  }
  if (full_) {
    desired.set_full(true);
    desired.set_more(!order_.empty());
    full_ = desired.more();
  }
  if (desired.places_size() == 0 && !exchanges_.empty()) {
    *desired.add_exchanges() = *exchanges_.front();
    exchanges_.pop_front();
  }
  return desired;
}

}  // namespace cohort::head

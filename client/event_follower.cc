#include "client/event_follower.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::client {
namespace {

// What a restore is recorded as, with the generation that it began.
constexpr char kRestored[] = "store_restored";
constexpr char kHistoryReplaced[] = "history_replaced";

}  // namespace

EventFollower::EventFollower(Ask ask, v1::ListEventsRequest request,
                             bool follows, Sink sink)
    : ask_(ask), request_(std::move(request)), follows_(follows), sink_(sink) {}

absl::Status EventFollower::Run() {
  for (;;) {
    const absl::StatusOr<v1::ListEventsResponse> page = ask_(request_);
    if (GetReason(page.status()) == kHistoryReplaced) {
      COHORT_RETURN_IF_ERROR(Rejoin());
      continue;
    }
    if (!page.ok()) return page.status();
    request_.set_generation(page->generation());
    COHORT_RETURN_IF_ERROR(Show(*page));
    if (page->next() < request_.after()) {
      return absl::InternalError("the head's events went back");
    }
    request_.set_after(page->next());
    if (page->more()) continue;
    if (!follows_) return absl::OkStatus();
    request_.set_wait(true);
  }
}

absl::Status EventFollower::Show(const v1::ListEventsResponse& page) {
  // Before the first event that is asked for nobody misses anything.
  if (request_.after() > 0) skipped_ += page.skipped();
  for (int i = 0; i < page.events_size(); ++i) {
    const Event& event = page.events(i);
    if (restore_.has_value() && restore_->number() <= event.number()) {
      const Event restore = *std::exchange(restore_, std::nullopt);
      replaced_ = true;
      if (restore.number() < event.number()) {
        COHORT_RETURN_IF_ERROR(Give(restore, /*more=*/true));
      }
    }
    COHORT_RETURN_IF_ERROR(Give(event, /*more=*/i + 1 < page.events_size()));
  }
  if (!restore_.has_value() || page.next() < restore_->number()) {
    return absl::OkStatus();
  }
  replaced_ = true;
  return Give(*std::exchange(restore_, std::nullopt), /*more=*/false);
}

absl::Status EventFollower::Give(const Event& event, bool more) {
  return sink_(event, {.more = more,
                       .skipped = std::exchange(skipped_, 0),
                       .history_replaced = std::exchange(replaced_, false)});
}

absl::Status EventFollower::Rejoin() {
  v1::ListEventsRequest find;
  find.set_kind(kRestored);
  std::vector<Event> restores;
  for (bool more = true; more;) {
    const absl::StatusOr<v1::ListEventsResponse> page = ask_(find);
    // And again meanwhile: that is found as this one was.
    if (GetReason(page.status()) == kHistoryReplaced) return absl::OkStatus();
    if (!page.ok()) return page.status();
    for (const Event& event : page->events()) {
      if (event.kind() == kRestored) restores.push_back(event);
    }
    find.set_generation(page->generation());
    find.set_after(page->next());
    more = page->more();
  }
  // The restore after the one that began what was read so far.  None did that
  // is known: it was the first generation, or one that is not part of this
  // history, and which events are common is not known beyond the first restore.
  const std::string began = absl::StrCat(
      "generation ", absl::BytesToHexString(request_.generation()));
  size_t parted = 0;
  for (size_t i = 0; i + 1 < restores.size(); ++i) {
    if (restores[i].text() == began) parted = i + 1;
  }
  request_.set_generation(find.generation());
  if (restores.empty()) {
    // It is not kept any more, so all that is kept is newer.
    replaced_ = true;
    request_.set_after(0);
    return absl::OkStatus();
  }
  restore_ = std::move(restores[parted]);
  request_.set_after(std::min(request_.after(), restore_->number() - 1));
  return absl::OkStatus();
}

}  // namespace cohort::client

#include "head/autoscaler/provider_watch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "common/log.h"
#include "common/printable_text.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "head/autoscaler/followed_program.h"
#include "head/autoscaler/provider_json.h"

namespace cohort::head {
namespace {

// One that lived this long was well.
constexpr absl::Duration kWatchWell = absl::Minutes(1);
constexpr absl::Duration kRestPiece = absl::Milliseconds(100);
// Of one run of the program.
constexpr int kGarbageLogged = 10;

}  // namespace

absl::StatusOr<ProviderEvent> ParseProviderEvent(const std::string& line) {
  COHORT_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(line));
  ProviderEvent event;
  COHORT_ASSIGN_OR_RETURN(event.id, TextOf(json, "id", kProviderIdBytesMax));
  if (event.id.empty()) {
    return absl::InvalidArgumentError("an event has no id");
  }
  event.reason = ReasonOf(json);
  COHORT_ASSIGN_OR_RETURN(const std::string kind, TextOf(json, "event", 64));
  if (kind == "gone") return event;
  if (kind != "notice") {
    return absl::InvalidArgumentError(
        absl::StrCat("event is gone or notice, not ", Shown(kind)));
  }
  event.notice = NoticeOf(json, "deadline_s");
  if (!event.notice.has_value()) {
    return absl::InvalidArgumentError(
        "deadline_s of a notice is a number of seconds from now");
  }
  return event;
}

ProviderWatch::ProviderWatch(std::vector<std::string> command,
                             std::vector<std::string> environment,
                             Executor& strand,
                             std::function<void(const ProviderEvent&)> on_event)
    : command_(std::move(command)),
      environment_(std::move(environment)),
      strand_(strand),
      on_event_(std::move(on_event)),
      thread_([this] { Loop(); }) {}

ProviderWatch::~ProviderWatch() {
  stop_ = true;
  thread_.join();
}

void ProviderWatch::Loop() {
  absl::Duration pause = kWatchPauseMin;
  while (!stop_) {
    const absl::Duration began = MonotonicNow();
    int garbage = 0;
    const absl::Status status = FollowProgram(
        command_, environment_,
        [this, &garbage](const std::string& line) { OnLine(line, garbage); },
        stop_);
    if (stop_) return;
    if (absl::IsUnimplemented(status)) {
      COHORT_LOG(kInfo, "provider_has_no_watch", {"program", command_[0]});
      Rest(kWatchPauseMax);
      continue;
    }
    if (MonotonicNow() - began >= kWatchWell) pause = kWatchPauseMin;
    COHORT_LOG(kWarning, "watch_ended", {"program", command_[0]},
               {"why", status}, {"again_in", pause}, {"garbage", garbage});
    Rest(pause);
    pause = std::min(2 * pause, kWatchPauseMax);
  }
}

void ProviderWatch::OnLine(const std::string& line, int& garbage) {
  absl::StatusOr<ProviderEvent> event = ParseProviderEvent(line);
  if (!event.ok()) {
    if (++garbage > kGarbageLogged) return;
    COHORT_LOG(kWarning, "watch_not_understood", {"program", command_[0]},
               {"why", event.status()});
    return;
  }
  strand_.Post(
      [on_event = on_event_, event = *std::move(event)] { on_event(event); });
}

void ProviderWatch::Rest(absl::Duration pause) {
  for (const absl::Duration until = MonotonicNow() + pause;
       !stop_ && MonotonicNow() < until;) {
    absl::SleepFor(kRestPiece);
  }
}

}  // namespace cohort::head

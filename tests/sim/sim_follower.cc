#include "tests/sim/sim_follower.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/status_util.h"
#include "rpc/methods.h"

namespace cohort::sim {
namespace {

constexpr absl::Duration kAgainAfter = absl::Milliseconds(100);
constexpr absl::Duration kDeadline = absl::Seconds(5);

}  // namespace

Follower::Follower(World world, const std::string& name, ShownEvents& shown,
                   IsTrimmed is_trimmed)
    : world_(world),
      channel_(world.network.Connect(name, "head", world.credential)),
      shown_(shown),
      is_trimmed_(std::move(is_trimmed)) {}

void Follower::Start() {
  if (!started_) StartAnew();
}

void Follower::StartAnew() {
  started_ = true;
  ++life_;
  last_ = 0;
  Ask();
}

void Follower::Violate(std::string what) {
  if (!world_.checks_durability) return;
  if (violation_.empty()) violation_ = std::move(what);
}

void Follower::Ask() {
  v1::ListEventsRequest request;
  request.set_after(last_);
  request.set_wait(true);
  request.set_limit(static_cast<int32_t>(1 + world_.random.Below(100)));
  rpc::Call(*channel_, rpc::kListEvents, request, {.deadline = kDeadline},
            world_.executor,
            [this, life = life_](absl::StatusOr<v1::ListEventsResponse> page) {
              if (life != life_) return;
              if (page.ok()) {
                OnPage(*page);
                return Ask();
              }
              if (!IsRetryable(page.status()) &&
                  !absl::IsDeadlineExceeded(page.status())) {
                return Violate("EV-1: follow: " + page.status().ToString());
              }
              world_.counters.Count("events_asked_again");
              AskAgain();
            });
}

void Follower::AskAgain() {
  world_.executor.PostAfter(kAgainAfter, [this, life = life_] {
    if (life == life_) Ask();
  });
}

void Follower::OnPage(const v1::ListEventsResponse& page) {
  if (page.skipped() != 0) {
    world_.counters.Count("events_trimmed_before_seen");
    last_ += page.skipped();
    if (!is_trimmed_(last_)) {
      Violate(absl::StrCat("EV-1: event ", last_, " is gone, not trimmed"));
    }
  }
  for (const v1::Event& event : page.events()) {
    if (event.number() != last_ + 1) {
      Violate(
          absl::StrCat("EV-1: event ", event.number(), " came after ", last_));
    }
    last_ = event.number();
    const std::string is = absl::StrCat(event.kind(), " ", event.text());
    const auto [shown, first] = shown_.emplace(event.number(), is);
    world_.counters.Count(first ? "event_seen" : "event_seen_by_another");
    if (shown->second != is) {
      Violate(absl::StrCat("EV-1: event ", event.number(), " was \"",
                           shown->second, "\" and is \"", is, "\""));
    }
  }
  if (page.next() != last_) {
    Violate(
        absl::StrCat("EV-1: after ", last_, " to go on from ", page.next()));
  }
}

}  // namespace cohort::sim

#include "actor/hosted_actor.h"

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"

#include "actor/demangle.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::actor {

absl::StatusOr<std::unique_ptr<HostedActor>> HostedActor::Make(
    const v1::ActorStart& start, Options options) {
  std::unique_ptr<HostedActor> made(new HostedActor(std::move(options)));
  const RankHere here(made->options_.rank);
  const absl::Status begun = made->Begin(start);
  if (begun.ok()) return made;
  if (!made->options_.shares_process) return begun;
  return Annotate(begun, absl::StrCat("rank ", made->options_.rank.rank()));
}

absl::Status HostedActor::Begin(const v1::ActorStart& start) {
  absl::StatusOr<Instance> made =
      Instance::Construct(start.constructor(), start.arguments());
  if (!made.ok()) {
    return Annotate(made.status(), absl::StrCat("cannot make actor ",
                                                Demangle(start.class_name())));
  }
  instance_.emplace(*std::move(made));
  if (!instance_->HasState()) return absl::OkStatus();
  state_.emplace(*instance_, options_.state_directory, options_.rank.rank(),
                 options_.incarnation);
  return Annotate(state_->Restore(),
                  absl::StrCat("cannot restore the state of actor ",
                               Demangle(start.class_name())));
}

absl::StatusOr<std::string> HostedActor::Invoke(const std::string& method,
                                                absl::string_view arguments) {
  const RankHere here(options_.rank);
  if (!options_.shares_process) {
    DoWanted();
    return Call(method, arguments);
  }
  MutexLock lock(turn_);
  DoWanted();
  // Its next incarnation runs what comes now.
  while (is_over_) never_.Wait(turn_);
  return Call(method, arguments);
}

absl::StatusOr<std::string> HostedActor::Call(const std::string& method,
                                              absl::string_view arguments) {
  if (method != kSaveMethod || !state_.has_value()) {
    return instance_->Invoke(method, arguments);
  }
  COHORT_RETURN_IF_ERROR(state_->Save());
  return std::string();
}

void HostedActor::Want(Wanted what) {
  if (state_.has_value()) wanted_ = what;
}

void HostedActor::TakeTurn() {
  const RankHere here(options_.rank);
  if (!options_.shares_process) return DoWanted();
  MutexLock lock(turn_);
  DoWanted();
}

bool HostedActor::TryTurn() {
  if (!options_.shares_process) return false;
  if (!turn_.TryLock()) return false;
  const RankHere here(options_.rank);
  DoWanted();
  turn_.Unlock();
  return true;
}

void HostedActor::DoWanted() {
  // Each call comes by: a load costs it nothing.
  if (wanted_.load() == Wanted::kNothing) return;
  const Wanted wanted = wanted_.exchange(Wanted::kNothing);
  if (wanted == Wanted::kNothing) return;
  const absl::Status saved = state_->Save();
  if (!saved.ok()) {
    std::fprintf(stderr, "cohort: cannot save the actor's state: %s\n",
                 std::string(saved.message()).c_str());
  }
  if (wanted != Wanted::kSaveAndEnd) return;
  is_over_ = true;
  options_.on_end();
}

}  // namespace cohort::actor

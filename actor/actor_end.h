#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "cohort/v1/actor.pb.h"

// Errors for callers of an actor that has ended, made from the head's word.
// Stateless; thread-safe.
namespace cohort::actor {

// Whether a call ended because its actor, or the way there, did: one of the
// statuses below, and none that a method returned, whatever its reason says.
bool IsActorEnd(const absl::Status& status);

// UNAVAILABLE, "not_started": "actor Counter is dead: its process on w1 was
// killed by signal 9: REASON; the end of its stderr: ...".  REQUIRES: its
// job has ended.
absl::Status NotStarted(const v1::ActorStanding& standing);

// UNAVAILABLE, "not_started": somebody here has killed it.
absl::Status WasKilled(const v1::ActorStanding& standing);

// UNAVAILABLE, "may_have_run": the process ended while the call was there; `to`
// is what the head said of it when it lived.
absl::Status EndedDuringCall(const v1::ActorStanding& standing,
                             const v1::ActorStanding& to);

// UNAVAILABLE, "may_have_run": the stream broke, and nobody says that the
// process ended; `broke` is the stream's status.
absl::Status BrokeDuringCall(const v1::ActorStanding& standing,
                             const absl::Status& broke);

// UNAVAILABLE, "not_started": the stream to it could not be opened, and nobody
// says why.
absl::Status NotReached(const v1::ActorStanding& standing,
                        const absl::Status& broke);

}  // namespace cohort::actor

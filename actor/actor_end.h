#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "cohort/v1/actor.pb.h"

// Errors for callers of an actor that has ended, made from the head's word.
// Stateless; thread-safe.
namespace cohort::actor {

// What runs tasks, in the place of an actor's class.
inline constexpr char kExecutorClass[] = "task executor";

// Whether a call ended because its actor, or the way there, did: one of the
// statuses below, and none that a method returned, whatever its reason says.
bool IsActorEnd(const absl::Status& status);

// `end`, one of the statuses below, with the method (as in method.h) in place
// of "the call"; others, and one that names it already, as they are.
absl::Status OfCall(const absl::Status& end, const std::string& method);

// "actor counter-7 (Counter) waits: WHY (`cohort explain ID` says more)", of
// one that waits for its place; "" of others.
std::string WaitText(const v1::ActorStanding& standing);

// UNAVAILABLE, "not_started": "actor counter-7 (Counter) is dead and did not
// run the call: its process on w1 was killed by signal 9: REASON; the end of
// its stderr: ...".  REQUIRES: its job has ended.
absl::Status NotStarted(const v1::ActorStanding& standing);

// Whether it is the answer to one who showed another secret than the actor's,
// which it has: it says nothing of others.
bool IsRefusal(const v1::ActorStanding& told);

// Where the actor in that slot stands for one who shows that secret ("": it
// needs none), by what the head says of the job; none: that says nothing of it.
// It has ended where the job has no such slot, or another secret.
std::optional<v1::ActorStanding> StandingFor(const v1::ActorStanding& told,
                                             uint32_t slot,
                                             absl::string_view secret);

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

#pragma once

#include "absl/status/status.h"

// Why a call failed: GetReason (common/status_util.h) of what its Future
// holds.  A status without one of these is what the method itself returned.
//
// Only kReasonNotStarted and kReasonQueueFull say for certain that the method
// did not run and may be called again; kReasonMayHaveRun and kReasonDeadline
// leave it open.
namespace cohort {

// UNKNOWN: it ran and threw; the message is the exception's, or its type.
inline constexpr char kReasonException[] = "exception";
// UNIMPLEMENTED: the actor's program has no such method, or it is none of the
// actor's class.
inline constexpr char kReasonNoMethod[] = "no_method";
// INVALID_ARGUMENT: the arguments could not be decoded there, so it did not
// run.
inline constexpr char kReasonBadArguments[] = "bad_arguments";
// INTERNAL: it ran, but its result could not be decoded here: the actor's
// program is another one.
inline constexpr char kReasonBadResult[] = "bad_result";
// INVALID_ARGUMENT: arguments or result are over 4 MiB.
inline constexpr char kReasonTooLarge[] = "too_large";
// UNAVAILABLE: the actor is dead; this call never reached it.
inline constexpr char kReasonNotStarted[] = "not_started";
// UNAVAILABLE: the process ended, or the stream broke, while the call was
// there.
inline constexpr char kReasonMayHaveRun[] = "may_have_run";
// CANCELLED: by the caller, or nobody is left who could answer; one that has
// begun sees it by IsCancelled (is_cancelled.h).
inline constexpr char kReasonCancelled[] = "cancelled";
// DEADLINE_EXCEEDED: it may run yet.
inline constexpr char kReasonDeadline[] = "deadline";
// RESOURCE_EXHAUSTED: ActorOptions::max_pending_calls are waiting.
inline constexpr char kReasonQueueFull[] = "queue_full";
// FAILED_PRECONDITION: the runtime that made the handle is gone.
inline constexpr char kReasonSessionOver[] = "session_over";
// FAILED_PRECONDITION: a task that cohort::Run was to run: this process has no
// driver, as a detached actor has none.
inline constexpr char kReasonNoDriver[] = "no_driver";
// NOT_FOUND: the process at that address is another actor, or another
// incarnation of it.
inline constexpr char kReasonWrongActor[] = "wrong_actor";

namespace actor {

// The status for the exception that is being handled: UNKNOWN,
// kReasonException, its what(), or its type where that is empty.  REQUIRES:
// called in a catch clause.
absl::Status ExceptionStatus();

}  // namespace actor
}  // namespace cohort

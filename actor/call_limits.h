#pragma once

#include <cstddef>

#include "absl/time/time.h"

// What the two ends of a stream of calls hold each other to: both are bounded
// in memory, whatever the other does.
namespace cohort::actor {

// Of one call.  Larger values belong in files.
inline constexpr size_t kArgumentsBytesMax = 4 << 20;
inline constexpr size_t kResultBytesMax = 4 << 20;

// A message takes no more calls or results beyond: large enough that its own
// cost is nothing beside theirs, small enough to be encoded in 0.1 ms.
inline constexpr size_t kBatchBytes = 256 << 10;
inline constexpr size_t kBatchCalls = 1024;

// Calls of one stream that have no result yet: more wait at their caller.  A
// million calls a second need this many while a result takes 16 ms.
inline constexpr size_t kWindowCalls = 16 << 10;
// The last call may go beyond.
inline constexpr size_t kWindowBytes = 16 << 20;

// Results that wait for their caller to read; beyond, its calls do not begin.
inline constexpr size_t kResultsHeldBytes = 1 << 20;

// Results that were sent and may be lost yet: their caller tells what came when
// it has that much, or with its next call.  Beyond, the oldest are forgotten.
inline constexpr size_t kResultsUntoldBytes = 64 << 10;
inline constexpr size_t kResultsKeptBytes = 8 << 20;

// Callers whose streams broke are remembered for so long, these with results of
// that much, the last ones; each tries for less to come back.
inline constexpr absl::Duration kRememberCaller = absl::Minutes(1);
inline constexpr size_t kRememberedCallers = 1024;
inline constexpr size_t kRememberedBytes = 32 << 20;
inline constexpr absl::Duration kResumeMax = absl::Seconds(10);

// Calls of a lane that wait for futures while others run in their place: each
// holds a thread.
inline constexpr int kGivenWayMax = 512;

// Messages beyond go by the stream, though the other end looks at the ring; a
// process offers so many rings, and opens so many.
inline constexpr size_t kRingMessageBytesMax = 8 << 10;
inline constexpr int kRingsOffered = 16;
inline constexpr int kRingsOpened = 64;

// Methods of one stream, and the bytes of a name.
inline constexpr size_t kMethodsMax = 4096;
inline constexpr size_t kMethodNameBytesMax = 16 << 10;

}  // namespace cohort::actor

#pragma once

namespace cohort {

// What our programs exit with; docs/operations/reference.md says it to people.
inline constexpr int kExitOk = 0;
// The command line, or a value or local file that it names, is invalid.
inline constexpr int kExitUsage = 2;
inline constexpr int kExitDeadline = 124;
// Everything else that we could not do.
inline constexpr int kExitFailure = 125;
inline constexpr int kExitStopped = 130;

}  // namespace cohort

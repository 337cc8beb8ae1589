#pragma once

#include <cstddef>
#include <string>
#include <tuple>

// What the types below need.
#include "actor/codec_base.h"
#include "actor/codec_messages.h"
#include "actor/codec_values.h"

// Values as bytes: arguments and results of calls.
//
// There is a Codec for numbers but long double, bool, enums, std::string, pair,
// tuple, array, optional, variant and unique_ptr of such; containers of them
// that are sequences (vector, deque, list, ...), sets or maps (also multimap,
// absl::flat_hash_map, ...); absl::Duration and Time, durations and time points
// of std::chrono, absl::Status and StatusOr, protobuf messages, Handle; plain
// structs of at most 32 numbers, which are copied as they lie in memory and so
// mean something to the same build only; and structs that name their fields:
//
//   struct StepStats {
//     std::string phase;
//     std::vector<float> losses;
//     int64_t step = 0;
//     COHORT_FIELDS(phase, losses, step)
//   };
//
// The bytes are for programs that run now, not for files.  Two builds of a
// struct understand each other when fields were only appended: one that the
// writer did not know stays as the default constructor leaves it, one that the
// reader does not know is skipped.
// In a public part of the struct; a derived one names those of its base, too.
#define COHORT_FIELDS(...)                                \
  auto CohortFields() { return ::std::tie(__VA_ARGS__); } \
  auto CohortFields() const { return ::std::tie(__VA_ARGS__); }

namespace cohort {
// The length of all, then the fields.
template <actor::HasFields T>
struct Codec<T> {
  static void Encode(const T& value, Encoder& encoder) {
    const size_t begin = encoder.BeginBlock();
    std::apply(
        [&encoder](const auto&... field) { (encoder.Write(field), ...); },
        value.CohortFields());
    encoder.EndBlock(begin);
  }
  static bool Decode(Decoder& decoder, T& value) {
    size_t outer_end = 0;
    if (!decoder.EnterBlock(outer_end)) return false;
    const bool ok = std::apply(
        [&decoder](auto&... field) {
          return ((decoder.AtEnd() || decoder.Read(field)) && ...);
        },
        value.CohortFields());
    if (ok) decoder.LeaveBlock(outer_end);
    return ok;
  }
};

}  // namespace cohort

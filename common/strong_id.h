#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/hex_text.h"
#include "common/random.h"

namespace cohort {

// Sixteen random bytes that name one thing; a type for each kind of thing, so
// that passing a NodeId where a JobId belongs does not compile.
//
// `Tag` has `static constexpr char kNoun[]`, for error messages.  People see
// and type 32 lower-case hex digits; messages and records carry the bytes.
// A value; thread-compatible.
template <typename Tag>
class StrongId {
 public:
  static constexpr size_t kBytes = 16;

  // The nil id, which names nothing.
  constexpr StrongId() : bytes_{} {}

  // A new id, never nil.
  static StrongId New(Random& random) {
    StrongId id;
    while (id.IsNil()) random.Fill(id.bytes_);
    return id;
  }

  // InvalidArgument unless there are exactly 16 bytes.  All zero is nil.
  static absl::StatusOr<StrongId> FromBytes(absl::string_view bytes) {
    if (bytes.size() != kBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a ", Tag::kNoun, " id has 16 bytes, this one has ", bytes.size()));
    }
    StrongId id;
    std::copy(bytes.begin(), bytes.end(), id.bytes_.begin());
    return id;
  }

  // InvalidArgument unless `hex` is 32 hex digits, in either case.
  static absl::StatusOr<StrongId> FromHex(absl::string_view hex) {
    if (hex.size() != 2 * kBytes ||
        !std::all_of(hex.begin(), hex.end(), absl::ascii_isxdigit)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a ", Tag::kNoun, " id is 32 hex digits, not \"",
                       absl::CHexEscape(hex.substr(0, 64)), "\""));
    }
    return FromBytes(HexToBytes(hex));
  }

  // Lives as long as this id.
  absl::string_view bytes() const {
    return absl::string_view(reinterpret_cast<const char*>(bytes_.data()),
                             kBytes);
  }
  std::string ToHex() const { return absl::BytesToHexString(bytes()); }
  bool IsNil() const { return *this == StrongId(); }

  friend auto operator<=>(const StrongId&, const StrongId&) = default;

  template <typename H>
  friend H AbslHashValue(H h, const StrongId& id) {
    return H::combine(std::move(h), id.bytes_);
  }

  friend std::ostream& operator<<(std::ostream& out, const StrongId& id) {
    return out << id.ToHex();
  }

 private:
  std::array<uint8_t, kBytes> bytes_;
};

struct AttemptTag {
  static constexpr char kNoun[] = "attempt";
};
struct ClusterTag {
  static constexpr char kNoun[] = "cluster";
};
struct DriverTag {
  static constexpr char kNoun[] = "driver";
};
struct GenerationTag {
  static constexpr char kNoun[] = "generation";
};
struct InstanceTag {
  static constexpr char kNoun[] = "instance";
};
struct NodeTag {
  static constexpr char kNoun[] = "node";
};
struct RequestTag {
  static constexpr char kNoun[] = "request";
};

using AttemptId = StrongId<AttemptTag>;
using ClusterId = StrongId<ClusterTag>;
using DriverId = StrongId<DriverTag>;
using GenerationId = StrongId<GenerationTag>;
using InstanceId = StrongId<InstanceTag>;
using NodeId = StrongId<NodeTag>;
using RequestId = StrongId<RequestTag>;

}  // namespace cohort

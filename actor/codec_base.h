#pragma once

#include <bit>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace cohort {

static_assert(std::endian::native == std::endian::little,
              "numbers are sent as they lie in memory");

class Encoder;
class Decoder;

// How values of T become bytes and come back.  codec.h has it for the types
// that it lists; for one of your own give the struct COHORT_FIELDS, or
//
//   template <>
//   struct cohort::Codec<Matrix> {
//     // Writes at least one byte.
//     static void Encode(const Matrix& matrix, cohort::Encoder& encoder) {
//       encoder.Write(matrix.rows());
//       encoder.Write(matrix.data());
//     }
//     // `matrix` is as its default constructor left it.  False when the bytes
//     // are not such values: they come from elsewhere and may be anything.
//     static bool Decode(cohort::Decoder& decoder, Matrix& matrix);
//   };
template <typename T>
struct Codec;

// What Codec can be used with: T can be made without arguments and moved.
template <typename T>
concept Encodable = std::is_default_constructible_v<T> && std::movable<T> &&
    requires(const T& value, T& into, Encoder& encoder, Decoder& decoder) {
  Codec<T>::Encode(value, encoder);
  { Codec<T>::Decode(decoder, into) } -> std::same_as<bool>;
};

namespace actor {

// Values within values, as protobuf has it; what recurses ends here.
inline constexpr int kCodecDepthMax = 100;

template <typename T>
struct IsBoolEnum : std::false_type {};
template <typename T>
requires std::is_enum_v<T>
struct IsBoolEnum<T> : std::is_same<std::underlying_type_t<T>, bool> {
};

// Numbers of time units, in no more than their memory.
template <typename T>
struct IsTime : std::false_type {};
template <>
struct IsTime<absl::Duration> : std::true_type {};
template <>
struct IsTime<absl::Time> : std::true_type {};
template <typename Rep, typename Period>
struct IsTime<std::chrono::duration<Rep, Period>>
    : std::bool_constant<std::is_arithmetic_v<Rep>> {};
template <typename Clock, typename Duration>
struct IsTime<std::chrono::time_point<Clock, Duration>> : IsTime<Duration> {};

// Whose bytes are its value, whatever they are.  Not bool, and not long double,
// which has bytes between.
template <typename T>
concept RawScalar = (std::is_arithmetic_v<T> && !std::is_same_v<T, bool> &&
                     !std::is_same_v<T, long double>) ||
                    (std::is_enum_v<T> && !IsBoolEnum<T>::value) ||
                    (IsTime<T>::value && std::is_trivially_copyable_v<T>);

template <typename T, typename R>
T ClassOf(R (T::*method)() const);

// Not of a class that only a base of it has: its own fields would be lost.
template <typename T>
concept HasFields = requires {
  { ClassOf(&T::CohortFields) } -> std::same_as<T>;
};
template <typename T>
concept NamesFields = requires(const T& value) {
  value.CohortFields();
};

template <typename T>
constexpr bool IsPlain();

// What each field of an aggregate can be set from.
struct AnyField {
  template <typename T>
  operator T() const;  // NOLINT(google-explicit-constructor): only declared
};
// And those of Owner that are not plain.
template <typename T, typename Owner>
concept NotPlainIn = !std::is_same_v<T, Owner> && !IsPlain<T>();
template <typename Owner>
struct OtherField {
  template <NotPlainIn<Owner> T>
  operator T() const;  // NOLINT(google-explicit-constructor): only declared
};
template <typename T, typename Other, size_t At, size_t I>
using FieldOf = std::conditional_t<I == At, Other, AnyField>;

// Whether T has as many fields, of which the one `At` takes `Other`.
template <typename T, typename Other, size_t At, size_t... I>
constexpr bool TakesFields(std::index_sequence<I...> /*fields*/) {
  return requires { T{FieldOf<T, Other, At, I>{}...}; };
}

// A struct with more than these has a Codec or names its fields.
inline constexpr size_t kPlainFieldsMax = 32;

// How many fields T has, each element of an array for itself.
template <typename T, size_t N = 0>
constexpr size_t CountFields() {
  if constexpr (N <= kPlainFieldsMax &&
                TakesFields<T, AnyField, 0>(
                    std::make_index_sequence<N + 1>())) {
    return CountFields<T, N + 1>();
  } else {
    return N;
  }
}
template <typename T, size_t... I>
constexpr bool HasPlainFields(
    [[maybe_unused]] std::index_sequence<I...> fields) {
  return sizeof...(I) > 0 && sizeof...(I) <= kPlainFieldsMax &&
         !(TakesFields<T, OtherField<T>, I>(fields) || ...);
}

// Whether its bytes are its value in another process, too: numbers, and structs
// of nothing but numbers and such structs.
template <typename T>
constexpr bool IsPlain() {
  if constexpr (std::is_class_v<T> && std::is_aggregate_v<T> &&
                std::is_trivially_copyable_v<T> &&
                std::is_default_constructible_v<T> && !NamesFields<T>) {
    return HasPlainFields<T>(std::make_index_sequence<CountFields<T>()>());
  } else {
    return RawScalar<T> || std::is_same_v<T, bool>;
  }
}

template <typename T>
concept PlainStruct = std::is_class_v<T> && !RawScalar<T> && IsPlain<T>();

// Arrays of it are copied whole.  Not a struct with a Codec of the user's.
template <typename T>
concept Raw = RawScalar<T> ||
    (PlainStruct<T>&& requires { typename Codec<T>::OfPlainStruct; });

// Whether it counts for the depth: what can hold values of others.
template <typename T>
inline constexpr bool kNests =
    std::is_class_v<T> && !std::is_same_v<T, std::string>;

}  // namespace actor

// Where values are written to.  Thread-compatible.
//
// After a failure it takes more and forgets it: only Finish tells.
class Encoder {
 public:
  Encoder() = default;
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  template <typename T>
  void Write(const T& value) {
    static_assert(Encodable<T>,
                  "cohort: a type has no Codec; give the struct "
                  "COHORT_FIELDS(...) or specialise cohort::Codec");
    if constexpr (Encodable<T>) {
      if constexpr (actor::kNests<T>) {
        if (!Enter()) return;
        Codec<T>::Encode(value, *this);
        --depth_;
      } else {
        Codec<T>::Encode(value, *this);
      }
    }
  }

  // A number of elements or bytes, up to 2^32 - 1: more is a failure.
  void WriteCount(size_t count);
  // Bytes as they are; the reader has to know how many.
  void WriteBytes(const void* data, size_t size) {
    if (size > 0) bytes_.append(static_cast<const char*>(data), size);
  }
  // The count, then elements so aligned that a Decoder can show them in place.
  template <actor::Raw T>
  void WriteArray(const T* data, size_t count) {
    WriteCount(count);
    if (count == 0) return;
    bytes_.append(-bytes_.size() % alignof(T), '\0');
    WriteBytes(data, count * sizeof(T));
  }

  // What lies between, with its length before it, so that a reader can skip
  // what it does not know.  EndBlock takes what BeginBlock answered.
  size_t BeginBlock();
  void EndBlock(size_t begin);

  // This value cannot be written; the first failure counts.
  void Fail(absl::Status status);

  // Written so far.
  size_t size() const { return bytes_.size(); }

  // All that was written.  INVALID_ARGUMENT of the first failure:
  // kReasonTooLarge for a count beyond 32 bits; nested too deeply; or Fail's.
  absl::StatusOr<std::string> Finish() &&;

 private:
  bool Enter();

  std::string bytes_;
  absl::Status status_;
  int depth_ = 0;
};

// Where values are read from: bytes that may be anything.  Thread-compatible.
//
// No read goes beyond the bytes, and no count is believed that they do not bear
// out: memory taken is at most a value (its sizeof) for each byte.  False is
// the end: what was read is to be thrown away.
class Decoder {
 public:
  // `bytes` outlives this, and this outlives the views that it gives.
  explicit Decoder(absl::string_view bytes)
      : begin_(bytes.data()), end_(bytes.size()) {}
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // REQUIRES: `value` is as its default constructor left it.
  template <typename T>
  [[nodiscard]] bool Read(T& value) {
    static_assert(Encodable<T>,
                  "cohort: a type has no Codec; give the struct "
                  "COHORT_FIELDS(...) or specialise cohort::Codec");
    if constexpr (!Encodable<T>) {
      return false;
    } else if constexpr (actor::kNests<T>) {
      if (depth_ >= actor::kCodecDepthMax) return false;
      ++depth_;
      const bool ok = Codec<T>::Decode(*this, value);
      --depth_;
      return ok;
    } else {
      return Codec<T>::Decode(*this, value);
    }
  }

  // What WriteCount wrote; false unless as many bytes are left, so that it may
  // be allocated.
  [[nodiscard]] bool ReadCount(size_t& count);
  // Shows the next `size` bytes.
  [[nodiscard]] bool ReadBytes(size_t size, absl::string_view& bytes);
  // Shows the bytes of what WriteArray wrote, and how many elements they are.
  template <actor::Raw T>
  [[nodiscard]] bool ReadArray(size_t& count, absl::string_view& bytes) {
    return ReadElements(sizeof(T), alignof(T), count, bytes);
  }
  // `bytes` where a T may lie: in place, or a copy that lives as long as this.
  template <actor::Raw T>
  const T* Aligned(absl::string_view bytes) {
    return reinterpret_cast<const T*>(AlignedBytes(bytes, alignof(T)));
  }

  // Until LeaveBlock the end of the block is the end of the bytes.  LeaveBlock
  // takes what EnterBlock gave, and skips what is left of the block.
  [[nodiscard]] bool EnterBlock(size_t& outer_end);
  void LeaveBlock(size_t outer_end);

  size_t left() const { return end_ - at_; }
  bool AtEnd() const { return at_ == end_; }

 private:
  bool ReadElements(size_t element_bytes, size_t alignment, size_t& count,
                    absl::string_view& bytes);
  const void* AlignedBytes(absl::string_view bytes, size_t alignment);

  const char* begin_;
  size_t at_ = 0;
  size_t end_;
  int depth_ = 0;
  // Of arrays that do not lie aligned: the bytes as a whole do not.
  std::vector<std::unique_ptr<std::max_align_t[]>> copies_;
};

// `value` as bytes, or why it cannot be written (Encoder::Finish).
template <typename T>
absl::StatusOr<std::string> EncodeValue(const T& value) {
  Encoder encoder;
  encoder.Write(value);
  return std::move(encoder).Finish();
}

// The value of `bytes`, all of them.  INVALID_ARGUMENT when they are none.
template <typename T>
absl::StatusOr<T> DecodeValue(absl::string_view bytes) {
  Decoder decoder(bytes);
  T value = T();
  if (decoder.Read(value) && decoder.AtEnd()) return value;
  return absl::InvalidArgumentError(
      "cannot decode a value of this type from these bytes");
}

}  // namespace cohort

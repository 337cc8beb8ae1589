#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"

#include "actor/codec_base.h"

// Codecs of numbers and of the standard library's types.  What holds others
// writes these one after the other.
namespace cohort {

namespace actor {

// As in memory.
template <typename T>
struct RawCodec {
  static void Encode(const T& value, Encoder& encoder) {
    encoder.WriteBytes(&value, sizeof(T));
  }
  static bool Decode(Decoder& decoder, T& value) {
    absl::string_view bytes;
    if (!decoder.ReadBytes(sizeof(T), bytes)) return false;
    std::memcpy(static_cast<void*>(&value), bytes.data(), sizeof(T));
    return true;
  }
};

}  // namespace actor

template <actor::RawScalar T>
struct Codec<T> : actor::RawCodec<T> {};
template <actor::PlainStruct T>
struct Codec<T> : actor::RawCodec<T> {
  using OfPlainStruct = void;
};

// A byte, 0 or 1.
template <>
struct Codec<bool> {
  static void Encode(bool value, Encoder& encoder) {
    encoder.Write(static_cast<uint8_t>(value ? 1 : 0));
  }
  static bool Decode(Decoder& decoder, bool& value) {
    uint8_t byte = 0;
    if (!decoder.Read(byte) || byte > 1) return false;
    value = byte == 1;
    return true;
  }
};

template <typename T>
requires actor::IsBoolEnum<T>::value struct Codec<T> {
  static void Encode(T value, Encoder& encoder) {
    encoder.Write(static_cast<bool>(value));
  }
  static bool Decode(Decoder& decoder, T& value) {
    bool truth = false;
    if (!decoder.Read(truth)) return false;
    value = static_cast<T>(truth);
    return true;
  }
};

template <>
struct Codec<std::string> {
  static void Encode(const std::string& value, Encoder& encoder) {
    encoder.WriteArray(value.data(), value.size());
  }
  static bool Decode(Decoder& decoder, std::string& value) {
    size_t count = 0;
    absl::string_view bytes;
    if (!decoder.ReadArray<char>(count, bytes)) return false;
    value.assign(bytes.data(), bytes.size());
    return true;
  }
};

namespace actor {

// `count` elements that are read one by one: no more memory is taken ahead
// than there are bytes, for an element may be larger than its bytes.
template <typename Sequence>
bool ReadEach(Decoder& decoder, size_t count, Sequence& values) {
  using T = typename Sequence::value_type;
  if constexpr (requires { values.reserve(count); }) {
    values.reserve(std::min(count, decoder.left() / sizeof(T)));
  }
  for (size_t i = 0; i < count; ++i) {
    T value = T();
    if (!decoder.Read(value)) return false;
    values.push_back(std::move(value));
  }
  return true;
}

// A count is trusted as far as there are bytes: an element has one at least.
inline void CheckElementBytes(Encoder& encoder, size_t before, size_t count) {
  if (encoder.size() - before >= count) return;
  encoder.Fail(absl::InvalidArgumentError(
      "a Codec has to write at least one byte for each value"));
}

template <typename Range>
void WriteEach(Encoder& encoder, const Range& range) {
  encoder.WriteCount(range.size());
  const size_t before = encoder.size();
  for (const auto& value : range) encoder.Write(value);
  CheckElementBytes(encoder, before, range.size());
}

// Sets and maps, of any order and library.
template <typename T>
concept Associative =
    !NamesFields<T> && requires(T & container, typename T::value_type value) {
  typename T::key_type;
  container.emplace_hint(container.end(), std::move(value));
  container.size();
};
template <typename T>
concept MapOfValues = Associative<T> && Encodable<typename T::key_type> &&
    Encodable<typename T::mapped_type>;
template <typename T>
concept SetOfValues = Associative<T> &&
    std::is_same_v<typename T::key_type, typename T::value_type> &&
    Encodable<typename T::value_type>;

// Others than strings, arrays and vectors.
template <typename T>
concept SequenceOfValues =
    !NamesFields<T> && requires(T & container, typename T::value_type value) {
  container.push_back(std::move(value));
  container.begin();
  container.size();
  container.clear();
}
&&Encodable<typename T::value_type>;

}  // namespace actor

// A key that comes twice, where one cannot, is an error.
template <actor::MapOfValues Map>
struct Codec<Map> {
  static void Encode(const Map& map, Encoder& encoder) {
    encoder.WriteCount(map.size());
    const size_t before = encoder.size();
    for (const auto& [key, value] : map) {
      encoder.Write(key);
      encoder.Write(value);
    }
    actor::CheckElementBytes(encoder, before, map.size());
  }
  static bool Decode(Decoder& decoder, Map& map) {
    size_t count = 0;
    if (!decoder.ReadCount(count)) return false;
    for (size_t i = 0; i < count; ++i) {
      auto key = typename Map::key_type();
      auto value = typename Map::mapped_type();
      if (!decoder.Read(key) || !decoder.Read(value)) return false;
      map.emplace_hint(map.end(), std::move(key), std::move(value));
    }
    return map.size() == count;
  }
};

template <actor::SetOfValues Set>
struct Codec<Set> {
  static void Encode(const Set& set, Encoder& encoder) {
    actor::WriteEach(encoder, set);
  }
  static bool Decode(Decoder& decoder, Set& set) {
    size_t count = 0;
    if (!decoder.ReadCount(count)) return false;
    for (size_t i = 0; i < count; ++i) {
      auto value = typename Set::value_type();
      if (!decoder.Read(value)) return false;
      set.emplace_hint(set.end(), std::move(value));
    }
    return set.size() == count;
  }
};

template <actor::SequenceOfValues Sequence>
struct Codec<Sequence> {
  static void Encode(const Sequence& values, Encoder& encoder) {
    actor::WriteEach(encoder, values);
  }
  static bool Decode(Decoder& decoder, Sequence& values) {
    size_t count = 0;
    return decoder.ReadCount(count) && actor::ReadEach(decoder, count, values);
  }
};

template <Encodable T, typename Allocator>
struct Codec<std::vector<T, Allocator>> {
  static void Encode(const std::vector<T, Allocator>& values,
                     Encoder& encoder) {
    if constexpr (actor::Raw<T>) {
      encoder.WriteArray(values.data(), values.size());
    } else if constexpr (std::is_same_v<T, bool>) {
      encoder.WriteCount(values.size());
      for (const bool value : values) encoder.Write(value);
    } else {
      actor::WriteEach(encoder, values);
    }
  }
  static bool Decode(Decoder& decoder, std::vector<T, Allocator>& values) {
    size_t count = 0;
    if constexpr (actor::Raw<T>) {
      absl::string_view bytes;
      if (!decoder.ReadArray<T>(count, bytes)) return false;
      if (count == 0) return true;
      values.resize(count);
      std::memcpy(static_cast<void*>(values.data()), bytes.data(),
                  bytes.size());
      return true;
    } else {
      return decoder.ReadCount(count) &&
             actor::ReadEach(decoder, count, values);
    }
  }
};

template <Encodable T, size_t N>
struct Codec<std::array<T, N>> {
  static void Encode(const std::array<T, N>& values, Encoder& encoder) {
    if constexpr (N == 0) {
      encoder.Write(uint8_t{0});
    } else if constexpr (actor::Raw<T>) {
      encoder.WriteBytes(values.data(), sizeof(T) * N);
    } else {
      for (const T& value : values) encoder.Write(value);
    }
  }
  static bool Decode(Decoder& decoder, std::array<T, N>& values) {
    absl::string_view bytes;
    if constexpr (N == 0) {
      return decoder.ReadBytes(1, bytes);
    } else if constexpr (actor::Raw<T>) {
      if (!decoder.ReadBytes(sizeof(T) * N, bytes)) return false;
      std::memcpy(static_cast<void*>(values.data()), bytes.data(),
                  bytes.size());
      return true;
    } else {
      return std::all_of(values.begin(), values.end(),
                         [&decoder](T& value) { return decoder.Read(value); });
    }
  }
};

template <Encodable A, Encodable B>
struct Codec<std::pair<A, B>> {
  static void Encode(const std::pair<A, B>& pair, Encoder& encoder) {
    encoder.Write(pair.first);
    encoder.Write(pair.second);
  }
  static bool Decode(Decoder& decoder, std::pair<A, B>& pair) {
    return decoder.Read(pair.first) && decoder.Read(pair.second);
  }
};

template <Encodable... T>
struct Codec<std::tuple<T...>> {
  static void Encode(const std::tuple<T...>& tuple, Encoder& encoder) {
    if constexpr (sizeof...(T) == 0) encoder.Write(uint8_t{0});
    std::apply([&](const T&... value) { (encoder.Write(value), ...); }, tuple);
  }
  static bool Decode(Decoder& decoder, std::tuple<T...>& tuple) {
    absl::string_view nothing;
    if constexpr (sizeof...(T) == 0) return decoder.ReadBytes(1, nothing);
    return std::apply([&](T&... value) { return (decoder.Read(value) && ...); },
                      tuple);
  }
};

// Whether there is one, then the value.
template <Encodable T>
struct Codec<std::optional<T>> {
  static void Encode(const std::optional<T>& value, Encoder& encoder) {
    encoder.Write(value.has_value());
    if (value.has_value()) encoder.Write(*value);
  }
  static bool Decode(Decoder& decoder, std::optional<T>& value) {
    bool has_value = false;
    if (!decoder.Read(has_value)) return false;
    return !has_value || decoder.Read(value.emplace());
  }
};

// As an optional.  A pointer owns its value: two of them never share one.
template <Encodable T>
struct Codec<std::unique_ptr<T>> {
  static void Encode(const std::unique_ptr<T>& value, Encoder& encoder) {
    encoder.Write(value != nullptr);
    if (value != nullptr) encoder.Write(*value);
  }
  static bool Decode(Decoder& decoder, std::unique_ptr<T>& value) {
    bool has_value = false;
    if (!decoder.Read(has_value)) return false;
    if (!has_value) return true;
    value = std::make_unique<T>();
    return decoder.Read(*value);
  }
};

template <>
struct Codec<std::monostate> {
  static void Encode(std::monostate /*value*/, Encoder& encoder) {
    encoder.Write(uint8_t{0});
  }
  static bool Decode(Decoder& decoder, std::monostate& /*value*/) {
    absl::string_view nothing;
    return decoder.ReadBytes(1, nothing);
  }
};

// The index in a byte, then the value.
template <Encodable... T>
requires(sizeof...(T) < 256) struct Codec<std::variant<T...>> {
  using Variant = std::variant<T...>;

  static void Encode(const Variant& variant, Encoder& encoder) {
    if (variant.valueless_by_exception()) {
      encoder.Fail(absl::InvalidArgumentError("a variant has no value"));
      return;
    }
    encoder.Write(static_cast<uint8_t>(variant.index()));
    std::visit([&encoder](const auto& value) { encoder.Write(value); },
               variant);
  }
  static bool Decode(Decoder& decoder, Variant& variant) {
    uint8_t index = 0;
    return decoder.Read(index) && DecodeOneOf(decoder, index, variant,
                                              std::index_sequence_for<T...>());
  }

 private:
  template <size_t... I>
  static bool DecodeOneOf(Decoder& decoder, size_t index, Variant& variant,
                          std::index_sequence<I...> /*all*/) {
    return ((index == I && decoder.Read(variant.template emplace<I>())) || ...);
  }
};

}  // namespace cohort

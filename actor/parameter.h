#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>

#include "absl/strings/string_view.h"

#include "actor/codec.h"

// Arguments as bytes.  Beside what has a Codec, a parameter may be a view: it
// shows the bytes that came, which live as long as the call.
namespace cohort::actor {

template <typename T>
concept TextView = std::same_as<T, absl::string_view> ||
    std::same_as<T, std::basic_string_view<char>>;

template <typename T>
inline constexpr bool kIsSpan = false;
template <Raw T>
inline constexpr bool kIsSpan<std::span<const T>> = true;

template <typename T>
concept View = TextView<T> || kIsSpan<T>;

// A parameter type without its reference.
template <typename T>
concept Parameter = Encodable<T> || View<T>;

template <Parameter T>
void WriteParameter(const T& value, Encoder& encoder) {
  if constexpr (View<T>) {
    encoder.WriteArray(value.data(), value.size());
  } else {
    encoder.Write(value);
  }
}

template <Parameter T>
bool ReadParameter(Decoder& decoder, T& value) {
  if constexpr (View<T>) {
    using Element = std::remove_const_t<typename T::value_type>;
    size_t count = 0;
    absl::string_view bytes;
    if (!decoder.ReadArray<Element>(count, bytes)) return false;
    if (count > 0) value = T(decoder.Aligned<Element>(bytes), count);
    return true;
  } else {
    return decoder.Read(value);
  }
}

// One after the other.
template <typename... P>
absl::StatusOr<std::string> WriteParameters(const P&... value) {
  Encoder encoder;
  (WriteParameter(value, encoder), ...);
  return std::move(encoder).Finish();
}

// All bytes of `decoder`, which outlives the views in `values`.
template <typename... P>
bool ReadParameters(Decoder& decoder, std::tuple<P...>& values) {
  return std::apply(
      [&decoder](P&... value) {
        return (ReadParameter(decoder, value) && ...) && decoder.AtEnd();
      },
      values);
}

}  // namespace cohort::actor

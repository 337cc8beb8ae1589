#pragma once

#include <functional>
#include <type_traits>

// For tests that compare our declarations of a C library's functions with those
// of its real header.
namespace cohort::trainer::cuda {

// Whether a value of either type is passed alike: a pointer for a pointer, an
// enum or integer for one of the same size and sign (an enum's sign is the
// compiler's choice), a struct for one of the same size.
template <typename A, typename B>
constexpr bool SameArgument() {
  if constexpr (std::is_void_v<A> || std::is_void_v<B>) {
    return std::is_void_v<A> && std::is_void_v<B>;
  } else if constexpr (std::is_pointer_v<A> || std::is_pointer_v<B>) {
    return std::is_pointer_v<A> && std::is_pointer_v<B>;
  } else if constexpr (std::is_class_v<A> || std::is_class_v<B>) {
    return std::is_class_v<A> && std::is_class_v<B> && sizeof(A) == sizeof(B) &&
           alignof(A) == alignof(B);
  } else {
    return sizeof(A) == sizeof(B) &&
           std::is_floating_point_v<A> == std::is_floating_point_v<B>;
  }
}

// SameAbi<std::function<int(int)>, decltype(their_function)>::kValue
template <typename Ours, typename Theirs>
struct SameAbi {
  static constexpr bool kValue = false;
};
template <typename R, typename... A, typename S, typename... B>
struct SameAbi<std::function<R(A...)>, S(B...)> {
  static constexpr bool AllSame() {
    if constexpr (sizeof...(A) != sizeof...(B)) {
      return false;
    } else {
      return SameArgument<R, S>() && (SameArgument<A, B>() && ...);
    }
  }
  static constexpr bool kValue = AllSame();
};

}  // namespace cohort::trainer::cuda

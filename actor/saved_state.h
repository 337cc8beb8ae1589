#pragma once

#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "actor/method_traits.h"
#include "actor/parameter.h"

// State that an actor's next incarnation begins with.  A class has it when it
// has these two, neither overloaded, for one type S that has a Codec:
//
//   S Save() const;               // or absl::StatusOr<S>
//   void Restore(const S& state)  // or absl::Status
//
// `Save` is called by Handle::Save and when its node is drained, `Restore`
// after the constructor; where S is a std::string Restore may take a view.
namespace cohort::actor {

// What Handle::Save calls.
inline constexpr char kSaveMethod[] = "cohort.save";

using Saver = absl::StatusOr<std::string> (*)(void* object);
using Restorer = absl::Status (*)(void* object, absl::string_view state);

// INVALID_ARGUMENT: the state was saved by another program.
absl::Status BadState();

template <typename T>
struct SaveShape {
  static constexpr bool kIs = false;
};
template <typename T>
requires requires {
  requires MethodTraits<decltype(&T::Save)>::kParameters == 0;
  requires !std::is_void_v<
      UnwrappedResult<typename MethodTraits<decltype(&T::Save)>::Result>>;
}
struct SaveShape<T> {
  static constexpr bool kIs = true;
  using State =
      UnwrappedResult<typename MethodTraits<decltype(&T::Save)>::Result>;
};

template <typename P>
struct OnlyType;
template <typename P>
struct OnlyType<TypeList<P>> {
  using Type = P;
};

template <typename T>
struct RestoreShape {
  static constexpr bool kIs = false;
};
template <typename T>
requires requires {
  requires MethodTraits<decltype(&T::Restore)>::kParameters == 1;
  requires std::is_void_v<
      UnwrappedResult<typename MethodTraits<decltype(&T::Restore)>::Result>>;
}
struct RestoreShape<T> {
  static constexpr bool kIs = true;
  using Parameter = typename OnlyType<
      typename MethodTraits<decltype(&T::Restore)>::Parameters>::Type;
};

// Whether Restore takes what Save gives.
template <typename T>
constexpr bool IsOneState() {
  using State = typename SaveShape<T>::State;
  using Parameter = Sent<typename RestoreShape<T>::Parameter>;
  return std::is_same_v<State, Parameter> ||
         (std::is_same_v<State, std::string> && TextView<Parameter>);
}

// Whether T's state can be saved.  Fails to compile where that was meant and
// cannot be.
template <typename T>
constexpr bool CheckState() {
  constexpr bool kSaves = SaveShape<T>::kIs;
  constexpr bool kRestores = RestoreShape<T>::kIs;
  static_assert(kSaves == kRestores,
                "cohort: an actor's class with Save() needs Restore(state), "
                "and the other way round (actor/saved_state.h); another method "
                "needs another name");
  if constexpr (kSaves && kRestores) {
    static_assert(IsOneState<T>(),
                  "cohort: Restore does not take what Save gives");
    static_assert(Encodable<typename SaveShape<T>::State>,
                  "cohort: what Save gives has no Codec; give the struct "
                  "COHORT_FIELDS(...) or specialise cohort::Codec");
    return IsOneState<T>() && Encodable<typename SaveShape<T>::State>;
  } else {
    return false;
  }
}

template <typename T>
absl::Status RestoreObject(void* object, absl::string_view state) {
  using Parameter = typename RestoreShape<T>::Parameter;
  Decoder decoder(state);
  std::tuple<Sent<Parameter>> value;
  if (!ReadParameters(decoder, value)) return BadState();
  T& restored = *static_cast<T*>(object);
  if constexpr (std::is_void_v<decltype(restored.Restore(
                    static_cast<Parameter&&>(std::get<0>(value))))>) {
    restored.Restore(static_cast<Parameter&&>(std::get<0>(value)));
    return absl::OkStatus();
  } else {
    return restored.Restore(static_cast<Parameter&&>(std::get<0>(value)));
  }
}

}  // namespace cohort::actor

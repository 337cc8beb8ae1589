#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "actor/future.h"
#include "actor/parameter.h"

namespace cohort {

// The one of several methods of a name that has this signature:
//   handle.Call<cohort::Overload<double(double)>(&Trainer::Scale)>(0.5)
//   handle.Call<cohort::Overload<int() const>(&Trainer::Step)>()
template <typename Signature, typename T>
consteval auto Overload(Signature T::*method) {
  return method;
}

namespace actor {

// What a method is called with and gives.  `kValid` is false for what is not a
// method, or one that consumes its object (&&).
template <typename M>
struct MethodTraits {
  static constexpr bool kValid = false;
};

template <typename... T>
struct TypeList {};

template <typename T, typename R, typename... P>
struct MethodShape {
  static constexpr bool kValid = true;
  static constexpr size_t kParameters = sizeof...(P);
  using Class = T;
  using Result = R;
  using Parameters = TypeList<P...>;
};

#define COHORT_INTERNAL_METHOD(qualifiers)         \
  template <typename T, typename R, typename... P> \
  struct MethodTraits<R (T::*)(P...) qualifiers> : MethodShape<T, R, P...> {}
COHORT_INTERNAL_METHOD();
COHORT_INTERNAL_METHOD(const);
COHORT_INTERNAL_METHOD(&);
COHORT_INTERNAL_METHOD(const&);
COHORT_INTERNAL_METHOD(noexcept);
COHORT_INTERNAL_METHOD(const noexcept);
COHORT_INTERNAL_METHOD(&noexcept);
COHORT_INTERNAL_METHOD(const& noexcept);
#undef COHORT_INTERNAL_METHOD

template <auto M>
using TraitsOf = MethodTraits<std::remove_cv_t<decltype(M)>>;

// A parameter as it is sent and kept.
template <typename P>
using Sent = std::remove_cvref_t<P>;

// A value, const T&, T&& or a view: what needs nothing of the caller's memory.
template <typename P>
constexpr bool CanCross() {
  if constexpr (std::is_pointer_v<Sent<P>>) {
    return false;
  } else {
    return !std::is_lvalue_reference_v<P> ||
           std::is_const_v<std::remove_reference_t<P>>;
  }
}

// Whether an argument A will do for a parameter P.
template <typename P, typename A>
constexpr bool Accepts() {
  return std::is_convertible_v<A, P> || std::is_convertible_v<A, Sent<P>>;
}

template <typename M>
struct MethodResultOf {
  using Type = void;
};
template <typename M>
requires MethodTraits<M>::kValid struct MethodResultOf<M> {
  using Type = UnwrappedResult<typename MethodTraits<M>::Result>;
};
// Of what is not a method: void, so that the compiler reports that error alone.
template <auto M>
using MethodResult =
    typename MethodResultOf<std::remove_cv_t<decltype(M)>>::Type;

// Whether T or what it is made of is of an anonymous namespace: two of those
// have one name, and a call might reach the wrong one.
template <typename T>
constexpr bool IsAnonymous() {
  // absl::string_view has no constexpr find.
  constexpr std::basic_string_view<char> kName = __PRETTY_FUNCTION__;
  return kName.find("{anonymous}") != kName.npos ||  // g++
         kName.find("(anonymous namespace)") != kName.npos;
}

// Fails to compile, with one plain error, for an actor's class that has no
// name for another process; answers whether it has.
template <typename T>
constexpr bool CheckClass() {
  constexpr bool kOk = std::is_class_v<T> && !IsAnonymous<T>();
  static_assert(kOk,
                "cohort: an actor's class must be a class outside of anonymous "
                "namespaces: those of two files have the same name");
  return kOk;
}

template <typename... P>
constexpr bool CheckParameters(TypeList<P...> /*types*/) {
  constexpr bool kCanCross = (CanCross<P>() && ...);
  static_assert(kCanCross,
                "cohort: a method's parameter must be a value, const T&, T&& "
                "or a view; T& and T* cannot cross processes");
  if constexpr (kCanCross) {
    static_assert((Parameter<Sent<P>> && ...),
                  "cohort: a parameter type has no Codec; give the struct "
                  "COHORT_FIELDS(...) or specialise cohort::Codec");
    return (Parameter<Sent<P>> && ...);
  } else {
    return false;
  }
}

template <typename R>
constexpr bool CheckResult() {
  static_assert(!View<R>,
                "cohort: a method's result cannot be a view: what it shows "
                "stays in the actor's process");
  if constexpr (std::is_void_v<R> || View<R>) {
    return !View<R>;
  } else {
    static_assert(Encodable<R>,
                  "cohort: a result type has no Codec; give the struct "
                  "COHORT_FIELDS(...) or specialise cohort::Codec");
    return Encodable<R>;
  }
}

// As CheckClass, for a method M that is called on a T.
template <typename T, auto M>
constexpr bool CheckMethod() {
  using Traits = TraitsOf<M>;
  static_assert(Traits::kValid,
                "cohort: Call takes a method that may be called on an actor "
                "more than once, as in Call<&T::Method>");
  if constexpr (!Traits::kValid || !CheckClass<T>()) {
    return false;
  } else {
    constexpr bool kOfClass = std::is_base_of_v<typename Traits::Class, T>;
    static_assert(kOfClass,
                  "cohort: this is not a method of the handle's class");
    return kOfClass && CheckParameters(typename Traits::Parameters()) &&
           CheckResult<MethodResult<M>>();
  }
}

template <typename... A, typename... P>
constexpr bool CheckArguments(TypeList<P...> /*types*/) {
  constexpr bool kSameNumber = sizeof...(A) == sizeof...(P);
  static_assert(kSameNumber,
                "cohort: wrong number of arguments for this method (default "
                "arguments do not apply through Call)");
  if constexpr (kSameNumber) {
    static_assert((Accepts<P, A>() && ...),
                  "cohort: an argument does not convert to the method's "
                  "parameter type");
    return (Accepts<P, A>() && ...);
  } else {
    return false;
  }
}

// As CheckClass, for a call of method M on a T with arguments of types A.
template <typename T, auto M, typename... A>
constexpr bool CheckCall() {
  if constexpr (CheckMethod<T, M>()) {
    return CheckArguments<A...>(typename TraitsOf<M>::Parameters());
  } else {
    return false;
  }
}

}  // namespace actor
}  // namespace cohort

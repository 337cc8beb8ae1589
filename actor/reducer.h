#pragma once

#include <concepts>
#include <iterator>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "actor/codec.h"
#include "actor/method_traits.h"

// How the results of a group's ranks become one on their way up
// (Group::Reduce): a function object that makes one result of two, the lower
// ranks' first.  Which pairs are combined depends on the size of the slice
// alone, so it must be associative; sums of floating-point numbers are as good
// as those of any order.
//
//   struct Longest {
//     std::string operator()(std::string a, std::string b) const {
//       return a.size() >= b.size() ? a : b;
//     }
//   };
//   group.Reduce<&Worker::Name, Longest>()
namespace cohort {

struct Sum {
  template <typename T>
  T operator()(T a, T b) const {
    return std::move(a) + std::move(b);
  }
};

struct Min {
  template <typename T>
  T operator()(T a, T b) const {
    return b < a ? std::move(b) : std::move(a);
  }
};

struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    return a < b ? std::move(b) : std::move(a);
  }
};

// Of texts and containers: one behind the other, in the order of ranks.
struct Concatenate {
  template <typename T>
  T operator()(T a, T b) const {
    a.insert(a.end(), std::make_move_iterator(b.begin()),
             std::make_move_iterator(b.end()));
    return a;
  }
};

namespace actor {

// Two results as bytes of their Codec to one.  May let exceptions pass.
using Combine = absl::StatusOr<std::string> (*)(absl::string_view a,
                                                absl::string_view b);

// Answers true.  Thread-safe.
bool RegisterReducer(const char* name, Combine combine);

// As bytes of one result: what `reducer` makes of two.  UNIMPLEMENTED,
// kReasonNoMethod: this program has no such reducer; INTERNAL,
// kReasonBadResult; UNKNOWN, kReasonException.
absl::StatusOr<std::string> Reduced(const std::string& reducer,
                                    absl::string_view a, absl::string_view b);

template <typename Reducer, typename R>
struct ReducerTag {};

template <typename Reducer, typename R>
absl::StatusOr<std::string> CombineValues(absl::string_view a,
                                          absl::string_view b) {
  absl::StatusOr<R> first = DecodeValue<R>(a);
  absl::StatusOr<R> second = DecodeValue<R>(b);
  if (!first.ok() || !second.ok()) return BadResult();
  const R result = Reducer()(*std::move(first), *std::move(second));
  return EncodeValue(result);
}

// As AutoMethod (method.h).  REQUIRES: CheckReducer<Reducer, R>().
template <typename Reducer, typename R>
struct AutoReducer {
  static const char* Name() { return typeid(ReducerTag<Reducer, R>).name(); }

  static inline const bool kRegistered =
      RegisterReducer(Name(), &CombineValues<Reducer, R>);
};

template <typename Reducer, typename R>
concept Reduces = std::default_initializable<Reducer> && requires(R a, R b) {
  { Reducer()(std::move(a), std::move(b)) } -> std::convertible_to<R>;
};

// As CheckClass, for a reducer of results of type R.
template <typename Reducer, typename R>
constexpr bool CheckReducer() {
  constexpr bool kNamed = std::is_class_v<Reducer> && !IsAnonymous<Reducer>();
  static_assert(kNamed,
                "cohort: a reducer must be a class outside of anonymous "
                "namespaces: those of two files have the same name");
  if constexpr (!kNamed) {
    return false;
  } else if constexpr (std::is_void_v<R>) {
    static_assert(!std::is_void_v<R>,
                  "cohort: this method has no result to reduce");
    return false;
  } else {
    static_assert(Reduces<Reducer, R>,
                  "cohort: the reducer does not make one result of two: it "
                  "needs R operator()(R, R) for the method's result R");
    return Reduces<Reducer, R>;
  }
}

}  // namespace actor
}  // namespace cohort

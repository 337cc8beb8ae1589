#pragma once

#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "actor/method_traits.h"
#include "actor/parameter.h"
#include "actor/saved_state.h"

// What this program can construct and call by name.
//
// Handle::Call<M> and Runtime::Create<T> name AutoMethod and AutoConstructor;
// that alone registers them before main, whether or not the call is ever made.
// So a program knows all that itself calls, and a caller and an actor that run
// one program understand each other.  COHORT_ACTOR is for what another program
// calls.
//
// A name is the mangled one of a tag type, with class, method and parameter
// types: g++ and clang agree on it, and a method whose signature has changed is
// another method.

// Registers the default constructor of a class, if it has one, and methods of
// it that this program does not call.  At namespace scope:
//   COHORT_ACTOR(Trainer, &Trainer::Reset, &Trainer::Load);
#define COHORT_ACTOR(T, ...)                                                   \
  [[maybe_unused]] static const bool COHORT_INTERNAL_ACTOR_NAME(__COUNTER__) = \
      ::cohort::actor::RegisterActor<T __VA_OPT__(, ) __VA_ARGS__>()
#define COHORT_INTERNAL_ACTOR_NAME(n) COHORT_INTERNAL_ACTOR_NAME_AGAIN(n)
#define COHORT_INTERNAL_ACTOR_NAME_AGAIN(n) cohort_internal_actor_##n

namespace cohort::actor {

// Results of what is called through the registry: the method's result as bytes
// of its Codec, or its status.  May let exceptions pass.
using Invoker = absl::StatusOr<std::string> (*)(void* object,
                                                absl::string_view arguments);
// An object that `Destroyer` ends.
using Constructor = absl::StatusOr<void*> (*)(absl::string_view arguments);
using Destroyer = void (*)(void* object);

// What a name stands for.
struct MethodEntry {
  const std::type_info* type;  // the class
  Invoker invoke;
};
struct ConstructorEntry {
  const std::type_info* type;
  Constructor construct;
  Destroyer destroy;
  Saver save = nullptr;  // null: it has no state that is kept
  Restorer restore = nullptr;
};

// Answers true.  A name that stands for something else already is remembered
// for RegistryStatus; what came first stays.  Thread-safe.
bool RegisterMethod(const char* name, const MethodEntry& entry);
bool RegisterConstructor(const char* name, const ConstructorEntry& entry);

// FAILED_PRECONDITION, naming it, when two functions of this program have one
// name (one class defined in two ways): to be asked before anything is called.
absl::Status RegistryStatus();

// `name` as it lives as long as the program.  UNIMPLEMENTED, kReasonNoMethod,
// when this program has no such method.
absl::StatusOr<const char*> RegisteredMethod(const std::string& name);

// "Counter::Add" of a method's name, with its parameters where the demangler
// gives them, and "Counter(int)" of a constructor's, for messages.  Of any
// other text as Demangle.
std::string MethodText(const std::string& name);

// An actor's object.  Thread-compatible.
class Instance {
 public:
  // Calls the constructor of that name.  UNIMPLEMENTED, kReasonNoMethod, when
  // this program has none; INVALID_ARGUMENT, kReasonBadArguments; UNKNOWN,
  // kReasonException, when it threw.
  static absl::StatusOr<Instance> Construct(const std::string& constructor,
                                            absl::string_view arguments);

  Instance(Instance&& other) = default;
  Instance& operator=(Instance&& other) = default;

  // Calls the method of that name and waits for its end, that of a Future which
  // it returned included.  The result as bytes of its Codec, or the status that
  // the method returned, as it is; else as Construct, with kReasonNoMethod also
  // for a method of another class.  INVALID_ARGUMENT when the result cannot be
  // written (Encoder::Finish).
  absl::StatusOr<std::string> Invoke(const std::string& method,
                                     absl::string_view arguments);

  // Whether the class has Save and Restore (saved_state.h).
  bool HasState() const { return entry_->save != nullptr; }
  // What Save gives, as bytes, or its status; UNIMPLEMENTED, kReasonNoMethod,
  // without HasState.  Exceptions as Invoke.
  absl::StatusOr<std::string> Save();
  // Restore, with what Save gave.  INVALID_ARGUMENT when it was another
  // class's.
  absl::Status Restore(absl::string_view state);

 private:
  Instance(void* object, const ConstructorEntry& entry)
      : object_(object, entry.destroy), entry_(&entry) {}

  std::unique_ptr<void, Destroyer> object_;
  const ConstructorEntry* entry_;  // the registry's
};

// INVALID_ARGUMENT, kReasonBadArguments.
absl::Status BadArguments();

template <typename T, auto M>
struct MethodTag {};
template <typename T, typename... P>
struct ConstructorTag {};

// The result of a method, R, as bytes.
template <typename R>
absl::StatusOr<std::string> EncodeResult(const R& result) {
  return EncodeValue(result);
}
inline absl::StatusOr<std::string> EncodeResult(const absl::Status& status) {
  if (!status.ok()) return status;
  return std::string();
}
template <typename T>
absl::StatusOr<std::string> EncodeResult(const absl::StatusOr<T>& result) {
  if (!result.ok()) return result.status();
  return EncodeValue(*result);
}
template <typename T>
absl::StatusOr<std::string> EncodeResult(Future<T> result) {
  return EncodeResult(std::move(result).Get());
}

template <typename T, auto M, typename... P>
absl::StatusOr<std::string> CallMethod(T& object, std::tuple<Sent<P>...>& sent,
                                       TypeList<P...> /*types*/) {
  return std::apply(
      [&object](Sent<P>&... value) -> absl::StatusOr<std::string> {
        if constexpr (std::is_void_v<typename TraitsOf<M>::Result>) {
          (object.*M)(static_cast<P&&>(value)...);
          return std::string();
        } else {
          return EncodeResult((object.*M)(static_cast<P&&>(value)...));
        }
      },
      sent);
}

template <typename Types>
struct SentTuple;
template <typename... P>
struct SentTuple<TypeList<P...>> {
  using Type = std::tuple<Sent<P>...>;
};

template <typename T, auto M>
absl::StatusOr<std::string> InvokeMethod(void* object,
                                         absl::string_view arguments) {
  using Types = typename TraitsOf<M>::Parameters;
  Decoder decoder(arguments);
  typename SentTuple<Types>::Type sent;
  if (!ReadParameters(decoder, sent)) return BadArguments();
  return CallMethod<T, M>(*static_cast<T*>(object), sent, Types());
}

template <typename T, typename... P>
absl::StatusOr<void*> ConstructObject(absl::string_view arguments) {
  Decoder decoder(arguments);
  std::tuple<P...> sent;
  if (!ReadParameters(decoder, sent)) return BadArguments();
  return std::apply(
      [](P&... value) -> void* { return new T(std::move(value)...); }, sent);
}

template <typename T>
void DestroyObject(void* object) {
  delete static_cast<T*>(object);
}

template <typename T>
absl::StatusOr<std::string> SaveObject(void* object) {
  return EncodeResult(static_cast<T*>(object)->Save());
}

template <typename T, typename... P>
ConstructorEntry EntryOf() {
  ConstructorEntry entry = {&typeid(T), &ConstructObject<T, P...>,
                            &DestroyObject<T>};
  if constexpr (CheckState<T>()) {
    entry.save = &SaveObject<T>;
    entry.restore = &RestoreObject<T>;
  }
  return entry;
}

// Method M of class T: `Name` for CallTarget and Instance, and naming
// `kRegistered` registers it.  REQUIRES: CheckMethod<T, M>().
template <typename T, auto M>
struct AutoMethod {
  static const char* Name() { return typeid(MethodTag<T, M>).name(); }

  static inline const bool kRegistered =
      RegisterMethod(Name(), {&typeid(T), &InvokeMethod<T, M>});
};

// As AutoMethod, for T's constructor from values of types P.
// REQUIRES: CheckConstructor<T, P...>().
template <typename T, typename... P>
struct AutoConstructor {
  static const char* Name() { return typeid(ConstructorTag<T, P...>).name(); }

  static inline const bool kRegistered =
      RegisterConstructor(Name(), EntryOf<T, P...>());
};

// An argument of a constructor as it is sent: a constructor's parameters cannot
// be known, so it is the argument's own type, with texts as std::string and
// views as what holds their elements.
template <typename A>
struct SentArgument {
  using Type = A;
};
template <>
struct SentArgument<const char*> {
  using Type = std::string;
};
template <>
struct SentArgument<char*> {
  using Type = std::string;
};
template <TextView A>
struct SentArgument<A> {
  using Type = std::string;
};
template <typename T>
requires Raw<std::remove_const_t<T>>
struct SentArgument<std::span<T>> {
  using Type = std::vector<std::remove_const_t<T>>;
};
template <typename A>
using SentArgumentOf = typename SentArgument<std::decay_t<A>>::Type;

template <typename A>
void WriteArgument(const A& arg, Encoder& encoder) {
  if constexpr (std::is_same_v<A, SentArgumentOf<A>>) {
    encoder.Write(arg);
  } else if constexpr (std::is_same_v<SentArgumentOf<A>, std::string>) {
    WriteParameter(absl::string_view(arg), encoder);
  } else {
    encoder.WriteArray(arg.data(), arg.size());
  }
}

// As CheckClass, for a constructor of T from values of types P.
template <typename T, typename... P>
constexpr bool CheckConstructor() {
  if constexpr (!CheckClass<T>()) {
    return false;
  } else {
    constexpr bool kEncodable = (Encodable<P> && ...);
    static_assert(kEncodable,
                  "cohort: a type of a constructor's argument has no Codec; "
                  "give the struct COHORT_FIELDS(...) or specialise "
                  "cohort::Codec");
    constexpr bool kFits = !kEncodable || std::is_constructible_v<T, P&&...>;
    static_assert(kFits,
                  "cohort: the class has no constructor for these arguments");
    return kEncodable && kFits;
  }
}

// A call of a constructor as a job's spec has it.
struct ConstructorCall {
  const char* name;
  absl::StatusOr<std::string> arguments;  // or why they cannot be written
};

// Registers T's constructor for `args` and says how another process calls it.
template <typename T, typename... A>
ConstructorCall EncodeConstructor(const A&... args) {
  if constexpr (CheckConstructor<T, SentArgumentOf<A>...>()) {
    using Auto = AutoConstructor<T, SentArgumentOf<A>...>;
    (void)&Auto::kRegistered;
    Encoder encoder;
    (WriteArgument(args, encoder), ...);
    return {Auto::Name(), std::move(encoder).Finish()};
  } else {
    return {"", std::string()};
  }
}

template <typename T, auto M>
bool RegisterOneMethod() {
  if constexpr (CheckMethod<T, M>()) return AutoMethod<T, M>::kRegistered;
  return false;
}

template <typename T, auto... M>
bool RegisterActor() {
  if constexpr (CheckClass<T>() && std::is_default_constructible_v<T>) {
    (void)&AutoConstructor<T>::kRegistered;
  }
  return (RegisterOneMethod<T, M>() && ...);
}

}  // namespace cohort::actor

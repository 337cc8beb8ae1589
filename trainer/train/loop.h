#pragma once

#include <string>
#include <type_traits>
#include <typeinfo>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "actor/codec.h"
#include "trainer/train/run.h"

// Training loops by name, as methods are for actors (actor/method.h): naming
// one in Trainer<&Loop> registers it in every process of the program, so that a
// rank finds the one that its driver means.
namespace cohort::train {

// What a loop takes: a run, and perhaps a configuration.
template <typename F>
struct LoopTraits {
  static constexpr bool kValid = false;
};
template <>
struct LoopTraits<absl::Status (*)(Run&)> {
  static constexpr bool kValid = true;
  struct Config {
    auto CohortFields() { return std::tie(); }
    auto CohortFields() const { return std::tie(); }
  };
  static absl::Status Call(absl::Status (*loop)(Run&), Run& run,
                           const Config& /*none*/) {
    return loop(run);
  }
};
template <typename C>
struct LoopTraits<absl::Status (*)(Run&, C)> {
  static constexpr bool kValid = true;
  using Config = std::remove_cvref_t<C>;
  static absl::Status Call(absl::Status (*loop)(Run&, C), Run& run,
                           const Config& config) {
    return loop(run, config);
  }
};

struct LoopEntry {
  absl::Status (*call)(Run& run, absl::string_view config) = nullptr;
};

// Before main.
bool RegisterLoop(const char* name, LoopEntry loop);
// InvalidArgument: this program has no such loop.
absl::StatusOr<LoopEntry> FindLoop(const std::string& name);

template <auto F>
struct LoopTag {};

template <auto F>
struct AutoLoop {
  using Traits = LoopTraits<std::remove_cv_t<decltype(F)>>;
  static_assert(Traits::kValid,
                "cohort: a training loop is a function absl::Status "
                "Loop(cohort::train::Run&), or one that also takes const "
                "Config&");

  static const char* Name() { return typeid(LoopTag<F>).name(); }

  static absl::Status Call(Run& run, absl::string_view config) {
    auto decoded = DecodeValue<typename Traits::Config>(config);
    if (!decoded.ok()) return decoded.status();
    return Traits::Call(F, run, *decoded);
  }

  static inline const bool kRegistered = RegisterLoop(Name(), {&Call});
};

}  // namespace cohort::train

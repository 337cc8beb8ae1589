#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "actor/method.h"
#include "actor/state_keeper.h"
#include "actor/this_rank.h"
#include "cohort/v1/domain.pb.h"
#include "common/mutex.h"

namespace cohort::actor {

// An actor in its process: the object, its rank, and the state that it saves.
//
// Thread-safe where its object is; one of several that share a process runs one
// call at a time, of all its callers.
class HostedActor {
 public:
  struct Options {
    GroupRank rank;
    // Of its states, and which incarnation saves them.
    std::string state_directory;
    uint64_t incarnation = 0;
    bool shares_process = false;
    // It has saved for the last time (Want): once, on any thread, perhaps while
    // a call waits for it, for ever unless this ends the process.
    std::function<void()> on_end;
  };

  // Makes the object, and gives it what was saved.  Errors, as Instance and
  // StateKeeper have them, name the class, and the rank of one that shares.
  static absl::StatusOr<std::unique_ptr<HostedActor>> Make(
      const v1::ActorStart& start, Options options);

  HostedActor(const HostedActor&) = delete;
  HostedActor& operator=(const HostedActor&) = delete;

  bool HasState() const { return state_.has_value(); }

  // As Instance::Invoke; kSaveMethod saves its state.
  absl::StatusOr<std::string> Invoke(const std::string& method,
                                     absl::string_view arguments);

  // What is to be done before the next call, or by TakeTurn: nothing, of one
  // without state.
  enum class Wanted { kNothing, kSave, kSaveAndEnd };
  void Want(Wanted what);
  // Does it, if it is to be done yet; waits for the call that runs, of one that
  // shares its process.  REQUIRES: a thread that may call methods.
  void TakeTurn();
  // As TakeTurn, but false when a call runs.
  bool TryTurn();

 private:
  explicit HostedActor(Options options) : options_(std::move(options)) {}

  absl::Status Begin(const v1::ActorStart& start);
  absl::StatusOr<std::string> Call(const std::string& method,
                                   absl::string_view arguments);
  void DoWanted();

  const Options options_;
  // Set by Make.
  std::optional<Instance> instance_;
  std::optional<StateKeeper> state_;
  std::atomic<Wanted> wanted_{Wanted::kNothing};
  std::atomic<bool> is_over_{false};

  Mutex turn_;  // of one that shares its process
  CondVar never_;
};

}  // namespace cohort::actor

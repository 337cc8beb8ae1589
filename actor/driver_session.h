#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "cohort/v1/actor.pb.h"
#include "common/backoff.h"
#include "common/executor.h"
#include "common/job_id.h"
#include "common/mutex.h"
#include "common/random.h"
#include "common/strong_id.h"
#include "rpc/channel.h"

namespace cohort::actor {

// A program's session with the head: says that the program lives, and brings
// where its actors stand.  Goes on by itself after a break and over a restart
// of the head; the head ends what the program owns once it was away for
// `timeout`.  One that only watches owns nothing: a process of a job has it.
//
// Thread-safe.  Destroying it without End leaves the head waiting.
class DriverSession {
 public:
  struct Options {
    std::string name;  // for people
    absl::Duration timeout = absl::Seconds(30);
    // It is over when the head was away for that long.
    absl::Duration head_timeout = absl::InfiniteDuration();
    bool only_watches = false;
  };
  // On the executor.
  struct Events {
    std::function<void(const v1::ActorStanding&)> on_standing;
    // Whether others wait for room that executors of this program have.
    std::function<void(bool wanted)> on_room_wanted;
    // The head waited for long enough, or refuses it: what the program owned
    // was ended.  The last one.
    std::function<void(const absl::Status& why)> on_over;
  };

  // `head`, `where` and `random` outlive it; `where` runs one task at a time,
  // and stops before this is destroyed.
  DriverSession(Options options, rpc::Channel& head, Executor& where,
                Random& random, Events events);
  ~DriverSession();

  // The driver's id, once the head has opened the session.  DeadlineExceeded,
  // saying why, when it has not within `timeout`; why the session is over.
  absl::StatusOr<DriverId> AwaitOpen(absl::Duration timeout);

  // From now on on_standing tells of that actor; again at once when it is
  // watched already.  `secret`: the actor's; "" is enough for one that may use
  // the actor without it.
  void Watch(const JobId& actor, std::string secret = "");
  // Ends the watch with that secret; news that is on its way may still come.
  void Unwatch(const JobId& actor, std::string secret);
  // Of the live actor of that name; one without a job id: there is none.
  void WatchNamed(const std::string& name_space, const std::string& name);

  // What its tasks are, for people; the last word counts.
  void TellTasks(std::vector<v1::TaskCounts> shapes);

  // The program ends, and with it what it owns.  Returns once the head knows,
  // or after `timeout`, when it will find out by itself.
  void End(absl::Duration timeout);

 private:
  using Stream = rpc::TypedStream<v1::DriverMessage>;

  // On the executor.
  void Open();
  void OnUpdate(const v1::DriverUpdate& update);
  void Note(const JobId& job, const v1::ActorStanding& standing);
  void OnOpened(const v1::DriverOpened& opened);
  void OnClosed(const absl::Status& status);
  // The session is over, unless a head opens it within head_timeout.
  void GiveUpLater();
  void Send(const v1::WatchActor& watch);
  void SetOver(const absl::Status& why);

  const Options options_;
  rpc::Channel& head_;
  Executor& where_;
  const Events events_;

  // On the executor.
  std::unique_ptr<Stream> stream_;
  Backoff backoff_;
  bool is_open_ = false;
  uint64_t times_opened_ = 0;
  bool ending_ = false;
  // By the secret that is shown, which may be a wrong one; the slots that are
  // over.
  std::map<std::pair<JobId, std::string>, std::set<uint32_t>> watched_;
  size_t unwatched_ = 0;  // that this stream tells of yet
  // Asked for and not answered, by namespace and name.
  std::set<std::pair<std::string, std::string>> named_;

  Mutex mutex_;
  CondVar changed_;
  std::optional<DriverId> driver_ ABSL_GUARDED_BY(mutex_);
  absl::Status last_error_ ABSL_GUARDED_BY(mutex_);
  // It was over, or has ended.
  std::optional<absl::Status> over_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::actor

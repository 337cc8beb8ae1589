#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "actor/driver_session.h"
#include "cohort/v1/actor.pb.h"
#include "common/job_id.h"
#include "common/strong_id.h"
#include "rpc/channel.h"
#include "tests/sim/sim_client.h"
#include "tests/sim/sim_process.h"
#include "tests/sim/sim_worker.h"

namespace cohort::sim {

// A program that owns actors.  It lives several lives, one after the other: in
// each it opens a session (the library's own) and creates actors, groups and
// executors of tasks, which run until somebody ends them, and detached actors,
// which end by themselves.  It watches all of them and stops some.  A life ends
// with a word to the head, by SIGKILL, or because the session is over.  So
// everything ends (LV-1) only if the head ends what programs leave.  Checks too
//   DS-1  what it is told of an actor is durable,
//   DS-4  its session is over only if it was away for its timeout.
class Program {
 public:
  // `knows_cuts`: false on purpose, so that a long one is called the head's
  // fault.
  Program(World world, std::string name, bool knows_cuts);
  ~Program();

  // Begins a life now, and others after it.  `faulty`: until Calm it is killed
  // and cut off from the head now and then.
  void Start(bool faulty);
  void Calm();
  // The present life ends with a word, and no other follows.
  void Finish();
  // As Client::Restored.
  void Restored(const std::function<bool(const JobId&)>& holds);

  const Client& client() const { return client_; }
  // Nobody of it lives any more.
  bool is_over() const { return finishing_ && life_ == nullptr; }
  const std::string& violation() const;

 private:
  // What a SIGKILL takes.
  struct Life {
    explicit Life(Executor& world) : process(world) {}
    ~Life() { process.Kill(); }

    ProcessExecutor process;
    absl::Duration timeout;
    std::unique_ptr<actor::DriverSession> session;
    std::set<JobId> watched;
    // The session may be over: it was away for long, or the store is older.
    bool may_be_over = false;
    bool is_older_store = false;
  };

  void Begin();
  void Tick();
  void Act(const DriverId& driver);
  void Create(const DriverId& driver);
  v1::JobSpec ActorSpec(const DriverId& driver);
  void WatchAll();
  // The head is out of reach for that time.
  void Cut(absl::Duration time);
  void EndLife();
  void OnStanding(const v1::ActorStanding& standing);
  void OnOver(const absl::Status& why);
  void Violate(std::string what);

  World world_;
  const std::string name_;
  const bool knows_cuts_;
  Client client_;
  const std::unique_ptr<rpc::Channel> channel_;
  std::unique_ptr<Life> life_;
  // Their sessions may be on the stack yet.
  std::vector<std::unique_ptr<Life>> ended_;
  bool faulty_ = false;
  bool finishing_ = false;
  absl::Duration cut_until_;
  int created_ = 0;
  std::string violation_;
};

}  // namespace cohort::sim

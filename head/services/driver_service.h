#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cohort/v1/actor.pb.h"
#include "common/executor.h"
#include "common/job_id.h"
#include "common/strong_id.h"
#include "head/services/state_host.h"
#include "rpc/router.h"

namespace cohort::head {

// DriverService: sessions of programs that own actors, and where the actors
// stand that they watch; and the drivers, for people.  Translates and nothing
// else; decisions are ClusterState's (docs/design/0012-actors.md).
//
//   DS-1: what a driver is told is durable (CM-1); of several changes that it
//         has not taken yet, the last.  Of one that is over it is told once.
//   DS-2: a driver whose stream ends is waited for, or over, once that was
//         decided: never forgotten.
//   DS-3: a process of a job is told of actors whose secret it shows, and as a
//         driver of those of its job; of others as of none, with the secret
//         that it showed, and its stream goes on.
//   DS-4: a driver is over by its own word, with the process that it is, or
//   when
//         it was away for its timeout.
//
// Strand-bound; HeadCore owns it.  Calls may outlive it by a task.
class DriverService final {
 public:
  // `watched_max`: actors of one stream.  All outlive the service.
  DriverService(size_t watched_max, StateHost& host, Executor& strand);
  ~DriverService();

  DriverService(const DriverService&) = delete;
  DriverService& operator=(const DriverService&) = delete;

  void RegisterOn(rpc::Router& router);

  // The job, perhaps an actor, is another one than before, durably.
  void JobChanged(const JobId& job);

  // Tells all drivers of it, and those that open from now on; empty: there is
  // none.
  void SetNextAuthority(std::string certificate);

  // The state is gone: all streams end with `why`, and are opened again.
  void CloseAll(const absl::Status& why);

 private:
  class Session;

  absl::StatusOr<v1::ListDriversResponse> List(
      const rpc::Principal& principal,
      const v1::ListDriversRequest& request) const;

  const size_t watched_max_;
  StateHost& host_;
  Executor& strand_;

  // Those that have opened; the router owns them.
  std::set<Session*> sessions_;
  std::map<JobId, std::set<Session*>> watching_;
  std::string next_authority_;

  // Shared: this and its calls, which find it empty once this is gone.
  const std::shared_ptr<DriverService*> self_;
};

}  // namespace cohort::head

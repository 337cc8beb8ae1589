#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "cohort/v1/node.pb.h"
#include "common/executor.h"
#include "common/process_id.h"
#include "worker/keeper_host.h"
#include "worker/process_host.h"

namespace cohort::worker {

// Which keeper parents the processes of a place.  Those of one owner (an array,
// a driver) share a few, so that a short job costs no keeper; a place without
// an owner has one of its own, named by the attempt.
//
//   none -> open (first Begin or Adopt) -> open and without places (last Close)
//   -> closing (kIdle later) -> none;  a Begin while it is closing waits.
//
// Strand-bound.  Outlives what it posted.
class KeeperPool {
 public:
  // How long a keeper without places stays for the next one of its owner.
  static constexpr absl::Duration kIdle = absl::Seconds(1);

  // Both outlive the pool.  `keepers` answers on `strand`.
  KeeperPool(KeeperHost& keepers, Executor& strand)
      : keepers_(keepers), strand_(strand) {}

  KeeperPool(const KeeperPool&) = delete;
  KeeperPool& operator=(const KeeperPool&) = delete;

  // The keeper's id: the same for all that is ever said of a place.
  static std::string KeeperOf(const v1::DesiredPlace& place);

  // As KeeperHost, for that place's processes.
  void Begin(const v1::DesiredPlace& place, std::vector<ProcessSpec> specs,
             KeeperHost::DoneCallback done);
  // `known` has the place's processes alone.  All places of one keeper are
  // adopted before the strand runs anything else: what the keeper has of others
  // the journal does not know (its record was damaged), and it is ended.
  void Adopt(const v1::DesiredPlace& place, KeeperHost::AdoptCallback done);
  void Stop(const ProcessId& process, absl::Duration grace);
  void Kill(const ProcessId& process);
  void Forget(const ProcessId& process, KeeperHost::DoneCallback done);

  // Drops what the keeper has of the place, none of whose processes runs; with
  // its last place the keeper goes, too.  As KeeperHost::Close else.
  void Close(const AttemptId& attempt, KeeperHost::DoneCallback done);

  // From now on a keeper goes at once with its last process, and those without
  // go now: no more will come.  `none_left` once the last has gone,
  // perhaps never.
  void KeepNoIdle(absl::AnyInvocable<void() &&> none_left);

 private:
  using Waiting = absl::AnyInvocable<void() &&>;
  enum class State { kNew, kAdopting, kOpen, kClosing };
  struct Shared {
    State state = State::kNew;
    std::set<AttemptId> places;
    int emptied = 0;  // times that its last place went
    absl::StatusOr<AdoptedKeeper> adopted;
    std::vector<Waiting> waiting;  // while it is adopted or closed
  };
  // Of a shared keeper.
  struct Place {
    std::string keeper;
    std::set<ProcessKey> processes;  // of which it has records
  };

  std::string KeeperOf(const AttemptId& attempt) const;
  // Null for a place with a keeper of its own.
  Shared* Enter(const v1::DesiredPlace& place);
  absl::StatusOr<AdoptedKeeper> AdoptedOf(const std::string& keeper,
                                          const AttemptId& attempt);
  void EndUnknown(const std::string& keeper, const AdoptedKeeper& adopted);
  void Leave(const AttemptId& attempt);
  void CloseLater(const std::string& keeper, int emptied);
  void CloseIdle(const std::string& keeper);
  bool IsIdle(const Shared& shared) const;
  static void WhenSteady(Shared& shared, Waiting go_on);
  void Steady(const std::string& keeper, State state);

  void TellIfNoneIsLeft();

  KeeperHost& keepers_;
  Executor& strand_;
  bool keeps_idle_ = true;
  absl::AnyInvocable<void() &&> none_left_;  // null: nobody asked, or was told
  std::map<std::string, Shared> shared_;     // by keeper
  std::map<AttemptId, Place> places_;        // those under shared ones
};

}  // namespace cohort::worker

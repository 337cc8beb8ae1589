#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/time/time.h"

#include "cohort/v1/security.pb.h"
#include "common/clock.h"
#include "common/executor.h"
#include "head/services/authorities.h"
#include "head/services/driver_service.h"
#include "head/services/node_service.h"
#include "head/services/state_host.h"
#include "rpc/router.h"

namespace cohort::head {

// SecurityService's part about the certificate authority: its rotation, which
// nodes and drivers hear of on their streams, everybody else in answers
// (docs/design/0018-security.md).
//
// RA-2: unless forced, no rotation is finished while a node that is not dead
// has
//       not said that it has the next authority.
//
// Strand-bound; HeadCore owns it.  Calls may outlive it by a task.
class AuthorityService final {
 public:
  // `authorities`: null where the head shows no certificate.  All outlive the
  // service.
  AuthorityService(Authorities* authorities, NodeService& nodes,
                   DriverService& drivers, StateHost& host, Executor& strand,
                   const Clock& clock);
  ~AuthorityService();

  AuthorityService(const AuthorityService&) = delete;
  AuthorityService& operator=(const AuthorityService&) = delete;

  void RegisterOn(rpc::Router& router);

 private:
  template <typename Req>
  using Change = absl::Status (AuthorityService::*)(const Req&,
                                                    const ClusterState&);

  // `change`: null of a method that only reads.
  template <typename Req>
  void Handle(rpc::Router& router,
              const rpc::UnaryMethod<Req, v1::Authorities>& method,
              std::type_identity_t<Change<Req>> change);
  absl::Status Rotate(const v1::RotateAuthorityRequest& request,
                      const ClusterState& state);
  absl::Status Finish(const v1::FinishRotationRequest& request,
                      const ClusterState& state);
  absl::StatusOr<v1::Authorities> List() const;
  // Names of those that are not dead and do not have the next authority, and of
  // machines that were launched with a join token of before it and have not
  // joined.
  std::vector<std::string> NodesWithout(const ClusterState& state) const;
  void Announce();

  Authorities* const authorities_;
  NodeService& nodes_;
  DriverService& drivers_;
  StateHost& host_;
  Executor& strand_;
  const Clock& clock_;
  // When the next authority came, or this head.
  absl::Time rotated_at_;

  // Shared: this and its calls, which find it empty once this is gone.
  const std::shared_ptr<AuthorityService*> self_;
};

}  // namespace cohort::head

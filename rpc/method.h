#pragma once

#include "rpc/role.h"

namespace cohort::rpc {

// What a call costs the one who serves it (rpc/admission.h).
enum class Load {
  kBrief,    // answered as soon as its turn comes
  kBulk,     // the same, with a message of a MiB
  kWaiting,  // waits for something to happen; costs memory only
  kNode,     // a node's own stream: never behind the calls of clients
  kNodeLog,  // a log from a node, of which the server asked for each
};

// Whether calls are in the head's audit log (docs/security.md).
enum class Audit {
  kByRoles,  // unless readers may make them: what only others may do changes
             // something, as far as nobody says otherwise
  kNever,    // a question after all, or too many
};

// Names a call, fixes its message types and who may make it.  Immutable.
//
//   inline constexpr UnaryMethod<v1::SubmitJobRequest, v1::SubmitJobResponse>
//       kSubmitJob{"/cohort.v1.ClusterService/SubmitJob", kWritersAndRanks};
//
// The path is gRPC's, so that a stock gRPC client of the proto's service meets
// the handler.  Servers and clients use the same constant.
template <typename Req, typename Resp>
struct UnaryMethod {
  const char* path;
  Roles roles = kAdmins;
  Load load = Load::kBrief;
  Audit audit = Audit::kByRoles;

  constexpr bool IsAudited() const {
    return audit == Audit::kByRoles && !roles.Has(Role::kRead);
  }
};

// A stream of Up from the client and of Down from the server.  Server streaming
// is the same with a client that half-closes after its one message.
template <typename Up, typename Down>
struct StreamMethod {
  const char* path;
  Roles roles = kAdmins;
  Load load = Load::kWaiting;
};

}  // namespace cohort::rpc

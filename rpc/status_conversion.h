#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "grpcpp/client_context.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/status.h"

#include "rpc/stamp.h"

// absl::Status and the stamp as gRPC carries them: code and message in the
// status, the reason in the trailing metadata `cohort-reason`, the stamp in
// `cohort-cluster-bin` and `cohort-term`, and while a cluster changes to
// another authority that one's certificate in `cohort-authority-bin`.
namespace cohort::rpc {

// A message is cut to 4 KiB, so that the trailers stay below what peers accept.
grpc::Status ToGrpcStatus(const absl::Status& status);

// Adds reason and stamp, and the next authority unless it is empty.  REQUIRES:
// the call has not been finished.
void AddTrailers(const absl::Status& status, const std::optional<Stamp>& stamp,
                 const std::string& authority,
                 grpc::ServerContextBase& context);

// Of a call that ended.  Codes that absl does not know become UNKNOWN.
absl::Status FromGrpcStatus(const grpc::Status& status,
                            const grpc::ClientContext& context);

// Nothing when the answer carried none, or a malformed one.
std::optional<Stamp> StampOf(const grpc::ClientContext& context);

// Empty when the answer announced none.
std::string NextAuthorityOf(const grpc::ClientContext& context);

}  // namespace cohort::rpc

#pragma once

#include <string>

#include "absl/strings/string_view.h"

#include "common/executor.h"
#include "rpc/channel.h"
#include "rpc/router.h"

namespace cohort::rpc {

// What a call within one process says of itself.
struct LocalCaller {
  // The metadata `authorization`, as a client would send it.
  absl::string_view authorization;
  // Where the call came from at first, for log lines.
  std::string peer;
};

// Calls a unary method of `router` in its own process, as a client would over a
// transport: authentication, limits and counts are the Router's.
//
// `done` is posted to `where` exactly once, with the handler's answer, or
// CANCELLED after CallHandle::Cancel: the deadline in `options` is what the
// handler sees, and the caller keeps it.  `where` outlives the call.
CallHandle CallLocally(Router& router, absl::string_view path,
                       const LocalCaller& caller, absl::string_view request,
                       CallOptions options, Executor& where,
                       Channel::Done done);

}  // namespace cohort::rpc

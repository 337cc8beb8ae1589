#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/host_port.h"

namespace cohort::rpc {

// The certificate, in PEM, of the authority that the server at `address` shows,
// once it is found to be the one with this fingerprint (FingerprintOf).  Sends
// nothing secret.  Blocks.
//
// Unauthenticated (reason "other_authority") for a server of another one;
// Unavailable (reason "plaintext") for one without TLS; Unavailable when nobody
// answers.
absl::StatusOr<std::string> FetchAuthority(const HostPort& address,
                                           absl::string_view fingerprint,
                                           absl::Duration timeout);

}  // namespace cohort::rpc

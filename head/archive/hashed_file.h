#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "common/hash.h"

namespace cohort::head {

// What a file holds, so that damage to a copy of it is found.  A value.
struct HashedFile {
  int64_t size_bytes = 0;
  Digest hash;
};

// Copies `from` to `to`, which must not exist, with `mode`; durable once OK,
// but for its name (SyncDirectory).  Errors name the path, their code comes
// from errno; what is at `to` then is to be removed.  Blocks.
absl::StatusOr<HashedFile> CopyAndHash(const std::string& from,
                                       const std::string& to, mode_t mode);

}  // namespace cohort::head

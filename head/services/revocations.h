#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace cohort::head {

// The ids of tokens that were ever revoked, apart from the store: a store that
// is put back does not bring them to life again.  Strand-bound.
class Revocations {
 public:
  virtual ~Revocations() = default;

  // As Credential::TokenId.
  virtual const std::vector<std::string>& ids() const = 0;
  // Durable once it returns; may block for a moment.  Errors of the disk.
  virtual absl::Status Add(const std::string& id) = 0;
};

}  // namespace cohort::head

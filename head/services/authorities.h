#pragma once

#include <string>

#include "absl/status/status.h"

namespace cohort::head {

// The certificate authorities by which clients know this head, on its disk and
// in what its servers show.  Strand-bound.
//
// RA-1: what is announced is durable, and is shown to clients that ask for it.
class Authorities {
 public:
  virtual ~Authorities() = default;

  // Certificates in PEM; `next` is empty unless clients change to it.
  struct Held {
    std::string current;
    std::string next;
  };
  virtual Held held() const = 0;

  // Makes a next one, or does nothing when there is one.  May block for a
  // moment.  Errors of the disk, with nothing changed.
  virtual absl::Status BeginRotation() = 0;
  // The next one is the only one from now on.  REQUIRES: there is one.  May
  // block for a moment.  Errors of the disk, with nothing changed.
  virtual absl::Status FinishRotation() = 0;
};

}  // namespace cohort::head

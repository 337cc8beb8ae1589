#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

#include "common/mutex.h"
#include "rpc/method.h"

namespace cohort::rpc {

// How many calls of each Load a server has in work at once, and whose.
//
//   AD-1: however many calls one caller makes, others get in: a caller has at
//         most as many places of a kind as are still free.  One who floods gets
//         half of them, two get a third each, and some are always left for
//         a new caller (the dynamic threshold of Choudhury and Hahne,
//         "Dynamic queue length thresholds for shared-memory packet switches",
//         1998, with alpha 1).
//
//   AD-2: however many connections a principal opens, others get in: all its
//         callers together have at most three times as many places as are still
//         free.
//
// A caller is a principal on a connection.  Thread-safe; places may outlive it.
class Admission {
  struct Shared;

 public:
  struct Limits {
    // What a strand's line is made of: 4,096 calls of 20 us are 80 ms.
    size_t brief = 4096;
    // Each may hold a message of 1 MiB or more.
    size_t bulk = 64;
    size_t waiting = 10'000;
    // A stream for each node that a head can have, and as many that come again
    // before their old one is seen to have ended.
    size_t node = 20'000;
    // One for each log that a head has asked for, which is the real bound, and
    // as many that it has not seen end.
    size_t node_log = 20'000;
  };

  // One call's, given back by its end.  Movable value.
  class Place {
   public:
    Place() = default;
    ~Place() { GiveBack(); }
    Place(Place&& other) noexcept = default;
    Place& operator=(Place&& other) noexcept {
      std::swap(shared_, other.shared_);
      std::swap(load_, other.load_);
      std::swap(caller_, other.caller_);
      std::swap(principal_bytes_, other.principal_bytes_);
      return *this;
    }

   private:
    friend class Admission;
    Place(std::shared_ptr<Shared> shared, Load load, std::string caller,
          size_t principal_bytes)
        : shared_(std::move(shared)),
          load_(load),
          caller_(std::move(caller)),
          principal_bytes_(principal_bytes) {}
    void GiveBack();

    std::shared_ptr<Shared> shared_;  // Shared: the admission and its places.
    Load load_ = Load::kBrief;
    std::string caller_;
    size_t principal_bytes_ = 0;
  };

  explicit Admission(Limits limits);

  // ResourceExhausted (reason "busy") when there is no place for this caller:
  // it is to come back later.  The first `principal_bytes` of `caller` name its
  // principal; 0: it counts for itself.
  absl::StatusOr<Place> Enter(Load load, std::string caller,
                              size_t principal_bytes = 0);

  // Places taken, of all kinds.
  size_t taken() const;

 private:
  const std::shared_ptr<Shared> shared_;
};

}  // namespace cohort::rpc

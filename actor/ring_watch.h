#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"

#include "actor/call_stream.h"
#include "common/mutex.h"
#include "shm/spinner.h"

namespace cohort::actor {

// The rings of a process's callers, at which a thread looks that has no call to
// run.  ActorService's own.  Thread-safe.
class RingWatch {
 public:
  using Streams = absl::InlinedVector<std::shared_ptr<CallStream>, 4>;

  // What is to be done with a stream.
  class Owner {
   public:
    virtual ~Owner() = default;
    // Takes what is in its ring.
    virtual void TakeFromRing(const std::shared_ptr<CallStream>& caller) = 0;
    // Has its caller look, if it has not: something was pushed.
    virtual void Kick(CallStream& caller) = 0;
  };

  // Null: there are no rings.  Both outlive this.
  RingWatch(shm::Spinner* spinner, Owner& owner)
      : spinner_(spinner), owner_(owner) {}

  bool HasRoom();
  void Add(const std::shared_ptr<CallStream>& caller);
  // It has a ring that its caller could not open.
  void Remove(const CallStream& caller);

  // Something waits for a lane that did not before.
  void NoteArrival() { arrivals_.fetch_add(1, std::memory_order_release); }

  // Something was pushed for a caller that did not look.  Whether it will be
  // kicked in time; false: the caller of this does it.
  bool WillKick(CallStream& caller);

 private:
  friend class RingLooker;

  Streams Shared();

  shm::Spinner* const spinner_;
  Owner& owner_;
  std::atomic<uint64_t> arrivals_{0};
  std::atomic<bool> is_looking_{false};  // one thread at a time
  std::atomic<size_t> count_{0};
  Mutex mutex_;
  std::vector<std::weak_ptr<CallStream>> rings_ ABSL_GUARDED_BY(mutex_);
};

// That one thread looks.  From Start to Stop callers write to their rings.
//
//   Start before results are written -> Look -> Stop before a call runs
class RingLooker {
 public:
  explicit RingLooker(RingWatch& watch) : watch_(watch) {}
  ~RingLooker() { Stop(); }

  RingLooker(const RingLooker&) = delete;
  RingLooker& operator=(const RingLooker&) = delete;

  // Nothing where there are no rings, another thread looks, or the machine has
  // better to do.
  void Start();
  bool is_looking() const { return is_looking_; }
  // Until something has arrived, or it is time to stop, which it then does.
  void Look();
  void Stop();

 private:
  void TakeAll();
  void KickAll();

  RingWatch& watch_;
  bool is_looking_ = false;
  RingWatch::Streams streams_;
  uint64_t arrivals_ = 0;
  shm::Instant until_;
};

}  // namespace cohort::actor

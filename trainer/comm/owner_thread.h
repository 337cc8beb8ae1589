#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/mutex.h"

namespace cohort::trainer {

// The one thread that makes the calls of a communicator which may never return,
// and a watch over it.
//
// Others post work and wait for it as long as they like; End makes all waits
// end at once, now and later, whatever the thread is in.  The thread then makes
// things quiet, and at last closes them; when one of the two is not over in
// time, because a call hangs, the watch asks for the process to be killed.
//
// Instants are MachineClock().Monotonic()'s.  Thread-safe, but for what says
// that it is the thread's own.
class OwnerThread {
 public:
  struct Options {
    // On the thread, once, when it has ended and before it closes.
    absl::AnyInvocable<void(OwnerThread&)> quiet;
    // On the thread, the last that it does.
    absl::AnyInvocable<void(OwnerThread&)> close;
    // For each of the two after an End; that of `quiet` begins with it.
    absl::Duration deadline = absl::Seconds(3);
    // The same where nobody said End and the destructor comes: nothing failed,
    // so nothing is to be feared from a call that takes its time.
    absl::Duration leave = absl::Seconds(30);
    // Told what the thread hangs in.  On the watch's thread.
    std::function<void(absl::string_view hangs_in)> kill;
  };
  using Work = absl::AnyInvocable<absl::Status(OwnerThread&)>;
  // A piece of work, for who waits for it.
  struct Job {
    Work work;
    // Guarded by the thread's mutex.
    bool is_done = false;
    absl::Status status;
  };

  explicit OwnerThread(Options options);
  // Ends, and waits until all is closed.
  ~OwnerThread();
  OwnerThread(const OwnerThread&) = delete;
  OwnerThread& operator=(const OwnerThread&) = delete;

  // Runs `work` after what was posted before.  What it captures must live by
  // itself: nobody may wait for it.
  std::shared_ptr<Job> Post(Work work);

  // The job's answer; DEADLINE_EXCEEDED at `until`; ended() when that comes
  // first.  Calls `look` now and then; when it fails and goes on to fail, that
  // is the answer, some 100 ms later: what is done by then is done.
  absl::Status Await(const Job& job, absl::Duration until,
                     absl::FunctionRef<absl::Status()> look) const;

  // Never blocks.  The first reason counts.
  void End(absl::string_view why);
  // ABORTED with the reason; OK before End.
  absl::Status ended() const;

  // What the thread is in: SetCall's last, "nothing" between jobs.
  const char* call() const { return call_.load(); }

  // The thread's own, in work:
  bool is_ending() const { return is_ending_.load(); }
  // Waits a moment between two looks; less when End comes meanwhile.
  void Pause(absl::Duration moment);
  // What it is about to call, for the watch.  A literal.
  void SetCall(const char* call) { call_.store(call); }

 private:
  void EndWithin(absl::string_view why, absl::Duration deadline);
  void Run();
  // The next job; null when there is nothing more but to end or to close.
  std::shared_ptr<Job> NextJob();
  void Finish(Job& job, absl::Status status);
  void Watch();

  Options options_;
  std::atomic<bool> is_ending_{false};
  std::atomic<const char*> call_{"nothing"};
  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::deque<std::shared_ptr<Job>> jobs_ ABSL_GUARDED_BY(mutex_);
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
  // For what is left to do, from the end on.
  absl::Duration deadline_ ABSL_GUARDED_BY(mutex_);
  bool is_closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  // When the watch asks to kill.
  absl::Duration kill_at_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteDuration();
  // Last: they use the others.
  std::thread thread_;
  std::thread watch_;
};

}  // namespace cohort::trainer

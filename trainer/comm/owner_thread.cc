#include "trainer/comm/owner_thread.h"

#include <algorithm>
#include <utility>

#include "common/real_clock.h"

namespace cohort::trainer {
namespace {

constexpr absl::Duration kLookPeriod = absl::Milliseconds(20);
// How long what is nearly done may take after a look has failed.
constexpr absl::Duration kGrace = absl::Milliseconds(60);

// The same in memory of its own: threads that share a status count shares
// inside of Abseil, where ThreadSanitizer does not see it.
absl::Status Apart(const absl::Status& status) {
  return absl::Status(status.code(), status.message());
}

}  // namespace

OwnerThread::OwnerThread(Options options)
    : options_(std::move(options)),
      thread_([this] { Run(); }),
      watch_([this] { Watch(); }) {}

OwnerThread::~OwnerThread() {
  EndWithin("destroyed", options_.leave);
  {
    MutexLock lock(mutex_);
    is_closing_ = true;
    changed_.SignalAll();
  }
  thread_.join();
  watch_.join();
}

std::shared_ptr<OwnerThread::Job> OwnerThread::Post(Work work) {
  auto job = std::make_shared<Job>();
  job->work = std::move(work);
  MutexLock lock(mutex_);
  if (!ended_.ok()) {
    job->is_done = true;
    job->status = Apart(ended_);
    return job;
  }
  jobs_.push_back(job);
  changed_.SignalAll();
  return job;
}

absl::Status OwnerThread::Await(const Job& job, absl::Duration until,
                                absl::FunctionRef<absl::Status()> look) const {
  absl::Status failed;
  absl::Duration give_up = absl::InfiniteDuration();
  for (;;) {
    {
      MutexLock lock(mutex_);
      const absl::Duration slice =
          std::min({until, give_up, MonotonicNow() + kLookPeriod});
      while (!job.is_done && ended_.ok()) {
        if (!changed_.WaitUntil(mutex_, slice)) break;
      }
      if (job.is_done) return Apart(job.status);
      if (!ended_.ok()) return Apart(ended_);
    }
    if (MonotonicNow() >= give_up) return failed;
    if (MonotonicNow() >= until)
      return absl::DeadlineExceededError("deadline passed");
    failed = look();
    if (failed.ok()) {
      give_up = absl::InfiniteDuration();
    } else if (give_up == absl::InfiniteDuration()) {
      give_up = MonotonicNow() + kGrace;
    }
  }
}

void OwnerThread::End(absl::string_view why) {
  EndWithin(why, options_.deadline);
}

void OwnerThread::EndWithin(absl::string_view why, absl::Duration deadline) {
  MutexLock lock(mutex_);
  if (!ended_.ok()) return;
  ended_ = absl::AbortedError(why);
  is_ending_.store(true);
  deadline_ = deadline;
  kill_at_ = MonotonicNow() + deadline_;
  for (const std::shared_ptr<Job>& job : jobs_) {
    job->is_done = true;
    job->status = Apart(ended_);
  }
  jobs_.clear();
  changed_.SignalAll();
}

absl::Status OwnerThread::ended() const {
  MutexLock lock(mutex_);
  return Apart(ended_);
}

void OwnerThread::Pause(absl::Duration moment) {
  MutexLock lock(mutex_);
  changed_.WaitFor(mutex_, moment);
}

std::shared_ptr<OwnerThread::Job> OwnerThread::NextJob() {
  MutexLock lock(mutex_);
  while (jobs_.empty() && ended_.ok()) changed_.Wait(mutex_);
  if (!ended_.ok()) return nullptr;
  std::shared_ptr<Job> job = std::move(jobs_.front());
  jobs_.pop_front();
  return job;
}

void OwnerThread::Finish(Job& job, absl::Status status) {
  // What it captured may be large, or wait for its turn to be destroyed here.
  job.work = nullptr;
  MutexLock lock(mutex_);
  job.status = std::move(status);
  job.is_done = true;
  changed_.SignalAll();
}

void OwnerThread::Run() {
  while (const std::shared_ptr<Job> job = NextJob()) {
    Finish(*job, job->work(*this));
    SetCall("nothing");
  }
  options_.quiet(*this);
  {
    MutexLock lock(mutex_);
    kill_at_ = absl::InfiniteDuration();
    while (!is_closing_) changed_.Wait(mutex_);
    kill_at_ = MonotonicNow() + deadline_;
    changed_.SignalAll();
  }
  options_.close(*this);
  MutexLock lock(mutex_);
  is_closed_ = true;
  changed_.SignalAll();
}

void OwnerThread::Watch() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      while (!is_closed_ && MonotonicNow() < kill_at_) {
        changed_.WaitUntil(mutex_, kill_at_);
      }
      if (is_closed_) return;
      kill_at_ = absl::InfiniteDuration();
    }
    options_.kill(call_.load());
  }
}

}  // namespace cohort::trainer

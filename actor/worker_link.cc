#include "actor/worker_link.h"

#include <utility>

#include "absl/time/time.h"

#include "rpc/methods.h"

namespace cohort::actor {
namespace {

// The daemon is back within a second or so.
constexpr BackoffOptions kDaemonBackoff = {.initial = absl::Milliseconds(50),
                                           .max = absl::Seconds(1)};

}  // namespace

WorkerLink::WorkerLink(ProcessId process, rpc::Channel& channel,
                       Executor& where, Events events)
    : process_(std::move(process)),
      channel_(channel),
      where_(where),
      events_(std::move(events)),
      reopen_(kDaemonBackoff, random_) {
  where_.Post([this] { Open(); });
}

void WorkerLink::Announce(std::vector<std::string> addresses) {
  addresses_ = std::move(addresses);
  Tell();
}

v1::WatchRequest WorkerLink::RequestOfThis() const {
  v1::WatchRequest request;
  request.set_attempt_id(std::string(process_.attempt.bytes()));
  request.set_slot(process_.slot);
  request.set_incarnation(process_.incarnation);
  return request;
}

void WorkerLink::Open() {
  rpc::TypedEvents<v1::WatchResponse> events;
  events.on_message = [this](const v1::WatchResponse& told) { OnTold(told); };
  events.on_closed = [this](absl::Status status, auto) { OnClosed(status); };
  watch_ = rpc::OpenStream(channel_, rpc::kWatchRun,
                           {.deadline = absl::InfiniteDuration()}, where_,
                           std::move(events));
  // A stream that is over says so through OnClosed.
  watch_->Write(RequestOfThis()).IgnoreError();
  if (!addresses_.empty()) Tell();
}

void WorkerLink::Tell() {
  v1::WatchRequest request = RequestOfThis();
  request.mutable_addresses()->Assign(addresses_.begin(), addresses_.end());
  watch_->Write(request).IgnoreError();
}

void WorkerLink::OnTold(const v1::WatchResponse& told) {
  reopen_.Reset();
  if (!std::exchange(joined_, true)) events_.on_joined(told);
  const v1::NoticeKind notice = told.notice().kind();
  if (std::exchange(notice_, notice) != notice) events_.on_notice(notice);
}

void WorkerLink::OnClosed(const absl::Status& status) {
  if (absl::IsUnavailable(status)) {
    return where_.PostAfter(reopen_.Next(), [this] { Open(); });
  }
  events_.on_over(status);
}

}  // namespace cohort::actor

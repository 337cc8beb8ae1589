#include "client/head_client.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "client/caller_executor.h"
#include "common/duration_text.h"
#include "common/status_util.h"

namespace cohort::client {
namespace {

// gRPC nests what happened to each address in one message; the last part is the
// system's own word.
absl::string_view Innermost(absl::string_view message) {
  const size_t colon = message.rfind(": ");
  return colon == absl::string_view::npos ? message : message.substr(colon + 2);
}

// The head may answer otherwise in a moment: it is away, or has too much to do.
// (Other ends of resources, as too many waiting jobs, are for people.)
bool MayPass(const absl::Status& status) {
  const std::string reason = GetReason(status);
  // Where only a node is away, to ask again is the caller's choice.
  if (absl::IsUnavailable(status)) return reason != "node_away";
  return absl::IsResourceExhausted(status) &&
         (reason == "busy" || reason == "overloaded");
}

}  // namespace

// One call and its repetitions.  Owned by the task or the call in flight that
// goes on with it, one at a time; ends as CANCELLED when that is dropped.
class HeadClient::Attempts {
 public:
  Attempts(HeadClient& client, const char* path, std::string request,
           absl::Duration deadline, Executor& where, RawDone done)
      : client_(client),
        path_(path),
        request_(std::move(request)),
        started_(client.clock_.Monotonic()),
        deadline_(started_ + deadline),
        where_(where),
        backoff_(client.NewBackoff()),
        done_(std::move(done)) {}

  ~Attempts() {
    if (done_ == nullptr) return;
    std::move(done_)(absl::CancelledError("the client was closed"));
  }

  Attempts(const Attempts&) = delete;
  Attempts& operator=(const Attempts&) = delete;

  static void Start(std::unique_ptr<Attempts> self) {
    Attempts& me = *self;
    me.client_.channel_.StartUnary(
        me.path_, me.request_, {.deadline = me.Left()}, me.where_,
        [self = std::move(self)](rpc::CallResult result) mutable {
          Answered(std::move(self), std::move(result));
        });
  }

 private:
  static void Answered(std::unique_ptr<Attempts> self, rpc::CallResult result) {
    Attempts& me = *self;
    absl::Status status =
        me.client_.Judge(result.response.status(), result.stamp);
    if (status.ok()) return me.End(std::move(result.response));
    if (absl::IsDeadlineExceeded(status)) return me.End(me.TimedOut());
    if (!MayPass(status)) return me.End(std::move(status));
    me.last_ = std::move(status);
    if (me.Left() <= absl::ZeroDuration()) return me.End(me.last_);
    me.client_.OnRetry(me.last_);
    const absl::Duration wait = std::min(me.backoff_.Next(), me.Left());
    me.where_.PostAfter(wait, [self = std::move(self)]() mutable {
      if (self->Left() <= absl::ZeroDuration()) return self->End(self->last_);
      Start(std::move(self));
    });
  }

  absl::Duration Left() const { return deadline_ - client_.clock_.Monotonic(); }

  // A head that was never met is unreachable, not slow.
  absl::Status TimedOut() const {
    if (!last_.ok()) return last_;
    return absl::DeadlineExceededError(absl::StrCat(
        "the head at ", client_.channel_.address(), " did not answer within ",
        DurationToText(deadline_ - started_)));
  }

  void End(absl::StatusOr<std::string> result) {
    std::exchange(done_, nullptr)(std::move(result));
  }

  HeadClient& client_;
  const char* const path_;
  const std::string request_;
  const absl::Duration started_;
  const absl::Duration deadline_;
  Executor& where_;
  Backoff backoff_;
  RawDone done_;
  absl::Status last_;
};

HeadClient::HeadClient(rpc::Channel& channel, const Clock& clock,
                       Random& random, HeadClientOptions options)
    : channel_(channel),
      clock_(clock),
      random_(random),
      options_(std::move(options)) {}

void HeadClient::CallRaw(const char* path, std::string request,
                         absl::Duration deadline, Executor& where,
                         RawDone done) {
  Attempts::Start(std::make_unique<Attempts>(*this, path, std::move(request),
                                             deadline, where, std::move(done)));
}

absl::StatusOr<std::string> HeadClient::CallRawAndWait(
    const char* path, std::string request, absl::Duration deadline) {
  CallerExecutor here;
  std::optional<absl::StatusOr<std::string>> result;
  CallRaw(path, std::move(request), deadline, here,
          [&result](absl::StatusOr<std::string> r) { result = std::move(r); });
  here.RunUntil([&result] { return result.has_value(); });
  return *std::move(result);
}

absl::Status HeadClient::Judge(const absl::Status& status,
                               const std::optional<rpc::Stamp>& stamp) {
  if (!stamp.has_value()) {
    if (!absl::IsUnavailable(status)) return status;
    return SetReason(
        absl::UnavailableError(absl::StrCat(
            "the head at ", channel_.address(), " cannot be reached: ",
            absl::StripSuffix(Innermost(status.message()), "."),
            "; start it, or name another one with --address or "
            "COHORT_ADDRESS")),
        "unreachable");
  }
  MutexLock lock(mutex_);
  if (seen_.has_value() && seen_->cluster_id != stamp->cluster_id) {
    return SetReason(
        absl::FailedPreconditionError(absl::StrCat(
            "another cluster answers at ", channel_.address(), ": ",
            absl::BytesToHexString(stamp->cluster_id), " instead of ",
            absl::BytesToHexString(seen_->cluster_id),
            "; connect again if that is the one you mean")),
        "other_cluster");
  }
  if (seen_.has_value() && stamp->term < seen_->term) {
    return SetReason(absl::UnavailableError(absl::StrCat(
                         "a head of term ", stamp->term,
                         " answered after one of term ", seen_->term)),
                     "stale_term");
  }
  seen_ = stamp;
  return status;
}

absl::Status HeadClient::Undecodable(absl::string_view path) {
  return absl::InternalError(absl::StrCat(
      "the answer to ", path, " cannot be decoded: is it a cohort head?"));
}

}  // namespace cohort::client

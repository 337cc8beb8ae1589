#include "head/services/refusal_log.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "common/status_util.h"

namespace cohort::head {
namespace {

constexpr absl::Duration kRecordPeriod = absl::Minutes(1);
constexpr size_t kRecordedMax = 60;

// Without the port, which is another one for each connection.
absl::string_view HostOf(absl::string_view peer) {
  const size_t colon = peer.rfind(':');
  return colon == absl::string_view::npos ? peer : peer.substr(0, colon);
}

}  // namespace

std::optional<RefusedCall> RefusalLog::Note(absl::string_view path,
                                            const std::string& peer,
                                            const rpc::Principal* who,
                                            const absl::Status& why) {
  // Not for good: the head was loading its state.
  if (absl::IsUnavailable(why)) return std::nullopt;
  RefusedCall refusal;
  refusal.principal = who != nullptr ? who->name : "nobody";
  const absl::string_view host = HostOf(peer);
  {
    const absl::Duration now = clock_.Monotonic();
    MutexLock lock(mutex_);
    if (now - began_ >= kRecordPeriod) {
      began_ = now;
      seen_.clear();
    }
    if (seen_.size() >= kRecordedMax) return std::nullopt;
    const std::string key = absl::StrCat(refusal.principal, " ", host, path);
    if (seen_[key]++ > 0) return std::nullopt;
  }
  const std::string reason = GetReason(why);
  refusal.text = absl::StrCat(
      absl::StripPrefix(path, "/cohort.v1."), " by ", refusal.principal,
      who != nullptr ? absl::StrCat(", role ", rpc::RoleName(who->role)) : "",
      ", from ", host, ": ", absl::StatusCodeToString(why.code()),
      reason.empty() ? "" : absl::StrCat(" (", reason, ")"));
  return refusal;
}

}  // namespace cohort::head

#include "head/services/audit_buffer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "common/printable_text.h"
#include "common/status_util.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

constexpr size_t kTextBytesMax = 256;

// Without the port, which is another one for each connection.
absl::string_view HostOf(absl::string_view peer) {
  const size_t colon = peer.rfind(':');
  return colon == absl::string_view::npos ? peer : peer.substr(0, colon);
}

}  // namespace

AuditRecord AuditBuffer::CallOf(absl::string_view path, const std::string& peer,
                                const rpc::Principal* who) const {
  AuditRecord call;
  *call.mutable_at() = rpc::ToWire(clock_.Wall());
  call.set_principal(who != nullptr ? who->name : "nobody");
  if (who != nullptr) call.set_role(static_cast<v1::Role>(who->role));
  call.set_peer(peer);
  call.set_method(std::string(absl::StripPrefix(path, "/cohort.v1.")));
  call.set_result("OK");
  call.set_count(1);
  return call;
}

void AuditBuffer::Note(AuditRecord call, const absl::Status& result) {
  if (absl::IsUnavailable(result)) return;
  const std::string reason = GetReason(result);
  call.set_result(absl::StatusCodeToString(result.code()));
  call.set_text(Cut(absl::StrCat(reason, reason.empty() ? "" : ": ",
                                 absl::string_view(result.message())),
                    kTextBytesMax));
  call.set_peer(std::string(HostOf(call.peer())));
  const std::string key =
      absl::StrCat(call.principal(), "\n", call.peer(), "\n", call.method(),
                   "\n", call.result(), "\n", call.job_id(), "\n", call.what());
  MutexLock lock(mutex_);
  const size_t max =
      call.role() == v1::ROLE_UNSPECIFIED ? kKindsMax / 3 : kKindsMax;
  auto known = kinds_.find(key);
  const bool is_rest = known == kinds_.end() && kinds_.size() >= max;
  if (is_rest) {
    call.set_principal("others");
    call.clear_role();
    call.set_method("several");
    call.clear_what();
    call.clear_job_id();
    call.set_text("other refused calls: there are too many kinds to list each");
    known = kinds_.find("");
  }
  if (known == kinds_.end()) {
    kinds_.emplace(is_rest ? "" : key, Kind{.last = std::move(call)});
    has_new_ = true;
    return;
  }
  call.set_count(known->second.last.count() + 1);
  known->second.last = std::move(call);
}

std::vector<AuditRecord> AuditBuffer::Take() {
  std::vector<AuditRecord> taken;
  const absl::Duration now = clock_.Monotonic();
  MutexLock lock(mutex_);
  const bool is_over = now - began_ >= kPeriod;
  if (kinds_.empty() || (!has_new_ && !is_over)) return taken;
  has_new_ = false;
  for (auto& [key, kind] : kinds_) {
    if ((kind.told && !is_over) || kind.last.count() == 0) continue;
    kind.told = true;
    taken.push_back(kind.last);
    kind.last.set_count(0);
  }
  if (is_over) {
    kinds_.clear();
    began_ = now;
  }
  return taken;
}

}  // namespace cohort::head

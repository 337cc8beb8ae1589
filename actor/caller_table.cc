#include "actor/caller_table.h"

#include "actor/call_limits.h"

namespace cohort::actor {

CallerTable::Session CallerTable::Open(const std::string& id,
                                       uint64_t unknown) {
  const auto make = [&] {
    return std::make_shared<CallerSession>(id, unknown);
  };
  if (id.empty()) return make();
  Session& session = sessions_[id];
  if (session == nullptr) session = make();
  if (session->breakage > 0) broken_bytes_ -= session->record.bytes();
  session->breakage = 0;
  return session;
}

bool CallerTable::Has(const CallerSession& session) const {
  const auto found = sessions_.find(session.id);
  return found != sessions_.end() && found->second.get() == &session;
}

uint64_t CallerTable::Break(const Session& session) {
  if (!Has(*session)) return 0;
  session->breakage = ++last_breakage_;
  broken_.emplace_back(last_breakage_, session);
  broken_bytes_ += session->record.bytes();
  Trim();
  return last_breakage_;
}

void CallerTable::Forget(const CallerSession& session) {
  if (Has(session)) sessions_.erase(session.id);
}

void CallerTable::ForgetUntil(uint64_t breakage) {
  while (!broken_.empty() && broken_.front().first <= breakage) ForgetFirst();
}

void CallerTable::Keep(v1::ActorResults::Result result,
                       CallerSession& session) {
  if (session.breakage == 0 || !Has(session)) return;
  broken_bytes_ -= session.record.bytes();
  session.record.Keep(std::move(result));
  broken_bytes_ += session.record.bytes();
  Trim();
}

void CallerTable::Trim() {
  while (broken_.size() > kRememberedCallers ||
         broken_bytes_ > kRememberedBytes) {
    ForgetFirst();
  }
}

void CallerTable::ForgetFirst() {
  const uint64_t breakage = broken_.front().first;
  const Session session = std::move(broken_.front().second);
  broken_.pop_front();
  // Else it is back, or was and broke again.
  if (session->breakage != breakage) return;
  broken_bytes_ -= session->record.bytes();
  session->breakage = 0;
  sessions_.erase(session->id);
}

}  // namespace cohort::actor

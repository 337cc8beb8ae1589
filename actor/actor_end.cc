#include "actor/actor_end.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "actor/call_error.h"
#include "actor/demangle.h"
#include "actor/method.h"
#include "common/job_id.h"
#include "common/printable_text.h"
#include "common/status_util.h"

namespace cohort::actor {
namespace {

constexpr size_t kStderrBytesMax = 2048;
// A result that crosses the wire has code, reason and message, and not this: in
// the message the call is named after so many bytes, or by its method.
constexpr char kEndPayload[] = "cohort/actor_end";
constexpr absl::string_view kTheCall = "the call";
// Enough of an id for the command line, which takes a beginning of it.
constexpr size_t kIdLength = 12;

std::string IdText(const v1::ActorStanding& standing) {
  const absl::StatusOr<JobId> id = JobId::FromBytes(standing.job_id());
  return id.ok() ? id->ToText().substr(0, kIdLength) : "";
}

// "actor counter-7 (Counter)"; one without a name has its id, and what runs
// tasks is "task executor ID".
std::string ActorText(const v1::ActorStanding& standing) {
  if (standing.class_name().empty()) return "the actor";
  const std::string name =
      standing.name().empty() ? IdText(standing) : Shown(standing.name());
  if (standing.class_name() == kExecutorClass) {
    return absl::StrCat(kExecutorClass, name.empty() ? "" : " ", name);
  }
  const std::string type = Demangle(standing.class_name());
  if (name.empty()) return absl::StrCat("actor ", type);
  return absl::StrCat("actor ", name, " (", type, ")");
}

std::string ExitText(const v1::ExitStatus& exit) {
  if (exit.oom_killed()) return "was killed for its memory";
  if (exit.signal() != 0) {
    return absl::StrCat("was killed by signal ", exit.signal());
  }
  return absl::StrCat("exited with status ", exit.code());
}

// `text` without `word` and a number after it, where it begins so.
bool ConsumeNumbered(absl::string_view word, absl::string_view& text) {
  absl::string_view left = text;
  if (!absl::ConsumePrefix(&left, word)) return false;
  while (!left.empty() && absl::ascii_isdigit(left[0])) left.remove_prefix(1);
  text = left;
  return true;
}

// What the reason of the job adds to how the process ended: not that it ended
// so, in the words for ranks and attempts, which an actor does not have.
std::string ReasonText(const v1::ActorStanding& standing) {
  absl::string_view reason = standing.reason();
  if (ConsumeNumbered("attempt ", reason)) absl::ConsumePrefix(&reason, ": ");
  absl::string_view end = reason;
  // Of a group it may be the end of another rank, which is why.
  const bool is_end = standing.slots() <= 1 && standing.has_exit() &&
                      ConsumeNumbered("rank ", end) &&
                      (ConsumeNumbered(" exited with code ", end) ||
                       ConsumeNumbered(" was killed by signal ", end)) &&
                      end.empty();
  return is_end ? "" : MessageLine(reason);
}

// "its process on w1 was killed by signal 9: REASON", of that incarnation.
std::string ProcessText(const v1::ActorStanding& standing,
                        const std::string& node, uint64_t incarnation) {
  std::string text = "its process";
  if (!node.empty()) absl::StrAppend(&text, " on ", Shown(node));
  const bool is_told =
      standing.has_exit() && standing.ended_incarnation() == incarnation;
  absl::StrAppend(&text, " ", is_told ? ExitText(standing.exit()) : "ended");
  const std::string reason = ReasonText(standing);
  if (!reason.empty()) absl::StrAppend(&text, ": ", reason);
  return text;
}

// "; the end of its stderr: ...", if there is any.
std::string StderrText(const std::string& tail) {
  size_t begin = tail.size() - std::min(tail.size(), kStderrBytesMax);
  // Not within a character.
  while (begin > 0 && begin < tail.size() &&
         (static_cast<unsigned char>(tail[begin]) & 0xC0) == 0x80) {
    ++begin;
  }
  const std::string line = OneLine(absl::string_view(tail).substr(begin));
  if (line.empty()) return "";
  return absl::StrCat("; the end of its stderr: ", begin > 0 ? "..." : "",
                      line);
}

// What it wrote last, else where that is: the head may not have it yet.
std::string LastWords(const v1::ActorStanding& standing) {
  const std::string id = IdText(standing);
  if (!standing.stderr_tail().empty() || id.empty()) {
    return StderrText(standing.stderr_tail());
  }
  return absl::StrCat(" (`cohort logs ", id, "` shows what it wrote)");
}

v1::ActorStanding NotThere(const v1::ActorStanding& told,
                           const std::string& why) {
  v1::ActorStanding none;
  none.set_job_id(told.job_id());
  none.set_state(v1::JOB_STATE_STOPPED);
  none.set_reason(why);
  return none;
}

// "ACTOR DID the callREST".
absl::Status Unavailable(const v1::ActorStanding& standing,
                         absl::string_view did, const std::string& rest,
                         const char* reason) {
  const std::string begin = absl::StrCat(ActorText(standing), " ", did, " ");
  absl::Status status = SetReason(
      absl::UnavailableError(absl::StrCat(begin, kTheCall, rest)), reason);
  status.SetPayload(kEndPayload, absl::Cord(absl::StrCat(begin.size())));
  return status;
}

}  // namespace

bool IsActorEnd(const absl::Status& status) {
  return status.GetPayload(kEndPayload).has_value();
}

absl::Status OfCall(const absl::Status& end, const std::string& method) {
  const auto payload = end.GetPayload(kEndPayload);
  size_t at = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &at)) {
    return end;
  }
  const std::string name = MethodText(method);
  // Users know nothing of ours.
  if (absl::StartsWith(name, "cohort::actor::")) return end;
  const absl::string_view text = end.message();
  absl::Status named = SetReason(
      absl::Status(end.code(), absl::StrCat(text.substr(0, at), name,
                                            text.substr(at + kTheCall.size()))),
      GetReason(end));
  named.SetPayload(kEndPayload, absl::Cord());
  return named;
}

std::string WaitText(const v1::ActorStanding& standing) {
  const bool waits = standing.state() == v1::JOB_STATE_PENDING;
  if (!waits || standing.reason().empty()) return "";
  return absl::StrCat(ActorText(standing),
                      " waits: ", MessageLine(standing.reason()),
                      " (`cohort explain ", IdText(standing), "` says more)");
}

absl::Status NotStarted(const v1::ActorStanding& standing) {
  std::string why;
  if (standing.ended_incarnation() > 0) {
    why = absl::StrCat(": ", ProcessText(standing, standing.node_name(),
                                         standing.ended_incarnation()));
  } else if (!standing.reason().empty()) {
    why = absl::StrCat(": ", MessageLine(standing.reason()));
  }
  absl::StrAppend(&why, StderrText(standing.stderr_tail()));
  return Unavailable(standing, "is dead and did not run", why,
                     kReasonNotStarted);
}

bool IsRefusal(const v1::ActorStanding& told) {
  return told.slots() == 0 && !told.secret().empty();
}

std::optional<v1::ActorStanding> StandingFor(const v1::ActorStanding& told,
                                             uint32_t slot,
                                             absl::string_view secret) {
  const bool is_its_own = secret.empty() || secret == told.secret();
  if (told.slots() == 0) {
    if (IsRefusal(told) && secret != told.secret()) return std::nullopt;
    return NotThere(told, told.reason());
  }
  if (!is_its_own) return NotThere(told, "its handle has another secret");
  if (slot >= told.slots()) return NotThere(told, "it has no such rank");
  if (slot != told.slot()) return std::nullopt;
  return told;
}

absl::Status WasKilled(const v1::ActorStanding& standing) {
  return Unavailable(standing, "was killed and did not run", "",
                     kReasonNotStarted);
}

absl::Status EndedDuringCall(const v1::ActorStanding& standing,
                             const v1::ActorStanding& to) {
  return Unavailable(
      standing, "may have run",
      absl::StrCat(": ",
                   ProcessText(standing, to.node_name(), to.incarnation()),
                   LastWords(standing)),
      kReasonMayHaveRun);
}

absl::Status BrokeDuringCall(const v1::ActorStanding& standing,
                             const absl::Status& broke) {
  return Unavailable(standing, "may have run",
                     absl::StrCat(": the stream to its process broke: ",
                                  MessageLine(broke.message())),
                     kReasonMayHaveRun);
}

absl::Status NotReached(const v1::ActorStanding& standing,
                        const absl::Status& broke) {
  return Unavailable(standing, "did not run",
                     absl::StrCat(": the stream to its process broke: ",
                                  MessageLine(broke.message())),
                     kReasonNotStarted);
}

}  // namespace cohort::actor

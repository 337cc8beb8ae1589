#include "actor/handle.h"

#include <set>

#include "absl/status/status.h"

#include "actor/actor_finder.h"
#include "actor/call_error.h"
#include "actor/codec.h"
#include "common/mutex.h"
#include "common/status_util.h"

namespace cohort::actor {
namespace {

constexpr size_t kGroupBytesMax = 128;
// Mangled ones are long.
constexpr size_t kKeptBytesMax = 64 << 10;

// As bytes.  A class, and no text that is longer than it can be.
struct WrittenHandle {
  std::string class_name;
  std::string job;  // empty: it names no actor
  uint32_t slot = 0;
  std::string secret;
  std::string group;
  uint32_t actor = 0;
  COHORT_FIELDS(class_name, job, slot, secret, group, actor)
};

}  // namespace

const char* KeptText(const std::string& text) {
  if (text.empty()) return "";
  static auto* const mutex = new Mutex;
  static auto* const kept = new std::set<std::string>;
  MutexLock lock(*mutex);
  const auto found = kept->find(text);
  if (found != kept->end()) return found->c_str();
  if (text.size() > kKeptBytesMax || kept->size() >= kNamesMax) {
    return kNameTooMany;
  }
  return kept->insert(text).first->c_str();
}

absl::Status NoActor() {
  return absl::FailedPreconditionError("this handle names no actor");
}

absl::Status EndsAsAWhole() {
  return absl::InvalidArgumentError(
      "a group ends as a whole (kill the group; a rank can end itself)");
}

void WriteHandle(const char* class_name, const CallTarget* target,
                 const char* group, Encoder& encoder) {
  WrittenHandle written;
  written.class_name = class_name;
  if (target != nullptr) {
    const absl::StatusOr<ActorRef> ref = target->Ref();
    if (!ref.ok()) return encoder.Fail(ref.status());
    written.job = ref->job.bytes();
    written.slot = ref->slot;
    written.secret = ref->secret;
    written.group = group;
    written.actor = ref->actor;
  }
  encoder.Write(written);
}

bool ReadHandle(const char* class_name, Decoder& decoder, SentHandle& sent) {
  WrittenHandle written;
  if (!decoder.Read(written) || written.class_name != class_name) return false;
  if (written.job.empty()) return true;
  const absl::StatusOr<JobId> job = JobId::FromBytes(written.job);
  if (!job.ok() || job->IsNil() || written.secret.size() != kActorSecretBytes ||
      written.group.size() > kGroupBytesMax) {
    return false;
  }
  sent.actor = {.job = *job,
                .slot = written.slot,
                .secret = written.secret,
                .actor = written.actor};
  sent.group = written.group;
  return true;
}

std::shared_ptr<CallTarget> FindActor(const ActorRef& ref) {
  const std::shared_ptr<ActorFinder> finder = ProcessActorFinder();
  if (finder != nullptr) return finder->TargetOf(ref);
  return NoTarget(SetReason(
      absl::FailedPreconditionError(
          "this process has no way to actors (keep its Runtime until the "
          "calls of handles have ended)"),
      kReasonSessionOver));
}

}  // namespace cohort::actor

#include "actor/handle.h"

#include <set>

#include "common/mutex.h"

namespace cohort::actor {

const char* KeptText(const std::string& text) {
  static auto* const mutex = new Mutex;
  static auto* const kept = new std::set<std::string>;
  MutexLock lock(*mutex);
  return kept->insert(text).first->c_str();
}

absl::Status NoActor() {
  return absl::FailedPreconditionError("this handle names no actor");
}

}  // namespace cohort::actor

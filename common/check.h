#pragma once

#include <cstdint>
#include <sstream>

#include "absl/base/attributes.h"
#include "absl/base/optimization.h"
#include "absl/strings/string_view.h"

// Crash on our bugs, count the survivable ones; the world returns a Status.

// Ends the process, in release builds too, when `condition` is false.  For what
// only a bug of ours can break, never for what a peer or a disk can do.
//   COHORT_CHECK(lease.attempt <= current) << "attempt " << lease.attempt;
#define COHORT_CHECK(condition)                                            \
  ABSL_PREDICT_TRUE(condition)                                             \
  ? (void)0                                                                \
  : ::cohort::internal::Voidify() &                                        \
          ::cohort::internal::CheckFailure(__FILE__, __LINE__, #condition) \
              .stream()

// Logs and counts a likely bug that we survive.  Follow it with the safe way
// out, usually an INTERNAL status.
#define COHORT_BUG(message) \
  ::cohort::internal::ReportBug(__FILE__, __LINE__, (message))

namespace cohort {

// COHORT_BUGs of this process so far: the metric cohort_bugs_total.
int64_t BugCount();

namespace internal {

void ReportBug(const char* file, int line, absl::string_view message);

// Collects the message and aborts when destroyed.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  ABSL_ATTRIBUTE_NORETURN ~CheckFailure();

  std::ostream& stream() { return message_; }

 private:
  const char* file_;
  int line_;
  const char* condition_;
  std::ostringstream message_;
};

// Gives both arms of COHORT_CHECK the type void; & binds looser than <<.
struct Voidify {
  void operator&(std::ostream&) {}
};

}  // namespace internal
}  // namespace cohort

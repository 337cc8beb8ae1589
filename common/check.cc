#include "common/check.h"

#include <atomic>
#include <cstdlib>

#include "common/log.h"

namespace cohort {
namespace {

std::atomic<int64_t> bug_count{0};

}  // namespace

int64_t BugCount() { return bug_count.load(std::memory_order_relaxed); }

namespace internal {

void ReportBug(const char* file, int line, absl::string_view message) {
  bug_count.fetch_add(1, std::memory_order_relaxed);
  COHORT_LOG(kError, "bug", {"message", message}, {"file", file},
             {"line", line});
}

CheckFailure::CheckFailure(const char* file, int line, const char* condition)
    : file_(file), line_(line), condition_(condition) {}

CheckFailure::~CheckFailure() {
  COHORT_LOG(kError, "check_failed", {"condition", condition_},
             {"message", message_.str()}, {"file", file_}, {"line", line_});
  std::abort();
}

}  // namespace internal
}  // namespace cohort

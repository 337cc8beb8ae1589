#include "actor/is_cancelled.h"

#include <utility>

namespace cohort {
namespace actor {
namespace {

thread_local CancelFlag* call_here = nullptr;

}  // namespace

CancelFlag::CancelFlag() : outer_(std::exchange(call_here, this)) {}

CancelFlag::~CancelFlag() { call_here = outer_; }

}  // namespace actor

bool IsCancelled() {
  return actor::call_here != nullptr && actor::call_here->is_set();
}

}  // namespace cohort

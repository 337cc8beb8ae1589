#include "actor/wait_observer.h"

#include <utility>

namespace cohort::actor {
namespace {

thread_local WaitObserver* observer = nullptr;

}  // namespace

WaitObserver::Here::Here(WaitObserver& here)
    : before_(std::exchange(observer, &here)) {}

WaitObserver::Here::~Here() { observer = before_; }

WaitObserver* WaitObserver::OfThisThread() { return observer; }

}  // namespace cohort::actor

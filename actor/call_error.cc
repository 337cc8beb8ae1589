#include "actor/call_error.h"

#include <cxxabi.h>

#include <exception>
#include <string>
#include <typeinfo>

#include "absl/strings/str_cat.h"

#include "actor/demangle.h"
#include "common/status_util.h"

namespace cohort::actor {
namespace {

// What there is to say of an exception that says nothing itself.
std::string TypeOfCurrentException() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  return type == nullptr
             ? "an unknown exception"
             : absl::StrCat("an exception of type ", Demangle(type->name()));
}

}  // namespace

absl::Status ExceptionStatus() {
  std::string message = TypeOfCurrentException();
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const std::exception& exception) {
    if (*exception.what() != '\0') message = exception.what();
  } catch (...) {
  }
  return SetReason(absl::UnknownError(message), kReasonException);
}

}  // namespace cohort::actor

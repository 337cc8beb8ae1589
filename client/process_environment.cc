#include "client/process_environment.h"

#include <cstdint>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::client {
namespace {

constexpr char kSocketVariable[] = "COHORT_WORKER_SOCKET";

bool IsSet(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

absl::StatusOr<std::string> Variable(const char* name) {
  if (IsSet(name)) return std::string(std::getenv(name));
  return absl::InvalidArgumentError(absl::StrCat(
      name, " is not set: ", kSocketVariable,
      " says that this is a rank, and its worker daemon sets both"));
}

template <typename Int>
absl::StatusOr<Int> Number(const char* name) {
  COHORT_ASSIGN_OR_RETURN(const std::string text, Variable(name));
  Int value = 0;
  if (absl::SimpleAtoi(text, &value)) return value;
  return absl::InvalidArgumentError(
      absl::StrCat(name, "=", text, " is not a number"));
}

}  // namespace

bool IsRank() { return IsSet(kSocketVariable); }

bool IsActor() { return IsRank() && IsSet("COHORT_ACTOR"); }

absl::StatusOr<ProcessEnvironment> ReadProcessEnvironment() {
  ProcessEnvironment read;
  COHORT_ASSIGN_OR_RETURN(read.worker_socket, Variable(kSocketVariable));
  COHORT_ASSIGN_OR_RETURN(read.credential_file,
                          Variable("COHORT_CREDENTIAL_FILE"));
  COHORT_ASSIGN_OR_RETURN(const std::string attempt,
                          Variable("COHORT_ATTEMPT_ID"));
  absl::StatusOr<AttemptId> id = AttemptId::FromHex(attempt);
  if (!id.ok()) return Annotate(id.status(), "COHORT_ATTEMPT_ID");
  read.process.attempt = *id;
  COHORT_ASSIGN_OR_RETURN(read.process.slot, Number<int>("COHORT_SLOT"));
  COHORT_ASSIGN_OR_RETURN(read.process.incarnation,
                          Number<uint64_t>("COHORT_INCARNATION"));
  return read;
}

}  // namespace cohort::client

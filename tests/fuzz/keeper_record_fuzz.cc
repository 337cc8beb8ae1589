// What passes between daemon and keeper: a record is refused, or is exactly
// what its writer writes.

#include <cstdio>
#include <optional>
#include <string>

#include "common/check.h"
#include "tests/fuzz/fuzz.h"
#include "worker/keeper/record.h"
#include "worker/keeper/reports.h"
#include "worker/keeper/spec.h"

namespace keeper = cohort::keeper;

namespace {

const keeper::ProcessKey kProcess = {"0123abcd", 1, 7};

keeper::ProcessSpec Spec() {
  return {.attempt = "0123abcd",
          .slot = 1,
          .incarnation = 7,
          .argv = {"python3", "train.py"},
          .env = {"RANK=0", "A=b\nc"},
          .cwd = "/",
          .log_dir = "/var/log/x"};
}

template <typename Report>
void Check(const std::optional<Report>& report, const std::string& bytes) {
  if (report.has_value()) COHORT_CHECK(keeper::Encode(*report) == bytes);
}

// The checksum would stop nearly every mutation at the door.
std::string WithChecksum(std::string bytes) {
  bytes.resize(bytes.rfind("crc32 ") == std::string::npos
                   ? bytes.size()
                   : bytes.rfind("crc32 "));
  char line[16];
  std::snprintf(line, sizeof line, "crc32 %08x\n",
                keeper::Crc32(bytes.data(), bytes.size()));
  return bytes + line;
}

void Read(const std::string& bytes) {
  std::string error;
  if (const auto spec = keeper::ParseSpec(bytes, &error); spec.has_value()) {
    COHORT_CHECK(keeper::EncodeSpec(*spec) == bytes);
  }
  Check(keeper::Parse<keeper::KeeperReport>(bytes, &error), bytes);
  Check(keeper::Parse<keeper::StartedReport>(bytes, &error), bytes);
  Check(keeper::Parse<keeper::ExitReport>(bytes, &error), bytes);
  Check(keeper::Parse<keeper::EndedReport>(bytes, &error), bytes);
  Check(keeper::Parse<keeper::LogEnd>(bytes, &error), bytes);
  Check(keeper::Parse<keeper::Command>(bytes, &error), bytes);
  Check(keeper::Parse<keeper::Answer>(bytes, &error), bytes);
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  return {
      keeper::EncodeSpec(Spec()),
      keeper::Encode(keeper::KeeperReport{.pid = 7}),
      keeper::Encode(keeper::StartedReport{.process = kProcess, .pid = 7}),
      keeper::Encode(keeper::ExitReport{
          .process = kProcess, .exit_code = 3, .message = "m"}),
      keeper::Encode(keeper::EndedReport{.process = kProcess}),
      keeper::Encode(keeper::LogEnd{.offset = 9}),
      keeper::Encode(keeper::Command{.kind = keeper::Command::Kind::kStop,
                                     .grace_ms = 1000,
                                     .processes = {kProcess, {"ab", 0, 1}}}),
      keeper::Encode(keeper::Answer{.number = 1, .error = "full"})};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  Read(bytes);
  Read(WithChecksum(bytes));
  return 0;
}

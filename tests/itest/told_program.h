#pragma once

#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/status_util.h"

// Programs that do what they are told on their stdin, one command a line, and
// answer each with one line: "ok VALUE", or "CODE REASON MESSAGE"
// (tests/itest/driver.py).
namespace cohort::itest {

template <typename T>
void WriteValue(std::ostream& out, const T& value) {
  out << value;
}
template <typename T>
void WriteValue(std::ostream& out, const std::vector<T>& values) {
  const char* between = "";
  for (const T& value : values) {
    out << between;
    WriteValue(out, value);
    between = ",";
  }
}

inline std::string Line(const absl::Status& status) {
  if (status.ok()) return "ok";
  const std::string reason = GetReason(status);
  std::string message(status.message());
  for (char& c : message) c = c == '\n' ? ' ' : c;
  return absl::StatusCodeToString(status.code()) + " " +
         (reason.empty() ? "-" : reason) + " " + message;
}

template <typename T>
std::string Line(const absl::StatusOr<T>& result) {
  if (!result.ok()) return Line(result.status());
  std::ostringstream out;
  out << "ok ";
  WriteValue(out, *result);
  return out.str();
}

// Until "quit" or the end.  `program`.Do(line) answers a command.
template <typename Program>
void Obey(Program& program) {
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line) && line != "quit";) {
    std::cout << program.Do(line) << std::endl;
  }
}

}  // namespace cohort::itest

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "shm/segment.h"

namespace cohort::shm {

// A call that an actor's process serves.  Times are microseconds since 1970,
// each no earlier than the one before.
struct ServedCall {
  uint32_t method = 0;  // of the methods' names
  uint32_t caller = 0;  // the beginning of its id
  uint32_t track = 0;   // no two calls of one track run at once
  int64_t queued_us = 0;
  int64_t begun_us = 0;
  int64_t ended_us = 0;  // 0: it runs yet
};

// The last calls that one process served, in a file for its worker daemon to
// read: a call costs two writes to memory, and what a process did can be seen
// when it hangs.  The process's end; thread-compatible.
//
// SV-1: what a reader gets are whole records, whatever the process does to the
//       file meanwhile.
class ServedCalls {
 public:
  static constexpr size_t kCallsMax = 10'000;
  static constexpr size_t kMethodsMax = 256;
  static constexpr size_t kMethodBytesMax = 96;

  // The file of the process in that slot, in its attempt's runtime directory.
  static std::string FileName(int slot);

  // In place of a file that an earlier incarnation left.  Errors: as
  // Segment::Create.
  static absl::StatusOr<std::unique_ptr<ServedCalls>> Create(
      const std::string& path, uint64_t incarnation);

  ServedCalls(const ServedCalls&) = delete;
  ServedCalls& operator=(const ServedCalls&) = delete;

  // The number of that name, for ServedCall::method, which is cut.  Beyond
  // kMethodsMax all are 0, "(other methods)".
  uint32_t AddMethod(absl::string_view name);

  // Answers a number for End.  `call.ended_us` is ignored.
  uint64_t Begin(const ServedCall& call);
  // Nothing, when kCallsMax others have begun meanwhile.
  void End(uint64_t call, int64_t ended_us);

 private:
  explicit ServedCalls(std::unique_ptr<Segment> segment);

  const std::unique_ptr<Segment> segment_;
  absl::flat_hash_map<std::string, uint32_t> methods_;
  uint64_t last_ = 0;
};

// What such a file holds.
struct ServedCallsFile {
  uint64_t incarnation = 0;
  std::vector<std::string> methods;
  std::vector<ServedCall> calls;  // those that began first come first
};

// Any thread of any process.  NOT_FOUND; DATA_LOSS it is not such a file;
// FAILED_PRECONDITION another build wrote it.
absl::StatusOr<ServedCallsFile> ReadServedCalls(const std::string& path);

}  // namespace cohort::shm

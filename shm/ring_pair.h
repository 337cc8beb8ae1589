#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "common/unique_fd.h"
#include "shm/ring.h"

namespace cohort::shm {

// Where a process finds the memory of another one's RingPair.  A value.
struct RingPlace {
  uint32_t pid = 0;
  uint32_t fd = 0;
  std::string token;  // of kTokenBytes: what is there begins with it
};

// Two rings, one each way, in memory without a name: it is gone with the two
// processes, however they end.  RingWriter and RingReader say which threads.
class RingPair {
 public:
  static constexpr size_t kTokenBytes = 16;
  static constexpr size_t kCapacity = 64 << 10;  // of each way

  static absl::StatusOr<std::unique_ptr<RingPair>> Create();
  // What another process has created.  `place` may be a stranger's word: what
  // is not such memory, of this size for good, is FAILED_PRECONDITION, and is
  // left as it was.
  static absl::StatusOr<std::unique_ptr<RingPair>> Open(const RingPlace& place);
  ~RingPair();

  RingPair(const RingPair&) = delete;
  RingPair& operator=(const RingPair&) = delete;

  // REQUIRES: it was created here.
  RingPlace place() const;
  // No other process can open it from now on.
  void Close() { file_.Reset(); }
  // Whether the other end has it, too.
  bool IsShared() const;

  RingWriter& writer() { return writer_; }
  RingReader& reader() { return reader_; }

 private:
  struct Layout;

  RingPair(UniqueFd file, Layout* layout, bool is_creator);

  static absl::StatusOr<Layout*> Map(int file);

  UniqueFd file_;  // the creator's, for Open, until Close
  Layout* const layout_;
  RingWriter writer_;
  RingReader reader_;
};

}  // namespace cohort::shm

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace cohort::shm {

// The first 64 bytes of every segment.  Shared between builds: fields are added
// at the end, never moved; little-endian like every machine we run on.
struct SegmentHeader {
  uint64_t magic;           // kSegmentMagic; written last
  uint32_t layout_version;  // of what follows the header, by kind
  uint32_t kind;            // SegmentKind
  uint64_t size_bytes;      // of the whole file, this header included
  uint8_t reserved[40];     // zero
};
static_assert(sizeof(SegmentHeader) == 64);

// The bytes "COHORTSM" in file order.
inline constexpr uint64_t kSegmentMagic = 0x4d5354524f484f43;

// On shared memory since v0.1: add, never renumber.
enum class SegmentKind : uint32_t {
  kArenaControl = 1,
  kArenaData = 2,
  kServedCalls = 3,
};

// What a segment holds and which layout of it this build speaks.
struct SegmentType {
  SegmentKind kind;
  uint32_t layout_version;
};

// A file mapped into memory that several processes share, with a versioned
// header in front.
//
// It lives in the runtime directory of an attempt, on tmpfs, and belongs to
// that directory and not to a process: destroying a Segment unmaps it and
// leaves the file.  Thread-compatible; the memory itself is as shared as its
// users make it.
//
// SG-1: a segment that was created can be written to its end: its space is
// taken
//       when it is made, so a full tmpfs is a status and never a SIGBUS.
// SG-2: a segment opens only with the magic, kind, layout version and size that
//       the opener expects.
class Segment {
 public:
  // Creates `path` with room for `body_bytes` after the header, zeroed, and
  // touches its pages.  ALREADY_EXISTS when there is such a file;
  // RESOURCE_EXHAUSTED, naming directory, needed and free bytes, when the file
  // system has no room; NOT_FOUND or PERMISSION_DENIED for the directory.  No
  // file is left on failure.
  static absl::StatusOr<std::unique_ptr<Segment>> Create(
      const std::string& path, SegmentType type, size_t body_bytes);

  // Maps the segment at `path`, read and write.  NOT_FOUND; FAILED_PRECONDITION
  // when it is of another kind or of a newer layout than `type`; DATA_LOSS when
  // magic or size are wrong.
  static absl::StatusOr<std::unique_ptr<Segment>> Open(const std::string& path,
                                                       SegmentType type);

  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  const std::string& path() const { return path_; }
  uint32_t layout_version() const { return header().layout_version; }
  // The whole mapping, header included.
  std::span<std::byte> bytes() const { return {base_, size_bytes_}; }
  // What follows the header; 64-byte aligned.
  std::span<std::byte> body() const {
    return bytes().subspan(sizeof(SegmentHeader));
  }

 private:
  Segment(std::string path, std::byte* base, size_t size_bytes)
      : path_(std::move(path)), base_(base), size_bytes_(size_bytes) {}

  const SegmentHeader& header() const {
    return *reinterpret_cast<const SegmentHeader*>(base_);
  }

  const std::string path_;
  std::byte* const base_;
  const size_t size_bytes_;
};

}  // namespace cohort::shm

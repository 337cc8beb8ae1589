#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cohort::head {

// A part of a package.
struct PackageChunk {
  std::string data;
  int64_t size_bytes = 0;  // of the whole package
};

// The bytes of packages, by content hash (32 bytes, SHA-256).  Which are whole
// and who pins them is ClusterState's; this holds files.
//
// `done` comes exactly once, on the head strand, never inside the call.
// Strand-bound.
class PackageStore {
 public:
  template <typename T>
  using Done = absl::AnyInvocable<void(T) &&>;

  static constexpr int64_t kChunkBytesMax = 1 << 20;

  virtual ~PackageStore() = default;

  // The offset to go on from: what is there from earlier, also before a
  // restart.  InvalidArgument for a hash or size that cannot be;
  // ResourceExhausted when there is no room.
  virtual void Begin(const std::string& hash, int64_t size_bytes,
                     Done<absl::StatusOr<int64_t>> done) = 0;

  // Appends at `offset`; gives the next one.  FailedPrecondition when the
  // upload is at another offset (Begin says which); ResourceExhausted when the
  // disk is full.
  virtual void Upload(const std::string& hash, int64_t offset, std::string data,
                      Done<absl::StatusOr<int64_t>> done) = 0;

  // Whole and synced once OK.  FailedPrecondition when bytes are missing;
  // DataLoss when they do not have the hash: they are dropped.
  virtual void Finish(const std::string& hash, int64_t size_bytes,
                      Done<absl::Status> done) = 0;

  // Whether its file is there with so many bytes, which are not read. NotFound;
  // DataLoss: it has another size.
  virtual void Look(const std::string& hash, int64_t size_bytes,
                    Done<absl::Status> done) = 0;

  // At most kChunkBytesMax from `offset`; empty data at the end.  NotFound.
  virtual void Fetch(const std::string& hash, int64_t offset,
                     Done<absl::StatusOr<PackageChunk>> done) = 0;

  // Removes what is there of it.
  virtual void Remove(const std::string& hash) = 0;

  // Removes whole files that are not in `known`, as a crash between commit and
  // removal leaves them.  Uploads that have begun stay.
  virtual void KeepOnly(std::vector<std::string> known) = 0;
};

}  // namespace cohort::head

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Files that are on the disk when a call says so.  Every message names the
// path; a full disk or quota is ResourceExhausted and says what to do.
namespace cohort::trainer {

// A new file that hashes what it is given.  Thread-compatible.
class DurableFile {
 public:
  // Fails when `path` exists.
  static absl::StatusOr<DurableFile> Create(const std::string& path);

  DurableFile(DurableFile&&) noexcept;
  DurableFile& operator=(DurableFile&&) noexcept;
  ~DurableFile();

  absl::Status Append(std::span<const std::byte> bytes);
  // Syncs and closes.  After it only size() and sha256().
  absl::Status Finish();

  uint64_t size() const { return size_; }
  const std::string& sha256() const { return sha256_; }  // in hex, after Finish

 private:
  struct Hash;
  DurableFile(std::string path, int fd);

  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
  std::unique_ptr<Hash> hash_;
  std::string sha256_;
};

// As cohort::MakeDirectories, and every directory that it made is on the disk.
absl::Status MakeDurableDirectories(const std::string& path);

// Renames the directory `from` to `to`; never replaces anything.
absl::Status RenameInto(const std::string& from, const std::string& to);

// NotFound when absent; OutOfRange when larger than `bytes_max`.
absl::StatusOr<std::vector<std::byte>> ReadWholeFile(const std::string& path,
                                                     size_t bytes_max);

std::string Sha256Hex(std::span<const std::byte> bytes);

}  // namespace cohort::trainer

#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// Small files that are there whole or not at all.  std and Linux only; errors
// are texts that name the file, empty for none.
namespace cohort::keeper {

// Owns a file descriptor.  Thread-compatible; moves.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void Reset();
  // Gives it up; the caller closes it.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// "<what> <path>: <errno as text>", and what to do about a full disk.
std::string ErrnoText(const std::string& what, const std::string& path,
                      int error);

// All bytes of a file; nullopt with *error_number set when it cannot be read,
// EFBIG when it is larger than `bytes_max`.
std::optional<std::string> ReadWhole(const std::string& path, size_t bytes_max,
                                     int* error_number);

enum class Durability { kCrash, kPowerLoss };

// Writes a file under another name and renames it to `dir`/`name`; kPowerLoss
// syncs the file and then the directory.  `dir`/`name` is untouched on failure.
std::string WriteByRename(const std::string& dir, const std::string& name,
                          const std::string& bytes, Durability durability);

// A file whose disk blocks are taken now and whose bytes come later, so that a
// full disk cannot keep it from being written.
//
// Lies as `dir`/.`name` until Commit gives it its name.  Thread-compatible.
class ReservedFile {
 public:
  ReservedFile() = default;
  ReservedFile(ReservedFile&&) = default;
  ReservedFile& operator=(ReservedFile&&) = default;

  // Takes the blocks.
  std::string Reserve(const std::string& dir, const std::string& name,
                      size_t bytes_max);
  // Writes `bytes` (at most what was reserved), cuts the file to them and
  // renames it.  May be tried again after an error.
  std::string Commit(const std::string& bytes);
  // After Commit: makes it survive a loss of power.
  std::string Sync();
  // Gives the blocks back without a trace.
  void Discard();

 private:
  std::string dir_;
  std::string name_;
  UniqueFd file_;
};

// Names in `dir` without . and ..; empty when it cannot be read.
std::vector<std::string> ListDirectory(const std::string& dir,
                                       int* error_number);

// Makes `path` and its missing parents, new ones with mode 0700.
std::string MakeDirectories(const std::string& path);

}  // namespace cohort::keeper

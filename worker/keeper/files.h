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

// A directory that is reached through a descriptor: the same one when it, or
// one above it, is renamed.  Thread-compatible; moves.
class Directory {
 public:
  Directory() = default;
  explicit Directory(std::string path);

  // Why it could not be opened; empty when it could.
  const std::string& error() const { return error_; }
  int fd() const { return fd_.get(); }
  // As it was opened: for people.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  UniqueFd fd_;
  std::string error_;
};

// "<what> <path>: <errno as text>", and what to do about a full disk.
std::string ErrnoText(const std::string& what, const std::string& path,
                      int error);

// All bytes of a file; nullopt with *error_number set when it cannot be read,
// EFBIG when it is larger than `bytes_max`.
std::optional<std::string> ReadWhole(const std::string& path, size_t bytes_max,
                                     int* error_number);

// The same of a file in `dir`, also after that was renamed.
std::optional<std::string> ReadWhole(const Directory& dir,
                                     const std::string& name, size_t bytes_max,
                                     int* error_number);

enum class Durability { kCrash, kPowerLoss };

// Writes a file under another name and renames it to `dir`/`name`; kPowerLoss
// syncs the file and then the directory.  `dir`/`name` is untouched on failure.
std::string WriteByRename(const Directory& dir, const std::string& name,
                          const std::string& bytes, Durability durability);
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

  // Takes the blocks.  `dir` outlives this.
  std::string Reserve(const Directory& dir, const std::string& name,
                      size_t bytes_max);
  // Writes `bytes` (at most what was reserved), cuts the file to them and
  // renames it.
  std::string Commit(const std::string& bytes);
  // After Commit: makes it survive a loss of power.
  std::string Sync();
  // Gives the blocks back without a trace.
  void Discard();

 private:
  const Directory* dir_ = nullptr;
  std::string name_;
  UniqueFd file_;
};

// Names in `dir` without . and ..; empty when it cannot be read.
std::vector<std::string> ListDirectory(const std::string& dir,
                                       int* error_number);

// Makes `path` and its missing parents, new ones with mode 0700.
std::string MakeDirectories(const std::string& path);

}  // namespace cohort::keeper

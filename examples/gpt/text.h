#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cohort::gpt {

// Of a text the first nine tenths and the last.
enum class Part { kTrain, kValidation };

// A text in windows of `context` bytes that lie side by side, each with the
// byte behind it: what is read and, a byte on, what is to be foretold.
// Immutable, so safe from any thread.
class Text {
 public:
  // Reads a file, plain or gzip, of at most 1 GiB.  InvalidArgument when a part
  // of it has no window; DataLoss when it is damaged; else the file system's
  // answer.
  static absl::StatusOr<std::unique_ptr<Text>> Open(const std::string& path,
                                                    int64_t context);
  // A text in memory; errors as Open.
  static absl::StatusOr<std::unique_ptr<Text>> Of(std::string bytes,
                                                  int64_t context);

  int64_t context() const { return context_; }
  int64_t size() const { return static_cast<int64_t>(bytes_.size()); }
  // Windows of a part.
  int64_t windows(Part part) const;

  // Windows `ids` of a part, [ids.size(), context + 1].
  // REQUIRES: ids within windows(part).
  std::vector<uint8_t> Read(Part part, std::span<const int64_t> ids) const;

 private:
  Text(std::string bytes, int64_t context);

  const std::string bytes_;
  const int64_t context_;
  const int64_t split_;  // where validation begins
};

}  // namespace cohort::gpt

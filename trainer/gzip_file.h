#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct gzFile_s;

namespace cohort::trainer {

// A gzip file, or a plain one, read from its start to its end.
// Thread-compatible.
class GzipFile {
 public:
  // The file system's answer, with the path.
  static absl::StatusOr<GzipFile> Open(std::string path);

  // Fills `out`; DataLoss when the file ends before, or is damaged.
  absl::Status Read(std::span<uint8_t> out);
  // What is left of it; DataLoss as Read, InvalidArgument beyond `limit` bytes.
  absl::StatusOr<std::string> ReadRest(size_t limit);
  // Reads on to the end, which checks the stream's checksum.
  absl::Status ExpectEnd();

  // DataLoss: "<path> <what>", with what zlib says of it.
  absl::Status Broken(absl::string_view what) const;

 private:
  struct Close {
    void operator()(gzFile_s* file) const;
  };
  GzipFile(std::string path, gzFile_s* file)
      : path_(std::move(path)), file_(file) {}

  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

}  // namespace cohort::trainer

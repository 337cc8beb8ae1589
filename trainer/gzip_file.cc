#include "trainer/gzip_file.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::trainer {
namespace {

constexpr size_t kChunk = 1 << 20;

}  // namespace

void GzipFile::Close::operator()(gzFile_s* file) const { gzclose(file); }

absl::StatusOr<GzipFile> GzipFile::Open(std::string path) {
  errno = 0;
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) {
    return ErrnoStatus(errno == 0 ? ENOMEM : errno,
                       absl::StrCat("open ", path));
  }
  gzbuffer(file, 256 << 10);
  return GzipFile(std::move(path), file);
}

absl::Status GzipFile::Read(std::span<uint8_t> out) {
  while (!out.empty()) {
    const auto want =
        static_cast<unsigned>(std::min<size_t>(out.size(), 1 << 30));
    const int n = gzread(file_.get(), out.data(), want);
    if (n <= 0) return Broken("ends too early");
    out = out.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> GzipFile::ReadRest(size_t limit) {
  std::string bytes;
  for (;;) {
    const size_t had = bytes.size();
    if (had > limit) {
      return absl::InvalidArgumentError(
          absl::StrCat(path_, " is longer than ", limit, " bytes"));
    }
    bytes.resize(had + kChunk);
    const int n = gzread(file_.get(), &bytes[had], kChunk);
    bytes.resize(had + static_cast<size_t>(std::max(n, 0)));
    if (n < 0) return Broken("is damaged");
    if (n == 0) break;
  }
  COHORT_RETURN_IF_ERROR(ExpectEnd());
  return bytes;
}

absl::Status GzipFile::ExpectEnd() {
  uint8_t extra = 0;
  const int n = gzread(file_.get(), &extra, 1);
  if (n > 0) return Broken("has bytes behind its last sample");
  // A stream that ends in its middle is told by the error alone.
  int code = Z_OK;
  gzerror(file_.get(), &code);
  if (n < 0 || code != Z_OK || !gzeof(file_.get())) return Broken("is damaged");
  return absl::OkStatus();
}

absl::Status GzipFile::Broken(absl::string_view what) const {
  int code = Z_OK;
  const char* text = gzerror(file_.get(), &code);
  return absl::DataLossError(absl::StrCat(
      path_, " ", what, code == Z_OK ? "" : absl::StrCat(" (", text, ")")));
}

}  // namespace cohort::trainer

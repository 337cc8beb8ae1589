#include "examples/gpt/text.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::gpt {
namespace {

constexpr size_t kBytesMax = size_t{1} << 30;
constexpr unsigned kChunk = 1 << 20;

struct Close {
  void operator()(gzFile_s* file) const { gzclose(file); }
};

absl::Status Damaged(const std::string& path, gzFile file) {
  int code = Z_OK;
  const char* text = gzerror(file, &code);
  if (code == Z_ERRNO) {
    return ErrnoStatus(errno == 0 ? EIO : errno, absl::StrCat("read ", path));
  }
  return absl::DataLossError(absl::StrCat(path, " is damaged (", text, ")"));
}

absl::StatusOr<std::string> ReadWhole(const std::string& path) {
  errno = 0;
  const std::unique_ptr<gzFile_s, Close> file(gzopen(path.c_str(), "rb"));
  if (file == nullptr) {
    return ErrnoStatus(errno == 0 ? ENOMEM : errno,
                       absl::StrCat("open ", path));
  }
  std::string bytes;
  for (;;) {
    const size_t had = bytes.size();
    if (had > kBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " is longer than ", kBytesMax, " bytes"));
    }
    bytes.resize(had + kChunk);
    errno = 0;
    const int n = gzread(file.get(), &bytes[had], kChunk);
    if (n < 0) return Damaged(path, file.get());
    bytes.resize(had + static_cast<size_t>(n));
    if (n == 0) break;
  }
  // What ends in the middle of gzip's stream is told here only.
  int code = Z_OK;
  gzerror(file.get(), &code);
  if (code != Z_OK) return Damaged(path, file.get());
  return bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Text>> Text::Open(const std::string& path,
                                                 int64_t context) {
  COHORT_ASSIGN_OR_RETURN(std::string bytes, ReadWhole(path));
  auto text = Of(std::move(bytes), context);
  if (!text.ok()) return Annotate(text.status(), path);
  return text;
}

absl::StatusOr<std::unique_ptr<Text>> Text::Of(std::string bytes,
                                               int64_t context) {
  std::unique_ptr<Text> text(new Text(std::move(bytes), context));
  if (text->windows(Part::kTrain) < 1 || text->windows(Part::kValidation) < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a text of ", text->size(),
                     " bytes is too short: its last tenth must hold ", context,
                     " bytes and one more (--context)"));
  }
  return text;
}

Text::Text(std::string bytes, int64_t context)
    : bytes_(std::move(bytes)),
      context_(context),
      split_(static_cast<int64_t>(bytes_.size()) -
             static_cast<int64_t>(bytes_.size() / 10)) {}

int64_t Text::windows(Part part) const {
  const int64_t bytes = part == Part::kTrain ? split_ : size() - split_;
  return std::max<int64_t>(bytes - 1, 0) / context_;
}

std::vector<uint8_t> Text::Read(Part part, std::span<const int64_t> ids) const {
  const int64_t start = part == Part::kTrain ? 0 : split_;
  std::vector<uint8_t> rows;
  rows.reserve(ids.size() * static_cast<size_t>(context_ + 1));
  for (const int64_t id : ids) {
    COHORT_CHECK(id >= 0 && id < windows(part)) << "no window " << id;
    const auto begin = bytes_.begin() + start + id * context_;
    rows.insert(rows.end(), begin, begin + context_ + 1);
  }
  return rows;
}

}  // namespace cohort::gpt

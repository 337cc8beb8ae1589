#include "trainer/token_dataset.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/unique_fd.h"
#include "trainer/gzip_file.h"

namespace cohort::trainer {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t kGzipMax = size_t{1} << 30;
// Below it a float holds every whole number.
constexpr uint32_t kTokenEnd = 1 << 24;
constexpr std::array<unsigned char, 3> kGzipMagic = {0x1f, 0x8b, 0x08};

absl::Status CheckOptions(const TokenOptions& options) {
  if (options.context < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a context of ", options.context, " tokens (it has one at least)"));
  }
  const int bytes = options.token_bytes;
  if (bytes != 1 && bytes != 2 && bytes != 4) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens of ", bytes, " bytes (1, 2 or 4)"));
  }
  if (!(options.from >= 0 && options.from < options.to && options.to <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the part from ", options.from, " to ", options.to,
                     " (numbers from 0 to 1, the first the smaller)"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenDataset>> TokenDataset::Open(
    const std::string& path, const TokenOptions& options) {
  COHORT_RETURN_IF_ERROR(CheckOptions(options));
  std::unique_ptr<TokenDataset> dataset(new TokenDataset(options));
  COHORT_RETURN_IF_ERROR(dataset->Map(path));
  // Tokens of several bytes may begin with any.
  if (options.token_bytes == 1 && dataset->bytes_.size() >= kGzipMagic.size() &&
      std::memcmp(dataset->bytes_.data(), kGzipMagic.data(),
                  kGzipMagic.size()) == 0) {
    COHORT_ASSIGN_OR_RETURN(GzipFile file, GzipFile::Open(path));
    COHORT_ASSIGN_OR_RETURN(dataset->held_, file.ReadRest(kGzipMax));
    dataset->bytes_ = dataset->held_;
  }
  COHORT_RETURN_IF_ERROR(Annotate(dataset->TakePart(), path));
  return dataset;
}

TokenDataset::~TokenDataset() {
  if (mapped_ == nullptr) return;
  // Of a gzip file `bytes_` is what was held instead.
  ::munmap(mapped_, mapped_bytes_);
}

absl::Status TokenDataset::Map(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return ErrnoStatus(errno, absl::StrCat("open ", path));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) {
    return ErrnoStatus(errno, absl::StrCat("stat ", path));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a file"));
  }
  mapped_bytes_ = static_cast<size_t>(info.st_size);
  if (mapped_bytes_ == 0) return absl::OkStatus();
  void* const memory =
      ::mmap(nullptr, mapped_bytes_, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) {
    return ErrnoStatus(errno, absl::StrCat("map ", path));
  }
  mapped_ = memory;
  bytes_ = {static_cast<const char*>(memory), mapped_bytes_};
  return absl::OkStatus();
}

absl::Status TokenDataset::TakePart() {
  const auto width = static_cast<size_t>(options_.token_bytes);
  if (bytes_.size() % width != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        bytes_.size(), " bytes are not a whole number of tokens of ", width,
        " bytes"));
  }
  const auto all = static_cast<double>(bytes_.size() / width);
  first_ = static_cast<int64_t>(std::floor(all * options_.from));
  count_ = static_cast<int64_t>(std::floor(all * options_.to)) - first_;
  if (size() >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("its part from ", options_.from, " to ", options_.to,
                   " has ", count_, " tokens: too short for one window of ",
                   options_.context, " and one more (take a smaller context)"));
}

int64_t TokenDataset::size() const {
  return std::max<int64_t>(count_ - 1, 0) / options_.context;
}

uint32_t TokenDataset::Token(int64_t place) const {
  const auto width = static_cast<size_t>(options_.token_bytes);
  uint32_t token = 0;
  std::memcpy(&token,
              bytes_.data() + static_cast<size_t>(first_ + place) * width,
              width);
  return token;
}

absl::Status TokenDataset::Read(std::span<const int64_t> ids,
                                std::span<float> inputs,
                                std::span<int64_t> labels) const {
  size_t next = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= size()) {
      return absl::OutOfRangeError(
          absl::StrCat("sample ", ids[i], " of ", size()));
    }
    const int64_t begin = ids[i] * options_.context;
    uint32_t token = 0;
    for (int64_t place = begin; place <= begin + options_.context; ++place) {
      token = Token(place);
      if (token >= kTokenEnd) {
        return absl::DataLossError(absl::StrCat(
            "token ", first_ + place, " is ", token, ", and they end below ",
            kTokenEnd, " (is token_bytes right?)"));
      }
      inputs[next++] = static_cast<float>(token);
    }
    labels[i] = token;
  }
  return absl::OkStatus();
}

}  // namespace cohort::trainer

#include "worker/tar_reader.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "common/link_target.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::worker {
namespace {

constexpr size_t kBlockBytes = 512;
// Linux' PATH_MAX: a longer name could not be made.
constexpr int64_t kNameBytesMax = 4096;

using Block = std::array<char, kBlockBytes>;

// A field of a header, up to its first NUL.
absl::string_view Field(const Block& block, size_t offset, size_t size) {
  const absl::string_view field(block.data() + offset, size);
  return field.substr(0, std::min(size, field.find('\0')));
}

// Octal digits, perhaps after spaces and before one; -1 for anything else.
int64_t Octal(absl::string_view field) {
  field = absl::StripPrefix(field, " ");
  field = field.substr(0, std::min(field.size(), field.find(' ')));
  if (field.empty()) return -1;
  int64_t value = 0;
  for (const char c : field) {
    if (c < '0' || c > '7') return -1;
    value = value * 8 + (c - '0');
  }
  return value;
}

// The checksum counts its own field as spaces.
bool ChecksumHolds(const Block& block) {
  int64_t sum = 0;
  for (size_t i = 0; i < kBlockBytes; ++i) {
    const bool in_field = i >= 148 && i < 156;
    sum += in_field ? ' ' : static_cast<unsigned char>(block[i]);
  }
  return Octal(Field(block, 148, 8)) == sum;
}

std::string NameOf(const Block& block) {
  const absl::string_view prefix = Field(block, 345, 155);
  const absl::string_view name = Field(block, 0, 100);
  return prefix.empty() ? std::string(name) : absl::StrCat(prefix, "/", name);
}

// Why an entry of this type is refused; empty when it is not.
absl::string_view TypeProblem(char type) {
  switch (type) {
    case '0':
    case '\0':
    case '2':
    case '5':
      return "";
    case '1':
      return "is a hard link; packages hold copies";
    default:
      return "is neither a plain file, a directory nor a symbolic link";
  }
}

// TR-1.
absl::string_view NameProblem(absl::string_view name) {
  if (name.empty()) return "has no name";
  if (name[0] == '/') return "is absolute";
  for (const absl::string_view part : absl::StrSplit(name, '/')) {
    if (part == "..") return "leads outside of the package";
  }
  return "";
}

// How many directories `name` lies below the top.
size_t DepthOf(absl::string_view name) {
  size_t parts = 0;
  for (const absl::string_view part : absl::StrSplit(name, '/')) {
    if (!part.empty() && part != ".") ++parts;
  }
  return parts > 0 ? parts - 1 : 0;
}

// Why what comes with an entry of this type does not fit it.
absl::string_view ContentProblem(const TarReader::Entry& entry, char type) {
  if (type == '2' && !StaysInTree(entry.link, DepthOf(entry.name))) {
    return "is a link that leads outside of the package";
  }
  if (type != '2' && !entry.link.empty())
    return "has a target but is not a link";
  if ((type == '2' || type == '5') && entry.size_bytes != 0) {
    return "has content but is not a plain file";
  }
  return "";
}

}  // namespace

TarReader::TarReader(UniqueFd file, std::string path)
    : file_(std::move(file)), path_(std::move(path)) {}

absl::Status TarReader::Invalid(absl::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat("package ", path_, ": ", what));
}

absl::Status TarReader::Refuse(absl::string_view name,
                               absl::string_view why) const {
  return Invalid(absl::StrCat("entry \"", name, "\" ", why));
}

absl::Status TarReader::ReadAll(char* buffer, size_t size) {
  while (size > 0) {
    const ssize_t n = read(file_.get(), buffer, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("read ", path_));
    if (n == 0) return Invalid("is not a whole tar archive");
    buffer += n;
    size -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status TarReader::SkipToNextHeader() {
  // Beyond the end of one that was cut there is no header either.
  if (lseek(file_.get(), left_ + padding_, SEEK_CUR) < 0) {
    return ErrnoStatus(errno, absl::StrCat("read ", path_));
  }
  left_ = 0;
  padding_ = 0;
  return absl::OkStatus();
}

absl::StatusOr<std::string> TarReader::ReadLongText(int64_t size_bytes) {
  if (size_bytes < 1 || size_bytes > kNameBytesMax) {
    return Invalid("has a name that is too long");
  }
  std::string name(static_cast<size_t>(size_bytes), '\0');
  COHORT_RETURN_IF_ERROR(ReadAll(name.data(), name.size()));
  left_ = 0;
  COHORT_RETURN_IF_ERROR(SkipToNextHeader());
  name.pop_back();  // Its NUL.
  if (name.find('\0') != std::string::npos)
    return Invalid("has a NUL in a name");
  return name;
}

absl::StatusOr<std::optional<TarReader::Entry>> TarReader::Next() {
  std::optional<std::string> long_name;
  std::optional<std::string> long_link;
  for (;;) {
    COHORT_RETURN_IF_ERROR(SkipToNextHeader());
    Block block;
    COHORT_RETURN_IF_ERROR(ReadAll(block.data(), block.size()));
    if (std::all_of(block.begin(), block.end(),
                    [](char c) { return c == 0; })) {
      if (long_name || long_link) return Invalid("ends after a name");
      return std::nullopt;
    }
    if (Field(block, 257, 5) != "ustar" || !ChecksumHolds(block)) {
      return Invalid("is not a tar archive, or damaged");
    }
    const int64_t size = Octal(Field(block, 124, 12));
    const int64_t mode = Octal(Field(block, 100, 8));
    if (size < 0 || mode < 0) return Invalid("has a damaged header");
    left_ = size;
    padding_ = static_cast<int64_t>(kBlockBytes) - 1 -
               (size + static_cast<int64_t>(kBlockBytes) - 1) %
                   static_cast<int64_t>(kBlockBytes);
    const char type = block[156];
    if (type == 'L' && !long_name) {
      COHORT_ASSIGN_OR_RETURN(long_name, ReadLongText(size));
      continue;
    }
    if (type == 'K' && !long_link) {
      COHORT_ASSIGN_OR_RETURN(long_link, ReadLongText(size));
      continue;
    }
    Entry entry = {.name = long_name ? *std::move(long_name) : NameOf(block),
                   .is_directory = type == '5',
                   .is_executable = (mode & 0100) != 0,
                   .size_bytes = size,
                   .link = long_link ? *std::move(long_link)
                                     : std::string(Field(block, 157, 100))};
    for (const absl::string_view problem :
         {NameProblem(entry.name), TypeProblem(type),
          ContentProblem(entry, type)}) {
      if (!problem.empty()) return Refuse(entry.name, problem);
    }
    return entry;
  }
}

absl::StatusOr<size_t> TarReader::Read(char* buffer, size_t size) {
  const size_t take =
      std::min(size, static_cast<size_t>(std::max<int64_t>(left_, 0)));
  COHORT_RETURN_IF_ERROR(ReadAll(buffer, take));
  left_ -= static_cast<int64_t>(take);
  return take;
}

}  // namespace cohort::worker

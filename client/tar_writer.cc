#include "client/tar_writer.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/file.h"
#include "common/size_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::client {
namespace {

constexpr size_t kBlockBytes = 512;
constexpr size_t kBufferBytes = 1 << 20;
constexpr size_t kNameBytes = 100;
constexpr size_t kPrefixBytes = 155;

// POSIX ustar, byte by byte.
struct Header {
  std::array<char, kNameBytes> name;
  std::array<char, 8> mode;
  std::array<char, 8> uid;
  std::array<char, 8> gid;
  std::array<char, 12> size;
  std::array<char, 12> mtime;
  std::array<char, 8> checksum;
  char type;
  std::array<char, 100> link_name;
  std::array<char, 6> magic;
  std::array<char, 2> version;
  std::array<char, 32> user;
  std::array<char, 32> group;
  std::array<char, 8> device_major;
  std::array<char, 8> device_minor;
  std::array<char, kPrefixBytes> prefix;
  std::array<char, 12> padding;
};
static_assert(sizeof(Header) == kBlockBytes);

template <size_t n>
void Put(std::array<char, n>& field, absl::string_view text) {
  std::memcpy(field.data(), text.data(), std::min(n, text.size()));
}

template <size_t n>
void PutOctal(std::array<char, n>& field, int64_t value) {
  for (size_t i = n - 1; i-- > 0; value /= 8) {
    field[i] = static_cast<char>('0' + value % 8);
  }
}

// Where to cut a name that is too long for its field: at a "/" with at most 155
// bytes before and 100 after it.  npos when there is none.
size_t PrefixLength(absl::string_view name) {
  if (name.size() <= kNameBytes) return 0;
  const size_t from = name.size() - kNameBytes - 1;
  const size_t cut = name.find('/', from);
  if (cut == absl::string_view::npos || cut > kPrefixBytes || cut == 0 ||
      cut + 1 == name.size()) {
    return absl::string_view::npos;
  }
  return cut;
}

}  // namespace

absl::Status CheckArchiveSize(int64_t size_bytes, int64_t size_bytes_max) {
  if (size_bytes <= size_bytes_max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the package is over ", SizeToText(size_bytes_max),
      ": leave some out with --exclude, or put large data on storage that all "
      "workers see and pass its path"));
}

TarWriter::TarWriter(UniqueFd file, int64_t size_bytes_max)
    : file_(std::move(file)), size_bytes_max_(size_bytes_max) {}

absl::Status TarWriter::AddDirectory(const std::string& name) {
  return AddHeader(name + "/", '5', 0, 0755);
}

absl::Status TarWriter::AddFile(const std::string& name, int64_t size_bytes,
                                bool is_executable) {
  return AddHeader(name, '0', size_bytes, is_executable ? 0755 : 0644);
}

absl::Status TarWriter::AddBytes(absl::string_view bytes) {
  return Write(bytes);
}

absl::Status TarWriter::AddLink(const std::string& name,
                                const std::string& target) {
  if (target.size() > kNameBytes) {
    COHORT_RETURN_IF_ERROR(AddLong('K', target));
  }
  return AddHeader(name, '2', 0, 0777, target);
}

absl::Status TarWriter::EndFile() { return Pad(); }

absl::Status TarWriter::Finish() {
  COHORT_RETURN_IF_ERROR(Write(std::string(2 * kBlockBytes, '\0')));
  return Flush();
}

absl::Status TarWriter::AddHeader(const std::string& name, char type,
                                  int64_t size_bytes, int mode,
                                  absl::string_view link) {
  const size_t prefix = PrefixLength(name);
  absl::string_view last = name;
  if (prefix == absl::string_view::npos) {
    COHORT_RETURN_IF_ERROR(AddLong('L', name));
  } else if (prefix > 0) {
    last.remove_prefix(prefix + 1);
  }
  Header header = {};
  Put(header.name, last);
  if (prefix != absl::string_view::npos) {
    Put(header.prefix, absl::string_view(name).substr(0, prefix));
  }
  PutOctal(header.mode, mode);
  PutOctal(header.uid, 0);
  PutOctal(header.gid, 0);
  PutOctal(header.size, size_bytes);
  PutOctal(header.mtime, 0);
  header.type = type;
  Put(header.link_name, link);
  Put(header.magic, absl::string_view("ustar\0", 6));
  Put(header.version, "00");
  header.checksum.fill(' ');
  std::array<char, kBlockBytes> block;
  std::memcpy(block.data(), &header, kBlockBytes);
  int64_t sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  Put(header.checksum, absl::StrFormat("%06o", sum) + std::string("\0 ", 2));
  std::memcpy(block.data(), &header, kBlockBytes);
  return Write(absl::string_view(block.data(), block.size()));
}

absl::Status TarWriter::AddLong(char type, const std::string& text) {
  const std::string with_nul = text + '\0';
  COHORT_RETURN_IF_ERROR(AddHeader("././@LongLink", type,
                                   static_cast<int64_t>(with_nul.size()), 0));
  COHORT_RETURN_IF_ERROR(Write(with_nul));
  return Pad();
}

absl::Status TarWriter::Pad() {
  const size_t over = static_cast<size_t>(size_bytes_) % kBlockBytes;
  if (over == 0) return absl::OkStatus();
  return Write(std::string(kBlockBytes - over, '\0'));
}

absl::Status TarWriter::Write(absl::string_view bytes) {
  size_bytes_ += static_cast<int64_t>(bytes.size());
  COHORT_RETURN_IF_ERROR(CheckArchiveSize(size_bytes_, size_bytes_max_));
  hash_.Update(bytes);
  buffer_.append(bytes.data(), bytes.size());
  return buffer_.size() < kBufferBytes ? absl::OkStatus() : Flush();
}

absl::Status TarWriter::Flush() {
  COHORT_RETURN_IF_ERROR(
      WriteAll(file_.get(), "the package's temporary file", buffer_));
  buffer_.clear();
  return absl::OkStatus();
}

}  // namespace cohort::client

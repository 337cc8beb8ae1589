#include "worker/keeper/record.h"

#include <array>
#include <charconv>
#include <cstdio>

namespace cohort::keeper {
namespace {

constexpr char kMagic[] = "cohort-keeper ";
constexpr size_t kTrailerBytes = sizeof("crc32 01234567\n") - 1;

std::string Trailer(const char* data, size_t size) {
  char line[kTrailerBytes + 1];
  std::snprintf(line, sizeof(line), "crc32 %08x\n",
                static_cast<unsigned>(Crc32(data, size)));
  return line;
}

std::string FirstLine(const std::string& kind, int version) {
  return kMagic + kind + " " + std::to_string(version) + "\n";
}

}  // namespace

RecordWriter::RecordWriter(const std::string& kind, int version)
    : bytes_(FirstLine(kind, version)) {}

RecordWriter& RecordWriter::Add(const std::string& key,
                                const std::string& value) {
  bytes_ += key + " " + std::to_string(value.size()) + ":";
  bytes_ += value;
  bytes_ += '\n';
  return *this;
}

RecordWriter& RecordWriter::Add(const std::string& key, int64_t value) {
  return Add(key, std::to_string(value));
}

std::string RecordWriter::Finish() {
  bytes_ += Trailer(bytes_.data(), bytes_.size());
  return std::move(bytes_);
}

RecordReader::RecordReader(const std::string& bytes, const std::string& kind,
                           int version) {
  if (bytes.size() < kTrailerBytes) {
    Fail("damaged: too short (" + std::to_string(bytes.size()) + " bytes)");
    return;
  }
  const size_t body = bytes.size() - kTrailerBytes;
  if (bytes.compare(body, kTrailerBytes, Trailer(bytes.data(), body)) != 0) {
    Fail("damaged: the checksum in its last line is missing or wrong");
    return;
  }
  const std::string first = FirstLine(kind, version);
  if (bytes.compare(0, first.size(), first) != 0) {
    Fail("its first line is \"" + bytes.substr(0, bytes.find('\n')) +
         "\", this build reads \"" + first.substr(0, first.size() - 1) + "\"");
    return;
  }
  ParseFields(bytes, first.size(), body);
}

void RecordReader::ParseFields(const std::string& bytes, size_t begin,
                               size_t end) {
  size_t at = begin;
  while (at < end) {
    const size_t blank = bytes.find(' ', at);
    const size_t colon = bytes.find(':', at);
    if (blank >= end || colon >= end || colon < blank) {
      return Fail("malformed field at byte " + std::to_string(at));
    }
    const std::optional<int64_t> size =
        ParseDecimal(bytes.substr(blank + 1, colon - blank - 1));
    const size_t value = colon + 1;
    if (!size || *size < 0 || static_cast<uint64_t>(*size) >= end - value ||
        bytes[value + static_cast<size_t>(*size)] != '\n') {
      return Fail("malformed length at byte " + std::to_string(blank + 1));
    }
    const size_t length = static_cast<size_t>(*size);
    fields_.push_back(
        {bytes.substr(at, blank - at), bytes.substr(value, length)});
    at = value + length + 1;
  }
}

std::string RecordReader::Text(const std::string& key) {
  if (!NextIs(key)) {
    Fail("field \"" + key + "\" is missing where it belongs");
    return "";
  }
  return fields_[next_++].value;
}

int64_t RecordReader::Number(const std::string& key, int64_t min, int64_t max) {
  const std::string text = Text(key);
  if (!ok()) return min;
  const std::optional<int64_t> number = ParseDecimal(text);
  if (!number || *number < min || *number > max) {
    Fail("field \"" + key + "\" is not a number from " + std::to_string(min) +
         " to " + std::to_string(max));
    return min;
  }
  return *number;
}

bool RecordReader::NextIs(const std::string& key) const {
  return ok() && next_ < fields_.size() && fields_[next_].key == key;
}

bool RecordReader::AtEnd() {
  if (ok() && next_ < fields_.size()) {
    Fail("unexpected field \"" + fields_[next_].key + "\"");
  }
  return ok();
}

void RecordReader::Fail(const std::string& error) {
  if (error_.empty()) error_ = error;
}

std::string RecordKind(const std::string& bytes) {
  const size_t begin = sizeof(kMagic) - 1;
  if (bytes.compare(0, begin, kMagic) != 0) return "";
  const size_t end = bytes.find(' ', begin);
  return end == std::string::npos ? "" : bytes.substr(begin, end - begin);
}

uint32_t Crc32(const char* data, size_t size) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) {
        c = (c & 1) != 0 ? 0xedb88320u ^ (c >> 1) : c >> 1;
      }
      t[i] = c;
    }
    return t;
  }();
  uint32_t crc = 0xffffffffu;
  for (size_t i = 0; i < size; ++i) {
    crc =
        table[(crc ^ static_cast<unsigned char>(data[i])) & 0xff] ^ (crc >> 8);
  }
  return crc ^ 0xffffffffu;
}

std::optional<int64_t> ParseDecimal(const std::string& text) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || std::to_string(number) != text) {
    return std::nullopt;
  }
  return number;
}

}  // namespace cohort::keeper

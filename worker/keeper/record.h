#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// The one format of everything that passes between daemon and keeper: files and
// packets (docs/design/0002-keeper.md).  std only.
//
//   cohort-keeper <kind> <version>\n
//   <key> <length>:<value>\n        any number; a value may hold any byte
//   crc32 <8 hex digits>\n          of all bytes before this line
namespace cohort::keeper {

// Builds a record.  Thread-compatible; use once.
class RecordWriter {
 public:
  RecordWriter(const std::string& kind, int version);

  RecordWriter& Add(const std::string& key, const std::string& value);
  RecordWriter& Add(const std::string& key, int64_t value);

  std::string Finish();

 private:
  std::string bytes_;
};

// Reads a record field by field in the order that its kind fixes.
//
// A mistake sticks: every later read gives nothing, and error() says what the
// first was, so that a parser reads all its fields and asks once.
// Thread-compatible.
class RecordReader {
 public:
  // Checks frame, kind, version and checksum of `bytes`.
  RecordReader(const std::string& bytes, const std::string& kind, int version);

  // The next field, which has to be `key`.
  std::string Text(const std::string& key);
  // The same as a decimal number within [min, max], written as we write it.
  int64_t Number(const std::string& key, int64_t min, int64_t max);
  // Whether the next field is `key`.
  bool NextIs(const std::string& key) const;
  // To be called last: an error unless every field was read.
  bool AtEnd();

  bool ok() const { return error_.empty(); }
  const std::string& error() const { return error_; }
  void Fail(const std::string& error);

 private:
  struct Field {
    std::string key;
    std::string value;
  };

  void ParseFields(const std::string& bytes, size_t begin, size_t end);

  std::vector<Field> fields_;
  size_t next_ = 0;
  std::string error_;
};

// The kind named in the first line; empty when there is none.
std::string RecordKind(const std::string& bytes);

// CRC-32 as in zlib and PNG.
uint32_t Crc32(const char* data, size_t size);

// `text` as a decimal number exactly as std::to_string writes it; nullopt for
// anything else (signs, leading zeros, blanks, overflow).
std::optional<int64_t> ParseDecimal(const std::string& text);

}  // namespace cohort::keeper

#include "client/cli/tensorboard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"

namespace cohort::cli {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::StringOutputStream;

// Castagnoli's polynomial, reversed.
constexpr uint32_t kCrc32c = 0x82f63b78;

uint32_t MaskedCrc(absl::string_view bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> made{};
    for (uint32_t i = 0; i < made.size(); ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) {
        value = (value >> 1) ^ ((value & 1) != 0 ? kCrc32c : 0);
      }
      made[i] = value;
    }
    return made;
  }();
  uint32_t crc = ~uint32_t{0};
  for (const char c : bytes) {
    crc = table[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ (crc >> 8);
  }
  // TFRecord's mask.
  return std::rotr(~crc, 15) + 0xa282ead8;
}

template <typename T>
std::string LittleEndian(T value) {
  static_assert(std::endian::native == std::endian::little);
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

void AppendRecord(std::string& file, const std::string& event) {
  const std::string length = LittleEndian(uint64_t{event.size()});
  file += length + LittleEndian(MaskedCrc(length)) + event +
          LittleEndian(MaskedCrc(event));
}

template <typename Write>
std::string Message(Write write) {
  std::string bytes;
  StringOutputStream stream(&bytes);
  CodedOutputStream out(&stream);
  write(&out);
  out.Trim();
  return bytes;
}

}  // namespace

std::string TensorBoardEvents(const std::vector<MetricRow>& rows,
                              absl::Time begin, absl::Duration ran) {
  const double first = absl::ToDoubleSeconds(begin - absl::UnixEpoch());
  const double each = absl::ToDoubleSeconds(ran) /
                      static_cast<double>(std::max<size_t>(rows.size(), 1));
  double wall = first;
  std::string file;
  AppendRecord(file, Message([&](CodedOutputStream* out) {
                 WireFormatLite::WriteDouble(1, wall, out);
                 WireFormatLite::WriteString(3, "brain.Event:2", out);
               }));
  for (const MetricRow& row : rows) {
    wall += each;
    const std::string summary = Message([&](CodedOutputStream* out) {
      for (const auto& [name, value] : row.values) {
        WireFormatLite::WriteBytes(
            1,
            Message([&, &name = name,
                     &value = value](CodedOutputStream* scalar) {
              WireFormatLite::WriteString(1, name, scalar);
              WireFormatLite::WriteFloat(2, static_cast<float>(value), scalar);
            }),
            out);
      }
    });
    AppendRecord(file, Message([&](CodedOutputStream* out) {
                   WireFormatLite::WriteDouble(1, wall, out);
                   WireFormatLite::WriteInt64(2, row.step, out);
                   WireFormatLite::WriteBytes(5, summary, out);
                 }));
  }
  return file;
}

}  // namespace cohort::cli

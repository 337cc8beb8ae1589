#include "trainer/comm/packed_addresses.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/status/status.h"

namespace cohort::trainer {
namespace {

// The size of a record and of all; then runs: how many bytes are as in the
// record before, how many differ, and those.
struct Header {
  uint32_t record = 0;
  uint32_t total = 0;
};
constexpr size_t kRunMax = 255;
constexpr uint32_t kTotalMax = 1 << 24;

char Before(const std::vector<char>& data, size_t at, size_t record) {
  return at < record ? '\0' : data[at - record];
}

}  // namespace

std::string PackAddresses(const std::vector<char>& data, size_t count) {
  Header header;
  header.total = static_cast<uint32_t>(data.size());
  header.record = count > 0 && data.size() % count == 0
                      ? static_cast<uint32_t>(data.size() / count)
                      : header.total;
  std::string packed(reinterpret_cast<const char*>(&header), sizeof(header));
  const auto run_from = [&](size_t begin, bool same) {
    size_t end = begin;
    while (end < data.size() && end - begin < kRunMax &&
           (data[end] == Before(data, end, header.record)) == same) {
      ++end;
    }
    return end - begin;
  };
  for (size_t at = 0; at < data.size();) {
    const size_t same = run_from(at, true);
    const size_t other = run_from(at + same, false);
    packed.push_back(static_cast<char>(same));
    packed.push_back(static_cast<char>(other));
    packed.append(data.data() + at + same, other);
    at += same + other;
  }
  return packed;
}

absl::StatusOr<std::vector<char>> UnpackAddresses(absl::string_view packed) {
  const absl::Status malformed =
      absl::InvalidArgumentError("malformed addresses of a peer");
  Header header;
  if (packed.size() < sizeof(header)) return malformed;
  std::memcpy(&header, packed.data(), sizeof(header));
  packed.remove_prefix(sizeof(header));
  if (header.total > kTotalMax) return malformed;
  std::vector<char> data;
  data.reserve(header.total);
  while (packed.size() >= 2) {
    const auto same = static_cast<uint8_t>(packed[0]);
    const auto other = static_cast<uint8_t>(packed[1]);
    packed.remove_prefix(2);
    if (other > packed.size()) return malformed;
    for (size_t i = 0; i < same; ++i) {
      data.push_back(Before(data, data.size(), header.record));
    }
    data.insert(data.end(), packed.begin(), packed.begin() + other);
    packed.remove_prefix(other);
    if (data.size() > header.total) return malformed;
  }
  if (!packed.empty() || data.size() != header.total) return malformed;
  return data;
}

}  // namespace cohort::trainer

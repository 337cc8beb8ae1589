// A checkpoint's file: refused, or every view lies within the bytes.

#include <array>
#include <cstring>

#include "common/check.h"
#include "tests/fuzz/fuzz.h"
#include "trainer/safetensors.h"

namespace trainer = cohort::trainer;

std::vector<std::string> FuzzSeeds() {
  const std::array<float, 6> values = {1, 2, 3, 4, 5, 6};
  std::string file;
  const absl::Status written = trainer::WriteSafetensors(
      {{.name = "fc1.weight",
        .shape = {2, 3},
        .bytes = std::as_bytes(std::span(values))},
       {.name = "empty", .shape = {0}}},
      {{"step", "7"}}, [&file](std::span<const std::byte> bytes) {
        file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        return absl::OkStatus();
      });
  COHORT_CHECK(written.ok());
  return {file};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::byte> bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  const auto file = trainer::SafetensorsFile::Parse(std::move(bytes));
  if (!file.ok()) return 0;
  int64_t sum = 0;
  for (const trainer::TensorView& tensor : file->tensors()) {
    for (const std::byte b : tensor.bytes) sum += std::to_integer<int>(b);
    COHORT_CHECK(file->Find(tensor.name).ok());
  }
  COHORT_CHECK(sum >= 0);
  return 0;
}

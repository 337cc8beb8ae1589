#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// The safetensors file format: 8 bytes little-endian header length, a JSON
// header {"name": {"dtype", "shape", "data_offsets"}, "__metadata__": {...}},
// the bytes of all tensors without a gap.  Every library that reads the format
// reads ours.
namespace cohort::trainer {

enum class TensorType { kF32, kF64, kI64, kI32, kU8, kF16, kBF16, kBool };

// "F32", ... as the header spells it.
absl::string_view TensorTypeName(TensorType type);
int64_t TensorTypeSize(TensorType type);

// A named tensor, row-major, little-endian; the bytes are borrowed.
struct TensorView {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

using TensorMetadata = std::map<std::string, std::string>;

// Takes the next bytes of a file.
using ByteSink = absl::FunctionRef<absl::Status(std::span<const std::byte>)>;

// Writes `tensors` as one file into `sink`.  The bytes depend on names, types,
// shapes, values and metadata alone, not on the order given: wide types come
// first, which keeps each tensor aligned to its element, then names in order.
//
// InvalidArgument for a name that is empty, repeated or "__metadata__", a
// negative dimension, or bytes that are not of the size the shape says (nothing
// is written); else the sink's error.
absl::Status WriteSafetensors(std::vector<TensorView> tensors,
                              const TensorMetadata& metadata, ByteSink sink);

// The bytes and the tensors of a file that was read, or of several that belong
// together.  The views live as long as it does.
class SafetensorsFile {
 public:
  // Trusts nothing in `bytes`: every length, offset, name and number is checked
  // before it is used, tensors must cover the data exactly, without overlap or
  // gap.  DataLoss says what is wrong and where.
  static absl::StatusOr<SafetensorsFile> Parse(std::vector<std::byte> bytes);

  SafetensorsFile(SafetensorsFile&&) = default;
  SafetensorsFile& operator=(SafetensorsFile&&) = default;

  // Takes over the tensors of another one, behind its own.  DataLoss when both
  // have one of the same name; unchanged then.
  absl::Status Join(SafetensorsFile other);

  const std::vector<TensorView>& tensors() const { return tensors_; }
  const TensorMetadata& metadata() const { return metadata_; }

  // NotFound names the tensor and some that are there.
  absl::StatusOr<TensorView> Find(absl::string_view name) const;

 private:
  SafetensorsFile() = default;

  std::vector<std::vector<std::byte>> bytes_;  // of each file
  std::vector<TensorView> tensors_;            // in file order
  TensorMetadata metadata_;
};

}  // namespace cohort::trainer

#include "trainer/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

#include "common/status_macros.h"

namespace cohort::trainer {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little,
              "tensors are written as they lie in memory");

constexpr char kMetadataKey[] = "__metadata__";
constexpr size_t kLengthBytes = 8;
// The reference implementation's bound.
constexpr uint64_t kHeaderBytesMax = 100'000'000;
constexpr size_t kDimensionsMax = 32;

struct TypeFacts {
  TensorType type;
  absl::string_view name;
  int64_t size;
};

const TypeFacts kTypes[] = {
    {TensorType::kF32, "F32", 4},   {TensorType::kF64, "F64", 8},
    {TensorType::kI64, "I64", 8},   {TensorType::kI32, "I32", 4},
    {TensorType::kU8, "U8", 1},     {TensorType::kF16, "F16", 2},
    {TensorType::kBF16, "BF16", 2}, {TensorType::kBool, "BOOL", 1},
};

const TypeFacts& Facts(TensorType type) {
  return kTypes[static_cast<size_t>(type)];
}

std::optional<TensorType> TypeByName(absl::string_view name) {
  for (const TypeFacts& facts : kTypes) {
    if (facts.name == name) return facts.type;
  }
  return std::nullopt;
}

// The bytes of a tensor, or nothing when they do not fit into 63 bits.
std::optional<int64_t> SizeOf(TensorType type,
                              const std::vector<int64_t>& shape) {
  int64_t size = Facts(type).size;
  for (const int64_t dimension : shape) {
    if (dimension < 0 || __builtin_mul_overflow(size, dimension, &size)) {
      return std::nullopt;
    }
  }
  return size;
}

absl::Status CheckTensor(const TensorView& tensor) {
  if (tensor.name.empty() || tensor.name == kMetadataKey) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tensor cannot be called \"", tensor.name, "\""));
  }
  const std::optional<int64_t> size = SizeOf(tensor.type, tensor.shape);
  if (!size || static_cast<uint64_t>(*size) != tensor.bytes.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", tensor.name, " of shape [", absl::StrJoin(tensor.shape, ","),
        "] ", TensorTypeName(tensor.type), " was given ", tensor.bytes.size(),
        " bytes"));
  }
  return absl::OkStatus();
}

std::string EncodeHeader(const std::vector<TensorView>& tensors,
                         const TensorMetadata& metadata) {
  json header = json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  uint64_t offset = 0;
  for (const TensorView& tensor : tensors) {
    const uint64_t end = offset + tensor.bytes.size();
    header[tensor.name] = {
        {"dtype", std::string(TensorTypeName(tensor.type))},
        {"shape", tensor.shape},
        {"data_offsets", {offset, end}},
    };
    offset = end;
  }
  // Names that are not UTF-8 must not throw; they are replaced.
  std::string text =
      header.dump(-1, ' ', false, json::error_handler_t::replace);
  // The data starts at a multiple of 8, so that wide types are aligned.
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("not a safetensors file: ", what));
}

// Parses the header; JSON that repeats a key would be read differently by
// different readers, so it is refused.
absl::StatusOr<json> ParseHeader(absl::string_view text) {
  std::vector<std::set<std::string>> keys;
  std::string repeated;
  bool deep = false;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > 4) deep = true;
    switch (event) {
      case json::parse_event_t::object_start:
        keys.emplace_back();
        break;
      case json::parse_event_t::object_end:
        if (!keys.empty()) keys.pop_back();
        break;
      case json::parse_event_t::key:
        if (!keys.empty() &&
            !keys.back().insert(parsed.get<std::string>()).second) {
          repeated = parsed.get<std::string>();
        }
        break;
      default:
        break;
    }
    return !deep;
  };
  json header = json::parse(text.begin(), text.end(), watch,
                            /*allow_exceptions=*/false);
  if (deep) return Damaged("its header is nested too deeply");
  if (header.is_discarded()) return Damaged("its header is not JSON");
  if (!header.is_object()) return Damaged("its header is not a JSON object");
  if (!repeated.empty()) {
    return Damaged(absl::StrCat("its header repeats \"", repeated, "\""));
  }
  return header;
}

// A whole number from 0 to 2^63 - 1.
std::optional<int64_t> Whole(const json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const uint64_t number = value.get<uint64_t>();
  if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  return static_cast<int64_t>(number);
}

std::optional<std::vector<int64_t>> Wholes(const json& values, size_t max) {
  if (!values.is_array() || values.size() > max) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const json& value : values) {
    const std::optional<int64_t> number = Whole(value);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

absl::StatusOr<TensorMetadata> ParseMetadata(const json& entry) {
  if (!entry.is_object()) return Damaged("__metadata__ is not an object");
  TensorMetadata metadata;
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) {
      return Damaged(absl::StrCat("__metadata__ \"", key, "\" is not text"));
    }
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

absl::StatusOr<TensorView> ParseTensor(const std::string& name,
                                       const json& entry,
                                       std::span<const std::byte> data) {
  const auto damaged = [&name](absl::string_view what) {
    return Damaged(absl::StrCat("tensor \"", name, "\" ", what));
  };
  if (name.empty()) return Damaged("a tensor has no name");
  if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") ||
      !entry.contains("shape") || !entry.contains("data_offsets")) {
    return damaged("does not have exactly dtype, shape and data_offsets");
  }
  TensorView tensor;
  tensor.name = name;
  if (!entry["dtype"].is_string())
    return damaged("has a dtype that is not text");
  const std::string dtype = entry["dtype"].get<std::string>();
  const std::optional<TensorType> type = TypeByName(dtype);
  if (!type) {
    return damaged(absl::StrCat("has dtype \"", dtype,
                                "\"; read are F32, F64, I64, I32 and U8"));
  }
  tensor.type = *type;
  auto shape = Wholes(entry["shape"], kDimensionsMax);
  if (!shape) return damaged("has a bad shape");
  tensor.shape = *std::move(shape);
  const auto offsets = Wholes(entry["data_offsets"], 2);
  if (!offsets || offsets->size() != 2) return damaged("has bad data_offsets");
  const int64_t begin = (*offsets)[0];
  const int64_t end = (*offsets)[1];
  if (begin > end || static_cast<uint64_t>(end) > data.size()) {
    return damaged(absl::StrCat("lies at ", begin, " to ", end, ", outside ",
                                data.size(), " bytes of data"));
  }
  const std::optional<int64_t> size = SizeOf(tensor.type, tensor.shape);
  if (!size || *size != end - begin) {
    return damaged(absl::StrCat("of shape [", absl::StrJoin(tensor.shape, ","),
                                "] has ", end - begin, " bytes"));
  }
  tensor.bytes = data.subspan(static_cast<size_t>(begin),
                              static_cast<size_t>(end - begin));
  return tensor;
}

// Tensors in file order must cover the data exactly.
absl::Status CheckCover(const std::vector<TensorView>& tensors,
                        std::span<const std::byte> data) {
  const std::byte* at = data.data();
  for (const TensorView& tensor : tensors) {
    if (tensor.bytes.data() != at) {
      return Damaged(absl::StrCat(
          "tensor \"", tensor.name, "\" ",
          tensor.bytes.data() < at ? "overlaps" : "leaves a gap behind",
          " the one before it"));
    }
    at += tensor.bytes.size();
  }
  if (at != data.data() + data.size()) {
    return Damaged("bytes at its end belong to no tensor");
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view TensorTypeName(TensorType type) { return Facts(type).name; }

int64_t TensorTypeSize(TensorType type) { return Facts(type).size; }

absl::Status WriteSafetensors(std::vector<TensorView> tensors,
                              const TensorMetadata& metadata, ByteSink sink) {
  std::set<absl::string_view> names;
  for (const TensorView& tensor : tensors) {
    COHORT_RETURN_IF_ERROR(CheckTensor(tensor));
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("two tensors are called ", tensor.name));
    }
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorView& a, const TensorView& b) {
              const int64_t wide_a = TensorTypeSize(a.type);
              const int64_t wide_b = TensorTypeSize(b.type);
              return wide_a != wide_b ? wide_a > wide_b : a.name < b.name;
            });
  const std::string header = EncodeHeader(tensors, metadata);
  if (header.size() > kHeaderBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a header of ", header.size(), " bytes is over the format's limit"));
  }
  const uint64_t length = header.size();
  COHORT_RETURN_IF_ERROR(sink(std::as_bytes(std::span(&length, 1))));
  COHORT_RETURN_IF_ERROR(
      sink(std::as_bytes(std::span(header.data(), header.size()))));
  for (const TensorView& tensor : tensors) {
    COHORT_RETURN_IF_ERROR(sink(tensor.bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Parse(
    std::vector<std::byte> bytes) {
  if (bytes.size() < kLengthBytes) {
    return Damaged(absl::StrCat("it has ", bytes.size(), " bytes"));
  }
  uint64_t header_size = 0;
  std::memcpy(&header_size, bytes.data(), kLengthBytes);
  if (header_size > kHeaderBytesMax ||
      header_size > bytes.size() - kLengthBytes) {
    return Damaged(absl::StrCat("it claims a header of ", header_size,
                                " bytes and has ", bytes.size(), " in all"));
  }
  SafetensorsFile file;
  file.bytes_.push_back(std::move(bytes));
  const std::span<const std::byte> all(file.bytes_.back());
  const auto text = all.subspan(kLengthBytes, static_cast<size_t>(header_size));
  const auto data = all.subspan(kLengthBytes + text.size());
  COHORT_ASSIGN_OR_RETURN(
      const json header,
      ParseHeader(absl::string_view(reinterpret_cast<const char*>(text.data()),
                                    text.size())));
  for (const auto& [name, entry] : header.items()) {
    if (name == kMetadataKey) {
      COHORT_ASSIGN_OR_RETURN(file.metadata_, ParseMetadata(entry));
      continue;
    }
    COHORT_ASSIGN_OR_RETURN(TensorView tensor, ParseTensor(name, entry, data));
    file.tensors_.push_back(std::move(tensor));
  }
  // Empty tensors first among those that begin at one place.
  std::stable_sort(file.tensors_.begin(), file.tensors_.end(),
                   [](const TensorView& a, const TensorView& b) {
                     return a.bytes.data() != b.bytes.data()
                                ? a.bytes.data() < b.bytes.data()
                                : a.bytes.size() < b.bytes.size();
                   });
  COHORT_RETURN_IF_ERROR(CheckCover(file.tensors_, data));
  return file;
}

absl::Status SafetensorsFile::Join(SafetensorsFile other) {
  std::set<absl::string_view> names;
  for (const TensorView& tensor : tensors_) names.insert(tensor.name);
  for (const TensorView& tensor : other.tensors_) {
    if (!names.contains(tensor.name)) continue;
    return Damaged(absl::StrCat("tensor \"", tensor.name,
                                "\" is in another file of the same part too"));
  }
  std::move(other.bytes_.begin(), other.bytes_.end(),
            std::back_inserter(bytes_));
  std::move(other.tensors_.begin(), other.tensors_.end(),
            std::back_inserter(tensors_));
  metadata_.merge(other.metadata_);
  return absl::OkStatus();
}

absl::StatusOr<TensorView> SafetensorsFile::Find(absl::string_view name) const {
  std::vector<absl::string_view> others;
  for (const TensorView& tensor : tensors_) {
    if (tensor.name == name) return tensor;
    if (others.size() < 8) others.push_back(tensor.name);
  }
  return absl::NotFoundError(absl::StrCat("no tensor ", name, " among ",
                                          tensors_.size(), ": ",
                                          absl::StrJoin(others, ", ")));
}

}  // namespace cohort::trainer

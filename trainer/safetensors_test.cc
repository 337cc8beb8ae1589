#include "trainer/safetensors.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/seed.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
TensorView View(const std::string& name, TensorType type,
                std::vector<int64_t> shape, const std::vector<T>& values) {
  return {name, type, std::move(shape), std::as_bytes(std::span(values))};
}

absl::StatusOr<std::vector<std::byte>> Encode(std::vector<TensorView> tensors,
                                              TensorMetadata metadata = {}) {
  std::vector<std::byte> bytes;
  absl::Status status = WriteSafetensors(
      std::move(tensors), metadata, [&](std::span<const std::byte> part) {
        bytes.insert(bytes.end(), part.begin(), part.end());
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  return bytes;
}

// A file with this header, whatever it says, and `data` zero bytes.
std::vector<std::byte> Forge(const std::string& header, size_t data) {
  const uint64_t length = header.size();
  std::vector<std::byte> bytes(8 + header.size() + data);
  std::memcpy(bytes.data(), &length, 8);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  return bytes;
}

absl::Status ParseStatus(std::vector<std::byte> bytes) {
  return SafetensorsFile::Parse(std::move(bytes)).status();
}

class SafetensorsTest : public ::testing::Test {
 protected:
  const std::vector<float> floats_{1.5f, -2.0f, 3.25f, 0.0f, 1e-30f, 7.0f};
  const std::vector<double> doubles_{3.141592653589793};
  const std::vector<int64_t> longs_{-1, int64_t{1} << 40};
  const std::vector<int32_t> ints_{5};
  const std::vector<uint8_t> small_{1, 2, 3};
  const std::vector<uint16_t> halves_{0x3C00, 0xC000};  // 1, -2

  std::vector<TensorView> All() const {
    return {View("w", TensorType::kF32, {2, 3}, floats_),
            View("scalar", TensorType::kF64, {}, doubles_),
            View("longs", TensorType::kI64, {2}, longs_),
            View("ints", TensorType::kI32, {1, 1}, ints_),
            View("bytes", TensorType::kU8, {3}, small_),
            View("halves", TensorType::kF16, {2}, halves_),
            View("empty", TensorType::kF32, {0, 4}, std::vector<float>{})};
  }
};

TEST_F(SafetensorsTest, ReadsBackWhatItWrote) {
  const auto bytes = Encode(All(), {{"format", "pt"}, {"quote", "a\"b\n"}});
  COHORT_ASSERT_OK(bytes);
  const auto file = SafetensorsFile::Parse(*bytes);
  COHORT_ASSERT_OK(file);
  EXPECT_EQ(file->tensors().size(), 7u);
  EXPECT_EQ(file->metadata().at("quote"), "a\"b\n");
  for (const TensorView& wrote : All()) {
    const auto read = file->Find(wrote.name);
    COHORT_ASSERT_OK(read);
    EXPECT_EQ(read->type, wrote.type);
    EXPECT_EQ(read->shape, wrote.shape);
    ASSERT_EQ(read->bytes.size(), wrote.bytes.size());
    EXPECT_TRUE(std::equal(read->bytes.begin(), read->bytes.end(),
                           wrote.bytes.begin()));
  }
  EXPECT_THAT(file->Find("nothing"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("nothing")));
}

TEST_F(SafetensorsTest, BytesDoNotDependOnTheOrderGiven) {
  std::vector<TensorView> backwards = All();
  std::reverse(backwards.begin(), backwards.end());
  EXPECT_EQ(*Encode(All(), {{"a", "b"}}), *Encode(backwards, {{"a", "b"}}));
}

TEST_F(SafetensorsTest, AlignsEachTensorToItsElement) {
  const auto bytes = Encode(All());
  uint64_t header = 0;
  std::memcpy(&header, bytes->data(), 8);
  EXPECT_EQ(header % 8, 0u);
  const auto file = SafetensorsFile::Parse(*bytes);
  const std::byte* data = file->tensors().front().bytes.data();
  for (const TensorView& tensor : file->tensors()) {
    EXPECT_EQ((tensor.bytes.data() - data) % TensorTypeSize(tensor.type), 0)
        << tensor.name;
  }
}

// On disk: these bytes are forever.
TEST(SafetensorsGoldenTest, WritesTheseBytes) {
  const std::vector<float> values{1.0f};
  const auto bytes = Encode({View("x", TensorType::kF32, {1}, values)});
  COHORT_ASSERT_OK(bytes);
  const std::string text(reinterpret_cast<const char*>(bytes->data()),
                         bytes->size());
  EXPECT_EQ(text,
            std::string("\x38\0\0\0\0\0\0\0", 8) +
                R"({"x":{"data_offsets":[0,4],"dtype":"F32","shape":[1]}})" +
                std::string("  \0\0\x80\x3f", 6));
}
TEST(SafetensorsGoldenTest, WritesTheseBytesOfSixteenBits) {
  const std::vector<uint16_t> half{0x3C00}, brain{0x3F80};  // 1.0
  const auto bytes = Encode({View("x", TensorType::kF16, {1}, half),
                             View("y", TensorType::kBF16, {1}, brain)});
  COHORT_ASSERT_OK(bytes);
  const std::string text(reinterpret_cast<const char*>(bytes->data()),
                         bytes->size());
  EXPECT_EQ(text,
            std::string("\x70\0\0\0\0\0\0\0", 8) +
                R"({"x":{"data_offsets":[0,2],"dtype":"F16","shape":[1]},)" +
                R"("y":{"data_offsets":[2,4],"dtype":"BF16","shape":[1]}})" +
                "    " + std::string("\0\x3c\x80\x3f", 4));
}

TEST_F(SafetensorsTest, RefusesToWriteWhatCannotBeRead) {
  const auto invalid = StatusIs(absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Encode({View("", TensorType::kF32, {6}, floats_)}), invalid);
  EXPECT_THAT(Encode({View("__metadata__", TensorType::kF32, {6}, floats_)}),
              invalid);
  EXPECT_THAT(Encode({View("w", TensorType::kF32, {5}, floats_)}), invalid);
  EXPECT_THAT(Encode({View("w", TensorType::kF32, {-6}, floats_)}), invalid);
  EXPECT_THAT(Encode({View("w", TensorType::kF32, {6}, floats_),
                      View("w", TensorType::kF32, {6}, floats_)}),
              invalid);
}

TEST(SafetensorsHostileTest, IsDataLossAndNeverACrash) {
  const std::vector<std::pair<std::string, size_t>> headers = {
      {"", 0},
      {"[]", 0},
      {"{", 0},
      {"nonsense", 0},
      {R"({"a":1})", 0},
      {R"({"a":{}})", 0},
      {R"({"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4},
      {R"({"a":{"dtype":"F8_E5M2","shape":[1],"data_offsets":[0,1]}})", 1},
      {R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})", 4},
      {R"({"a":{"dtype":"F32","shape":"1","data_offsets":[0,4]}})", 4},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4},
      {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 4},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4},
      // 2^62 * 4 wraps to 0
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904],)"
       R"("data_offsets":[0,0]}})",
       0},
      {R"({"a":{"dtype":"F32","shape":[1],)"
       R"("data_offsets":[0,18446744073709551616]}})",
       4},
      {R"({"a":{"dtype":"F32","shape":[1],)"
       R"("data_offsets":[18446744073709551612,18446744073709551615]}})",
       4},
      // overlap, gap, a key twice, metadata that is not text
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
       6},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
       4},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})",
       6},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       1},
      {R"({"__metadata__":{"a":1}})", 0},
      {R"({"__metadata__":[]})", 0},
      {R"({"a":[[[[[[1]]]]]]})", 0},
      {std::string(100000, '['), 0},
  };
  for (const auto& [header, data] : headers) {
    EXPECT_THAT(ParseStatus(Forge(header, data)),
                StatusIs(absl::StatusCode::kDataLoss))
        << header.substr(0, 200) << " with " << data << " bytes";
  }
  for (const size_t size : {0, 1, 7, 8}) {
    EXPECT_THAT(ParseStatus(std::vector<std::byte>(size)),
                StatusIs(absl::StatusCode::kDataLoss));
  }
  std::vector<std::byte> huge = Forge("{}", 0);
  huge[7] = std::byte{0x80};
  EXPECT_THAT(ParseStatus(huge), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(SafetensorsTest, SurvivesRandomDamage) {
  const std::vector<std::byte> good = *Encode(All(), {{"format", "pt"}});
  SeededRandom random(TestSeed());
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::byte> bad = good;
    const int flips = static_cast<int>(random.Below(4)) + 1;
    for (int i = 0; i < flips; ++i) {
      bad[random.Below(std::min<size_t>(bad.size(), 600))] =
          static_cast<std::byte>(random.Below(256));
    }
    if (random.Below(4) == 0) bad.resize(random.Below(bad.size()));
    const auto file = SafetensorsFile::Parse(std::move(bad));
    if (!file.ok()) continue;
    size_t total = 0;
    for (const TensorView& tensor : file->tensors()) {
      total += tensor.bytes.size();
    }
    EXPECT_LE(total, good.size());
  }
}

// What any reader of the format does, in numpy alone.
constexpr char kNumpyReader[] = R"(
import json, struct, sys
import numpy
with open(sys.argv[1], 'rb') as f:
    size, = struct.unpack('<Q', f.read(8))
    header = json.loads(f.read(size))
    data = f.read()
kinds = {'F32': '<f4', 'F64': '<f8', 'I64': '<i8', 'I32': '<i4', 'U8': 'u1',
         'F16': '<f2'}
assert header.pop('__metadata__') == {'format': 'pt'}
got = {}
for name, entry in header.items():
    begin, end = entry['data_offsets']
    got[name] = numpy.frombuffer(data[begin:end], kinds[entry['dtype']])
    got[name] = got[name].reshape(entry['shape'])
assert sorted(got) == ['bytes', 'empty', 'halves', 'ints', 'longs', 'scalar', 'w']
assert got['w'].tolist() == [[1.5, -2.0, 3.25],
                             [0.0, float(numpy.float32(1e-30)), 7.0]]
assert got['scalar'].shape == () and got['scalar'] == 3.141592653589793
assert got['longs'].tolist() == [-1, 1 << 40]
assert got['ints'].tolist() == [[5]]
assert got['bytes'].tolist() == [1, 2, 3]
assert got['halves'].tolist() == [1.0, -2.0]
assert got['empty'].shape == (0, 4)
)";

TEST_F(SafetensorsTest, IsReadByNumpy) {
  if (std::system("/usr/bin/python3 -c 'import numpy' 2>/dev/null") != 0) {
    GTEST_SKIP() << "no /usr/bin/python3 with numpy";
  }
  TempDir directory;
  const auto bytes = Encode(All(), {{"format", "pt"}});
  COHORT_ASSERT_OK(bytes);
  std::ofstream(directory.File("x.safetensors"), std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes->data()),
             static_cast<std::streamsize>(bytes->size()));
  std::ofstream(directory.File("read.py")) << kNumpyReader;
  EXPECT_EQ(
      std::system(absl::StrCat("/usr/bin/python3 ", directory.File("read.py"),
                               " ", directory.File("x.safetensors"))
                      .c_str()),
      0);
}

}  // namespace
}  // namespace cohort::trainer

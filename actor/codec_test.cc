#include "actor/codec.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "google/protobuf/duration.pb.h"
#include "gtest/gtest.h"

#include "actor/call_error.h"
#include "actor/parameter.h"
#include "common/random.h"
#include "common/status_util.h"
#include "common/testing/seed.h"
#include "common/testing/status_matchers.h"

namespace cohort {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pointee;

enum class Color : uint8_t { kRed, kGreen };
enum class Flag : bool { kOff, kOn };

struct Point {
  int x = 7;
  double y = 0.5;
  COHORT_FIELDS(x, y)

  friend bool operator==(const Point&, const Point&) = default;
};

struct Step {
  std::string phase;
  std::vector<float> losses;
  std::map<std::string, int64_t> counters;
  std::vector<Point> points;
  COHORT_FIELDS(phase, losses, counters, points)

  friend bool operator==(const Step&, const Step&) = default;
};

struct Point3 : Point {
  double z = 0;
  COHORT_FIELDS(x, y, z)
};

// Names no fields of its own.
struct Labelled : Point {
  std::string label;
};
static_assert(Encodable<Point3>);
static_assert(!Encodable<Labelled>);

struct Nothing {
  COHORT_FIELDS()
};

struct Tree {
  int value = 0;
  std::unique_ptr<Tree> left;
  std::vector<Tree> others;
  COHORT_FIELDS(value, left, others)
};

// A type with a Codec of its own.
class Celsius {
 public:
  Celsius() = default;
  explicit Celsius(double degrees) : degrees_(degrees) {}
  double degrees() const { return degrees_; }

 private:
  double degrees_ = 0;
};

struct Silent {};  // its Codec writes nothing, which is wrong in a vector

template <typename T>
std::string Bytes(const T& value) {
  const absl::StatusOr<std::string> bytes = EncodeValue(value);
  EXPECT_THAT(bytes, IsOk());
  return bytes.value_or("");
}

template <typename T>
void ExpectSame(const T& value) {
  EXPECT_THAT(DecodeValue<T>(Bytes(value)), IsOkAndHolds(value));
}

}  // namespace

template <>
struct Codec<Celsius> {
  static void Encode(const Celsius& value, Encoder& encoder) {
    encoder.Write(value.degrees());
  }
  static bool Decode(Decoder& decoder, Celsius& value) {
    double degrees = 0;
    if (!decoder.Read(degrees) || degrees < -273.15) return false;
    value = Celsius(degrees);
    return true;
  }
};

template <>
struct Codec<Silent> {
  static void Encode(const Silent& /*value*/, Encoder& /*encoder*/) {}
  static bool Decode(Decoder& /*decoder*/, Silent& /*value*/) { return true; }
};

namespace {

TEST(CodecTest, KeepsNumbers) {
  ExpectSame(true);
  ExpectSame('x');
  ExpectSame(std::numeric_limits<int64_t>::min());
  ExpectSame(std::numeric_limits<uint64_t>::max());
  ExpectSame(-0.25f);
  ExpectSame(std::numeric_limits<double>::infinity());
  ExpectSame(Color::kGreen);
  ExpectSame(Flag::kOn);
  ExpectSame(std::byte{200});
  EXPECT_EQ(Bytes(int32_t{-2}), "\xfe\xff\xff\xff");
}

TEST(CodecTest, KeepsTheLibrarysContainers) {
  ExpectSame(std::string("a\0b", 3));
  ExpectSame(std::string());
  ExpectSame(std::vector<double>{1, 2, 3});
  ExpectSame(std::vector<double>());
  ExpectSame(std::vector<bool>{true, false, true});
  ExpectSame(std::vector<std::string>{"a", "", "ccc"});
  ExpectSame(std::vector<std::vector<int16_t>>{{1}, {}, {2, 3}});
  ExpectSame(std::array<int, 3>{1, 2, 3});
  ExpectSame(std::array<std::string, 2>{"a", "b"});
  ExpectSame(std::array<int, 0>());
  ExpectSame(std::map<int, std::string>{{2, "b"}, {1, "a"}});
  ExpectSame(std::unordered_map<std::string, int>{{"b", 2}, {"a", 1}});
  ExpectSame(std::set<std::string>{"b", "a"});
  ExpectSame(std::unordered_set<int>{3, 1, 2});
}

TEST(CodecTest, KeepsWhatMayBeOneThingOrAnother) {
  ExpectSame(std::pair<int, std::string>(1, "a"));
  ExpectSame(std::tuple<int, bool, std::string>(1, true, "a"));
  ExpectSame(std::tuple<>());
  ExpectSame(std::optional<int>());
  ExpectSame(std::optional<std::string>("a"));
  using Variant = std::variant<std::monostate, int, std::string>;
  ExpectSame(Variant());
  ExpectSame(Variant(5));
  ExpectSame(Variant("text"));
  EXPECT_EQ(*DecodeValue<std::unique_ptr<int>>(Bytes(std::unique_ptr<int>())),
            nullptr);
  EXPECT_THAT(
      *DecodeValue<std::unique_ptr<int>>(Bytes(std::make_unique<int>(4))),
      Pointee(4));
}

TEST(CodecTest, KeepsStructsThatNameTheirFields) {
  ExpectSame(Point{1, 2});
  ExpectSame(Step{"warm", {1, 2}, {{"a", 1}}, {{1, 2}, {3, 4}}});
  ExpectSame(std::vector<Step>{{}, {"x", {}, {}, {}}});
  COHORT_EXPECT_OK(
      DecodeValue<std::vector<Nothing>>(Bytes(std::vector<Nothing>(3))));
}

TEST(CodecTest, KeepsTheFieldsOfABase) {
  Point3 point;
  point.x = 1;
  point.z = 3;
  const absl::StatusOr<Point3> copy = DecodeValue<Point3>(Bytes(point));
  COHORT_ASSERT_OK(copy);
  EXPECT_EQ(copy->x, 1);
  EXPECT_EQ(copy->z, 3);
}

TEST(CodecTest, KeepsTrees) {
  Tree tree{1, std::make_unique<Tree>(), {}};
  tree.left->value = 2;
  tree.others.push_back(Tree{3, nullptr, {}});
  const absl::StatusOr<Tree> copy = DecodeValue<Tree>(Bytes(tree));
  COHORT_ASSERT_OK(copy);
  EXPECT_EQ(copy->left->value, 2);
  EXPECT_EQ(copy->others.at(0).value, 3);
}

enum Plain { kOne = 1, kTwo = 2 };

struct Pixel {
  float at[2] = {};
  Plain kind = kOne;
  bool is_set = false;
  friend bool operator==(const Pixel&, const Pixel&) = default;
};
struct Pair {
  Pixel a;
  std::chrono::milliseconds took{};
  friend bool operator==(const Pair&, const Pair&) = default;
};
struct HoldsPointer {
  int size = 0;
  const char* data = nullptr;
};
struct HoldsHolder {
  HoldsPointer inner;
};
struct HoldsView {
  absl::string_view view;
};
static_assert(actor::Raw<Pixel> && actor::Raw<Pair>);
static_assert(!Encodable<HoldsPointer> && !Encodable<HoldsHolder> &&
              !Encodable<HoldsView> && !Encodable<const char*> &&
              !Encodable<std::shared_ptr<int>> &&
              !Encodable<std::deque<HoldsPointer>>);

template <typename T>
T Back(const T& value) {
  const absl::StatusOr<std::string> bytes = EncodeValue(value);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  const absl::StatusOr<T> back = DecodeValue<T>(*bytes);
  EXPECT_TRUE(back.ok()) << back.status();
  return *back;
}

TEST(CodecTest, KeepsPlainStructs) {
  const Pixel pixel = {.at = {1, 2}, .kind = kTwo, .is_set = true};
  EXPECT_EQ(Back(pixel), pixel);
  const std::vector<Pixel> pixels = {Pixel(), pixel};
  EXPECT_EQ(Back(pixels), pixels);
  const std::map<int, Pair> pairs = {
      {3, {.a = pixel, .took = std::chrono::milliseconds(7)}}};
  EXPECT_EQ(Back(pairs), pairs);
  EXPECT_FALSE(DecodeValue<Pixel>("short").ok());
  EXPECT_FALSE(DecodeValue<std::vector<Pixel>>("\xff\xff\xff\x7f").ok());
}

TEST(CodecTest, KeepsAnyContainer) {
  const std::deque<std::string> words = {"a", "", "b"};
  EXPECT_EQ(Back(words), words);
  const std::list<int> numbers = {1, 2};
  EXPECT_EQ(Back(numbers), numbers);
  const std::multimap<int, std::string> several = {
      {1, "b"}, {1, "a"}, {2, "c"}};
  EXPECT_EQ(Back(several), several);
  const std::multiset<int> set = {1, 1, 2};
  EXPECT_EQ(Back(set), set);
  const absl::flat_hash_map<std::string, std::vector<int>> map = {{"a", {1}}};
  EXPECT_EQ(Back(map), map);
  const absl::flat_hash_set<int> hashed = {1, 2, 3};
  EXPECT_EQ(Back(hashed), hashed);
  EXPECT_FALSE(DecodeValue<std::deque<int>>("\xff\xff\xff\x7f").ok());
}

TEST(CodecTest, KeepsTimes) {
  for (const absl::Duration each :
       {absl::ZeroDuration(), -absl::Nanoseconds(1) / 4, absl::Hours(1),
        absl::InfiniteDuration()}) {
    EXPECT_EQ(Back(each), each);
    EXPECT_EQ(Back(absl::UnixEpoch() + each), absl::UnixEpoch() + each);
  }
  EXPECT_EQ(Back(std::chrono::seconds(5)), std::chrono::seconds(5));
  const auto at = std::chrono::system_clock::now();
  EXPECT_EQ(Back(at), at);
}

TEST(CodecTest, UsesACodecOfTheUsers) {
  EXPECT_EQ(DecodeValue<Celsius>(Bytes(Celsius(20)))->degrees(), 20);
  EXPECT_THAT(DecodeValue<Celsius>(Bytes(Celsius(-300))),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(CodecTest, KeepsStatusesWithTheirPayloads) {
  const absl::Status busy =
      SetReason(absl::UnavailableError("busy"), "queue_full");
  const auto copy = DecodeValue<absl::Status>(Bytes(busy));
  COHORT_ASSERT_OK(copy.status());
  using Result = absl::StatusOr<std::string>;
  EXPECT_THAT(*DecodeValue<Result>(Bytes(Result(busy))),
              StatusIs(absl::StatusCode::kUnavailable, "busy"));
  EXPECT_EQ(GetReason(DecodeValue<Result>(Bytes(Result(busy)))->status()),
            "queue_full");
  EXPECT_THAT(*DecodeValue<Result>(Bytes(Result("fine"))),
              IsOkAndHolds("fine"));
}

TEST(CodecTest, KeepsProtobufMessages) {
  google::protobuf::Duration duration;
  duration.set_seconds(5);
  const auto copy = DecodeValue<google::protobuf::Duration>(Bytes(duration));
  COHORT_ASSERT_OK(copy);
  EXPECT_EQ(copy->seconds(), 5);
}

// What StepV2 was before it grew.
struct StepV1 {
  int step = 0;
  std::string phase;
  COHORT_FIELDS(step, phase)
};
struct StepV2 {
  int step = 0;
  std::string phase;
  std::vector<double> losses = {1.5};
  double rate = 0.25;
  COHORT_FIELDS(step, phase, losses, rate)
};

TEST(CodecTest, GivesFieldsThatTheWriterDidNotKnowTheirDefaults) {
  const std::vector<StepV1> old = {{1, "a"}, {2, "b"}};
  const auto read = DecodeValue<std::vector<StepV2>>(Bytes(old));
  COHORT_ASSERT_OK(read);
  EXPECT_EQ(read->at(1).step, 2);
  EXPECT_EQ(read->at(1).phase, "b");
  EXPECT_THAT(read->at(1).losses, ElementsAre(1.5));
  EXPECT_EQ(read->at(1).rate, 0.25);
}

TEST(CodecTest, SkipsFieldsThatTheReaderDoesNotKnow) {
  const std::vector<StepV2> newer = {{1, "a", {1, 2}, 3}, {2, "b", {}, 4}};
  const auto read = DecodeValue<std::vector<StepV1>>(Bytes(newer));
  COHORT_ASSERT_OK(read);
  EXPECT_EQ(read->at(0).phase, "a");
  EXPECT_EQ(read->at(1).step, 2);
}

TEST(CodecTest, ShowsArraysInPlace) {
  const auto bytes = actor::WriteParameters<int8_t, std::span<const double>>(
      1, std::vector<double>{1.5, 2.5});
  COHORT_ASSERT_OK(bytes);
  Decoder decoder(*bytes);
  std::tuple<int8_t, std::span<const double>> values;
  ASSERT_TRUE(actor::ReadParameters(decoder, values));
  EXPECT_THAT(std::get<1>(values), ElementsAre(1.5, 2.5));
  const auto* begin = reinterpret_cast<const char*>(std::get<1>(values).data());
  EXPECT_GE(begin, bytes->data());
  EXPECT_LT(begin, bytes->data() + bytes->size());
}

TEST(CodecTest, ShowsACopyOfAnArrayThatIsNotAligned) {
  const auto bytes = actor::WriteParameters<std::span<const double>>(
      std::vector<double>{1.5, 2.5});
  COHORT_ASSERT_OK(bytes);
  for (size_t offset = 0; offset < 8; ++offset) {
    const std::string moved = std::string(offset, 'x') + *bytes;
    Decoder decoder(absl::string_view(moved).substr(offset));
    std::tuple<std::span<const double>> values;
    ASSERT_TRUE(actor::ReadParameters(decoder, values));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(std::get<0>(values).data()) % 8, 0u);
    EXPECT_THAT(std::get<0>(values), ElementsAre(1.5, 2.5));
  }
}

TEST(CodecTest, ShowsText) {
  const auto bytes = actor::WriteParameters<absl::string_view>("text");
  COHORT_ASSERT_OK(bytes);
  Decoder decoder(*bytes);
  std::tuple<absl::string_view> values;
  ASSERT_TRUE(actor::ReadParameters(decoder, values));
  EXPECT_EQ(std::get<0>(values), "text");
}

TEST(CodecTest, RefusesValuesThatAreNestedTooDeeply) {
  Tree root;
  Tree* last = &root;
  for (int i = 0; i < 1000; ++i) {
    last->left = std::make_unique<Tree>();
    last = last->left.get();
  }
  EXPECT_THAT(EncodeValue(root), StatusIs(absl::StatusCode::kInvalidArgument,
                                          HasSubstr("100 deep")));
  // Each level: its length, a value, and that there is one more.
  std::string bytes;
  for (uint32_t i = 0; i < 100000; ++i) {
    const uint32_t size = (100000 - i) * 9;
    bytes.append(reinterpret_cast<const char*>(&size), 4);
    bytes.append("\0\0\0\0\1", 5);
  }
  EXPECT_FALSE(DecodeValue<Tree>(bytes).ok());
}

TEST(CodecTest, RefusesACodecThatWritesNothingForManyValues) {
  EXPECT_THAT(EncodeValue(std::vector<Silent>(3)),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(CodecTest, BelievesNoCountThatTheBytesDoNotBearOut) {
  const std::string bytes("\xff\xff\xff\xffxxxxxxxx", 12);
  EXPECT_FALSE(DecodeValue<std::string>(bytes).ok());
  EXPECT_FALSE(DecodeValue<std::vector<double>>(bytes).ok());
  EXPECT_FALSE(DecodeValue<std::vector<Step>>(bytes).ok());
  EXPECT_FALSE(DecodeValue<std::vector<Silent>>(bytes).ok());
  EXPECT_FALSE((DecodeValue<std::map<std::string, int>>(bytes)).ok());
  EXPECT_FALSE(DecodeValue<Step>(bytes).ok());
  EXPECT_FALSE(DecodeValue<google::protobuf::Duration>(bytes).ok());
}

TEST(CodecTest, RefusesBytesThatAreNoValue) {
  EXPECT_FALSE(DecodeValue<bool>("\2").ok());
  EXPECT_FALSE(DecodeValue<Flag>("\2").ok());
  EXPECT_FALSE((DecodeValue<std::variant<int, bool>>("\2\1")).ok());
  EXPECT_FALSE(DecodeValue<int>("12345").ok()) << "there is a byte too many";
  EXPECT_FALSE(
      DecodeValue<std::set<uint8_t>>(Bytes(std::vector<uint8_t>{4, 4})).ok());
}

// Everything there is, in one.
struct All {
  Step step;
  Tree tree;
  std::vector<bool> bits;
  std::array<std::string, 2> names;
  std::map<std::string, std::vector<Point>> by_name;
  std::unordered_map<int, std::string> texts;
  std::set<int> numbers;
  std::optional<Point> point;
  std::variant<std::monostate, int, Step> choice;
  std::tuple<Color, bool, Flag> tuple;
  absl::Status status;
  absl::StatusOr<std::vector<int>> result;
  google::protobuf::Duration message;
  COHORT_FIELDS(step, tree, bits, names, by_name, texts, numbers, point, choice,
                tuple, status, result, message)
};

All Filled() {
  All all;
  all.step = {"warm", {1, 2, 3}, {{"a", 1}, {"b", 2}}, {{1, 2}}};
  all.tree.left = std::make_unique<Tree>();
  all.tree.others.resize(2);
  all.bits = {true, false};
  all.names = {"x", "yy"};
  all.by_name = {{"k", {{1, 2}, {3, 4}}}};
  all.texts = {{1, "a"}, {2, "b"}};
  all.numbers = {1, 2, 3};
  all.point = Point{};
  all.choice = Step{};
  all.status = SetReason(absl::AbortedError("again"), "stale");
  all.result = std::vector<int>{1, 2};
  all.message.set_seconds(5);
  return all;
}

// Writes what was read: all of it is looked at, and it is the same again.
void ExpectAnEndOrAValue(absl::string_view bytes) {
  const absl::StatusOr<All> all = DecodeValue<All>(bytes);
  if (!all.ok()) return;
  const absl::StatusOr<std::string> again = EncodeValue(*all);
  COHORT_ASSERT_OK(again);
  COHORT_EXPECT_OK(DecodeValue<All>(*again));
}

TEST(CodecFuzzTest, ComesToAnEndWithBytesThatAreCutOff) {
  const std::string bytes = Bytes(Filled());
  COHORT_ASSERT_OK(DecodeValue<All>(bytes));
  for (size_t size = 0; size < bytes.size(); ++size) {
    // Memory of that size, so that a sanitizer sees a read beyond it.
    const std::vector<char> cut(bytes.begin(),
                                bytes.begin() + static_cast<ptrdiff_t>(size));
    const absl::string_view view(cut.data(), cut.size());
    EXPECT_FALSE(DecodeValue<All>(view).ok()) << size;
  }
}

TEST(CodecFuzzTest, ComesToAnEndWithBytesThatAreChanged) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  SeededRandom random(seed);
  const std::string bytes = Bytes(Filled());
  for (int round = 0; round < 20000; ++round) {
    std::vector<char> changed(bytes.begin(), bytes.end());
    for (uint64_t n = random.Below(4); n < 4; ++n) {
      changed[random.Below(changed.size())] =
          static_cast<char>(random.Below(256));
    }
    ExpectAnEndOrAValue(absl::string_view(changed.data(), changed.size()));
  }
}

TEST(CodecFuzzTest, ComesToAnEndWithRandomBytes) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  SeededRandom random(seed);
  for (int round = 0; round < 20000; ++round) {
    std::vector<char> bytes(random.Below(200));
    // Small numbers are counts that may come true.
    const uint64_t below = random.Below(2) == 0 ? 256 : 4;
    for (char& byte : bytes) byte = static_cast<char>(random.Below(below));
    ExpectAnEndOrAValue(absl::string_view(bytes.data(), bytes.size()));
    (void)DecodeValue<std::vector<Tree>>({bytes.data(), bytes.size()});
    (void)DecodeValue<std::map<std::string, Step>>(
        {bytes.data(), bytes.size()});
  }
}

}  // namespace
}  // namespace cohort

#include "worker/keeper/record.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::keeper {
namespace {

using ::testing::HasSubstr;

// A frame around `body` with a right checksum: only the body can be at fault.
std::string Framed(const std::string& body) {
  const std::string bytes = "cohort-keeper test 1\n" + body;
  char trailer[32];
  std::snprintf(trailer, sizeof(trailer), "crc32 %08x\n",
                Crc32(bytes.data(), bytes.size()));
  return bytes + trailer;
}

std::string ErrorOf(const std::string& body) {
  RecordReader in(Framed(body), "test", 1);
  in.Text("a");
  in.AtEnd();
  return in.error();
}

TEST(Record, IsTextThatPeopleCanRead) {
  EXPECT_EQ(
      RecordWriter("test", 1).Add("a", "x y").Add("n", int64_t{-7}).Finish(),
      "cohort-keeper test 1\na 3:x y\nn 2:-7\ncrc32 bf64c7aa\n");
}

TEST(Record, CarriesAnyBytes) {
  const std::string value("\n\0: crc32 00000000\n", 19);
  const std::string bytes = RecordWriter("test", 1).Add("a", value).Finish();
  RecordReader in(bytes, "test", 1);
  EXPECT_EQ(in.Text("a"), value);
  EXPECT_TRUE(in.AtEnd()) << in.error();
}

TEST(Record, RefusesEveryFlippedBitAndEveryPrefix) {
  const std::string bytes = RecordWriter("test", 1).Add("a", "value").Finish();
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 4);
    EXPECT_FALSE(RecordReader(damaged, "test", 1).ok()) << i;
    EXPECT_FALSE(RecordReader(bytes.substr(0, i), "test", 1).ok()) << i;
  }
  EXPECT_FALSE(RecordReader(bytes + "\n", "test", 1).ok());
}

TEST(Record, RefusesAnotherKindOrVersionAndNamesIt) {
  const std::string bytes = RecordWriter("test", 2).Add("a", "v").Finish();
  EXPECT_THAT(RecordReader(bytes, "test", 1).error(),
              HasSubstr("cohort-keeper test 2"));
  EXPECT_THAT(RecordReader(bytes, "spec", 2).error(),
              HasSubstr("cohort-keeper test 2"));
}

TEST(Record, RefusesMalformedFields) {
  EXPECT_EQ(ErrorOf("a 1:x\n"), "");
  EXPECT_THAT(ErrorOf("a 2:x\n"), HasSubstr("malformed length"));
  EXPECT_THAT(ErrorOf("a 01:x\n"), HasSubstr("malformed length"));
  EXPECT_THAT(ErrorOf("a -1:x\n"), HasSubstr("malformed length"));
  EXPECT_THAT(ErrorOf("a 99999999999999999999:x\n"),
              HasSubstr("malformed length"));
  EXPECT_THAT(ErrorOf("a x\n"), HasSubstr("malformed field"));
  EXPECT_THAT(ErrorOf("b 1:x\n"), HasSubstr("\"a\" is missing"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("\"a\" is missing"));
  EXPECT_THAT(ErrorOf("a 1:x\nb 1:x\n"), HasSubstr("unexpected field \"b\""));
}

TEST(Record, RefusesNumbersThatWeDoNotWrite) {
  for (const std::string text : {"", "+1", "01", " 1", "1 ", "0x1", "-0",
                                 "9223372036854775808", "1.0"}) {
    EXPECT_EQ(ParseDecimal(text), std::nullopt) << text;
  }
  EXPECT_EQ(ParseDecimal("-9223372036854775808"),
            std::numeric_limits<int64_t>::min());
}

TEST(Record, KeepsTheFirstErrorAndReadsNothingAfterIt) {
  const std::string bytes =
      RecordWriter("test", 1).Add("n", "7").Add("m", "8").Finish();
  RecordReader in(bytes, "test", 1);
  EXPECT_EQ(in.Number("n", 0, 6), 0);
  EXPECT_EQ(in.Number("m", 0, 9), 0);
  EXPECT_THAT(in.error(), HasSubstr("\"n\" is not a number from 0 to 6"));
}

TEST(Record, ChecksumIsTheOneOfZlib) {
  EXPECT_EQ(Crc32("123456789", 9), 0xcbf43926u);
}

}  // namespace
}  // namespace cohort::keeper

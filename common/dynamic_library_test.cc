#include "common/dynamic_library.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;

TEST(DynamicLibraryTest, BindsWhatIsThere) {
  const auto library = DynamicLibrary::Open("libc.so.6");
  COHORT_ASSERT_OK(library);
  int (*absolute)(int) = nullptr;
  EXPECT_TRUE(library->Bind({"newer_abs", "abs"}, absolute));
  EXPECT_EQ(absolute(-3), 3);
  std::function<int(int)> function;
  EXPECT_TRUE(library->Bind("abs", function));
  EXPECT_EQ(function(-4), 4);
}

TEST(DynamicLibraryTest, SaysWhatIsNot) {
  EXPECT_THAT(DynamicLibrary::Open("/no/such.so"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/no/such.so")));
  const auto library = DynamicLibrary::Open("libc.so.6");
  COHORT_ASSERT_OK(library);
  std::function<int(int)> function;
  EXPECT_FALSE(library->Bind("no_such_function", function));
  EXPECT_FALSE(function);
}

}  // namespace
}  // namespace cohort

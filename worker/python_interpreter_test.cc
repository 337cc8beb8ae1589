#include "worker/python_interpreter.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/file.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::worker {
namespace {

using testing::HasSubstr;

class PythonInterpreterTest : public testing::Test {
 protected:
  std::string Install(const std::string& directory, const std::string& name) {
    COHORT_EXPECT_OK(MakeDirectories(temp_.File(directory), 0700));
    const std::string path = temp_.File(absl::StrCat(directory, "/", name));
    COHORT_EXPECT_OK(WriteFileAtomically(path, "", 0700));
    return path;
  }
  std::string Path() const {
    return absl::StrCat("PATH=/nowhere:", temp_.File("a"), ":",
                        temp_.File("b"));
  }

  const TempDir temp_;
};

TEST_F(PythonInterpreterTest, IsTheProgramOrTheFirstOnThePath) {
  const std::string on_path = Install("a", "python3");
  const std::string other = Install("b", "python3.12");
  Install("b", "python3");
  EXPECT_EQ(*DescribePython({Path()}, "python3"), "its Python is " + on_path);
  EXPECT_EQ(*DescribePython({Path()}, "python3.12"), "its Python is " + other);
  EXPECT_EQ(*DescribePython({Path()}, "/opt/bin/python3"),
            "its Python is /opt/bin/python3");
  // It may take another one.
  EXPECT_EQ(*DescribePython({Path()}, "sh"),
            "python3 on its PATH is " + on_path);
  EXPECT_EQ(*DescribePython({"PATH=/nowhere"}, "sh"),
            "no python3 is on its PATH");
  EXPECT_EQ(*DescribePython({}, "python"), "no python is on its PATH");
}

TEST_F(PythonInterpreterTest, RefusesOneThatTheJobNamesAndIsNotThere) {
  const std::string named = Install("venv/bin", "python3");
  EXPECT_EQ(*DescribePython({"COHORT_PYTHON=" + named, Path()}, named),
            "its Python is " + named);
  const absl::Status missing =
      DescribePython({"COHORT_PYTHON=/no/venv/bin/python3", Path()}, "python3")
          .status();
  EXPECT_TRUE(absl::IsInvalidArgument(missing));
  EXPECT_THAT(std::string(missing.message()),
              HasSubstr("/no/venv/bin/python3 is not on this node"));
}

}  // namespace
}  // namespace cohort::worker

#include "client/cli/python_environment.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/file.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::cli {
namespace {

using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

class PythonEnvironmentTest : public testing::Test {
 protected:
  PythonEnvironmentTest() {
    unsetenv("VIRTUAL_ENV");
    unsetenv("CONDA_PREFIX");
    spec_.command = {"python3", "train.py"};
  }
  ~PythonEnvironmentTest() override { unsetenv("VIRTUAL_ENV"); }

  // A prefix with a Python, and a file that says what it is.
  std::string Install(const std::string& name, const std::string& mark) {
    const std::string prefix = temp_.File(name);
    COHORT_EXPECT_OK(MakeDirectories(prefix + "/bin", 0700));
    for (const char* file : {"/bin/python3", "/bin/python3.12"}) {
      COHORT_EXPECT_OK(WriteFileAtomically(prefix + file, "", 0700));
    }
    if (!mark.empty()) {
      COHORT_EXPECT_OK(
          WriteFileAtomically(absl::StrCat(prefix, "/", mark), "", 0600));
    }
    return prefix;
  }
  absl::Status Put(const std::string& python) {
    return PutPython(python, /*quiet=*/true, spec_);
  }

  const TempDir temp_;
  JobSpec spec_;
};

TEST_F(PythonEnvironmentTest, PutsAVenvFirst) {
  const std::string venv = Install("venv", "pyvenv.cfg");
  COHORT_EXPECT_OK(Put(venv + "/"));
  EXPECT_THAT(spec_.environment,
              UnorderedElementsAre(
                  Pair("PATH", venv + "/bin:$PATH"), Pair("VIRTUAL_ENV", venv),
                  Pair("COHORT_PYTHON", venv + "/bin/python3")));
  EXPECT_EQ(spec_.command.front(), "python3");
}

TEST_F(PythonEnvironmentTest, PutsACondaPrefixBeforeThePathOfTheJob) {
  const std::string conda = Install("conda", "conda-meta");
  spec_.environment["PATH"] = "/opt/bin";
  COHORT_EXPECT_OK(Put(conda));
  EXPECT_THAT(
      spec_.environment,
      UnorderedElementsAre(Pair("PATH", conda + "/bin:/opt/bin"),
                           Pair("CONDA_PREFIX", conda),
                           Pair("COHORT_PYTHON", conda + "/bin/python3")));
}

TEST_F(PythonEnvironmentTest, RunsTheProgramThatIsNamed) {
  const std::string program = Install("usr", "") + "/bin/python3.12";
  COHORT_EXPECT_OK(Put(program));
  EXPECT_THAT(
      spec_.environment,
      UnorderedElementsAre(Pair("PATH", temp_.File("usr/bin") + ":$PATH"),
                           Pair("COHORT_PYTHON", program)));
  EXPECT_EQ(spec_.command.front(), program);
}

TEST_F(PythonEnvironmentTest, TakesWhatOnlyTheWorkersHave) {
  COHORT_EXPECT_OK(Put("/only/there/bin/python3"));
  EXPECT_EQ(spec_.environment["COHORT_PYTHON"], "/only/there/bin/python3");
  COHORT_EXPECT_OK(Put("/only/venv"));
  EXPECT_EQ(spec_.environment["COHORT_PYTHON"], "/only/venv/bin/python3");
  EXPECT_TRUE(absl::IsInvalidArgument(Put("only/venv")));
  COHORT_EXPECT_OK(MakeDirectories(temp_.File("empty"), 0700));
  EXPECT_TRUE(absl::IsInvalidArgument(Put(temp_.File("empty"))));
}

TEST_F(PythonEnvironmentTest, TakesTheShellsByDefault) {
  COHORT_EXPECT_OK(Put(""));
  EXPECT_THAT(spec_.environment, IsEmpty());
  const std::string venv = Install("venv", "pyvenv.cfg");
  setenv("VIRTUAL_ENV", venv.c_str(), 1);
  COHORT_EXPECT_OK(Put("none"));
  EXPECT_THAT(spec_.environment, IsEmpty());
  COHORT_EXPECT_OK(Put(""));
  EXPECT_EQ(spec_.environment.count("COHORT_PYTHON"), 1u);
  // Nothing is asked of a node that runs something else.
  spec_ = {};
  spec_.command = {"hostname"};
  COHORT_EXPECT_OK(Put(""));
  EXPECT_THAT(spec_.environment,
              UnorderedElementsAre(Pair("PATH", venv + "/bin:$PATH"),
                                   Pair("VIRTUAL_ENV", venv)));
  spec_.environment = {{"PATH", "/bin"}};
  COHORT_EXPECT_OK(Put(""));
  EXPECT_THAT(spec_.environment, UnorderedElementsAre(Pair("PATH", "/bin")));
  // A PATH that only adds to the node's does not choose a Python.
  spec_.environment = {{"PATH", "/opt/bin:$PATH"}};
  COHORT_EXPECT_OK(Put(""));
  EXPECT_THAT(spec_.environment,
              UnorderedElementsAre(Pair("PATH", venv + "/bin:/opt/bin:$PATH"),
                                   Pair("VIRTUAL_ENV", venv)));
}

}  // namespace
}  // namespace cohort::cli

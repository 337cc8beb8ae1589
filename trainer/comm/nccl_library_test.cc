#include "trainer/comm/nccl_library.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "trainer/comm/testing/fake_nccl.h"

namespace cohort::trainer::nccl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const auto kUnmet = absl::StatusCode::kFailedPrecondition;

// An environment variable for one test.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    const char* const before = getenv(name);
    if (before != nullptr) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~ScopedVariable() { setenv(name_, before_.c_str(), 1); }

 private:
  const char* const name_;
  std::string before_;
};

TEST(LoadLibraryTest, SaysThatThereIsNoneAndHowToNameOne) {
  EXPECT_THAT(LoadLibrary("libnccl-not-there.so"),
              StatusIs(kUnmet, AllOf(HasSubstr("no NCCL"),
                                     HasSubstr("libnccl-not-there.so"),
                                     HasSubstr("COHORT_NCCL_LIBRARY"))));
}

TEST(LoadLibraryTest, RefusesOneThatIsTooOldByItsName) {
  EXPECT_THAT(LoadLibrary(COHORT_OLD_NCCL),
              StatusIs(kUnmet, AllOf(HasSubstr("2.17.5"), HasSubstr("2.18.0"),
                                     HasSubstr(COHORT_OLD_NCCL))));
}

TEST(LoadLibraryTest, NamesTheSymbolThatIsMissing) {
  EXPECT_THAT(LoadLibrary(COHORT_BARE_NCCL),
              StatusIs(kUnmet, HasSubstr("lacks ncclGetErrorString")));
  EXPECT_THAT(LoadLibrary("libc.so.6"),
              StatusIs(kUnmet, HasSubstr("lacks ncclGetVersion")));
}

TEST(LoadLibraryTest, TakesTheOneThatTheEnvironmentNamesAndNoOther) {
  const ScopedVariable named("COHORT_NCCL_LIBRARY", COHORT_OLD_NCCL);
  EXPECT_THAT(LoadLibrary(), StatusIs(kUnmet, HasSubstr("2.17.5")));
}

TEST(LibraryCandidatesTest, AreTheLoadersAndThenTheWheelsOfTheEnvironments) {
  const TempDir environment;
  const std::string folder = absl::StrCat(
      environment.path(), "/lib/python3.11/site-packages/nvidia/nccl/lib");
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(COHORT_OLD_NCCL, folder + "/libnccl.so.2");
  const ScopedVariable none("COHORT_NCCL_LIBRARY", "");
  const ScopedVariable virtual_env("VIRTUAL_ENV", environment.path());
  const ScopedVariable conda("CONDA_PREFIX", "");
  EXPECT_THAT(LibraryCandidates(),
              ElementsAre("libnccl.so.2", folder + "/libnccl.so.2"));
  EXPECT_THAT(LibraryCandidates("mine.so"), ElementsAre("mine.so"));
}

TEST(LibraryCandidatesTest, AreTheProcesssOwnAloneWhereItHasOne) {
  const ScopedVariable named("COHORT_NCCL_LIBRARY", COHORT_OLD_NCCL);
  void* const resident = dlopen(COHORT_RESIDENT_NCCL, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(resident, nullptr) << dlerror();
  EXPECT_THAT(LibraryCandidates(), ElementsAre("libnccl.so.2"));
  dlclose(resident);
  EXPECT_THAT(LibraryCandidates(), ElementsAre(COHORT_OLD_NCCL));
}

TEST(LoadFirstTest, LooksOnWhereOneIsNotThereTooOldOrNotWhole) {
  const auto library =
      LoadFirst({"libnccl-not-there.so", COHORT_OLD_NCCL, COHORT_BARE_NCCL,
                 COHORT_WHOLE_NCCL, "libnccl-not-needed.so"});
  COHORT_ASSERT_OK(library);
  EXPECT_EQ((*library)->path, COHORT_WHOLE_NCCL);
  EXPECT_EQ((*library)->version, 22809);
}

TEST(LoadFirstTest, SaysOfEachWhyNot) {
  EXPECT_THAT(
      LoadFirst({"libnccl-not-there.so", COHORT_OLD_NCCL, COHORT_BARE_NCCL}),
      StatusIs(kUnmet, AllOf(HasSubstr("libnccl-not-there.so"),
                             HasSubstr(COHORT_OLD_NCCL " is 2.17.5"),
                             HasSubstr(COHORT_BARE_NCCL " lacks"))));
}

// Which function is used of which version.
TEST(MakeLibraryTest, UsesOfEachVersionWhatItHas) {
  struct Row {
    int version;
    bool revoke;
  };
  for (const Row& row : {Row{21800, false}, Row{22700, false},
                         Row{22806, false}, Row{22807, true}, Row{22809, true},
                         Row{23007, true}, Row{23203, true}}) {
    SCOPED_TRACE(row.version);
    FakeFabric fabric;
    FakeNccl fake(fabric, row.version);
    const auto library = MakeLibrary(fake.table(), "libnccl.so.2");
    ASSERT_THAT(library, IsOk());
    const NcclTable& table = (*library)->table;
    EXPECT_EQ(!!table.ncclCommRevoke, row.revoke);
    EXPECT_EQ((*library)->version, row.version);
  }
}

TEST(MakeLibraryTest, TakesOutWhatTheVersionDoesNotHaveAndTheTableDoes) {
  FakeFabric fabric;
  FakeNccl full(fabric, 22809);
  FakeNccl old(fabric, 21800);
  NcclTable table = full.table();
  table.ncclGetVersion = old.table().ncclGetVersion;
  const auto library = MakeLibrary(table, "x");
  ASSERT_THAT(library, IsOk());
  EXPECT_FALSE((*library)->table.ncclCommRevoke);
}

TEST(MakeLibraryTest, DoesWithoutASymbolThatAVersionShouldHave) {
  FakeFabric fabric;
  FakeNccl fake(fabric, 22809);
  NcclTable table = fake.table();
  table.ncclCommRevoke = nullptr;
  const auto library = MakeLibrary(table, "x");
  ASSERT_THAT(library, IsOk());
  EXPECT_FALSE((*library)->table.ncclCommRevoke);
}

TEST(MakeLibraryTest, RefusesBelowTheFloorWhateverTheCountingWas) {
  FakeFabric fabric;
  for (const auto& [version, text] : std::vector<std::pair<int, std::string>>{
           {2804, "older than 2.9"}, {21705, "2.17.5"}}) {
    FakeNccl fake(fabric, version);
    EXPECT_THAT(MakeLibrary(fake.table(), "/opt/libnccl.so.2"),
                StatusIs(kUnmet, AllOf(HasSubstr(text),
                                       HasSubstr("/opt/libnccl.so.2"))));
  }
}

TEST(MakeLibraryTest, SaysWhenTheVersionCannotBeAsked) {
  FakeFabric fabric;
  FakeNccl fake(fabric);
  fake.faults().Fail("ncclGetVersion", kInternalError);
  EXPECT_THAT(MakeLibrary(fake.table(), "x"),
              StatusIs(kUnmet, HasSubstr("ncclGetVersion answers 3")));
}

TEST(NcclStatusTest, SaysWhatNcclSaid) {
  FakeFabric fabric;
  FakeNccl fake(fabric);
  const auto library = MakeLibrary(fake.table(), "x");
  ASSERT_THAT(library, IsOk());
  EXPECT_THAT(NcclStatus(**library, kSuccess, "x", nullptr), IsOk());
  const int comm = 0;
  EXPECT_THAT(
      NcclStatus(**library, kRemoteError, "ncclAllReduce",
                 reinterpret_cast<Communicator>(const_cast<int*>(&comm))),
      StatusIs(absl::StatusCode::kUnavailable,
               AllOf(HasSubstr("ncclAllReduce: remote process exited"),
                     HasSubstr("(6)"), HasSubstr("fake words"))));
  // As of an ncclCommInitRankConfig that made no communicator.
  EXPECT_THAT(
      NcclStatus(**library, kSystemError, "ncclCommInitRankConfig", nullptr),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("fake words")));
}

TEST(VersionTextTest, ReadsAsPeopleWriteIt) {
  EXPECT_EQ(VersionText(22809), "2.28.9");
  EXPECT_EQ(VersionText(23203), "2.32.3");
}

}  // namespace
}  // namespace cohort::trainer::nccl

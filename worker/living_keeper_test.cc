#include "worker/living_keeper.h"

#include <filesystem>
#include <optional>
#include <string>

#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "worker/testing/keeper_fixture.h"

namespace cohort::worker {
namespace {

namespace fs = std::filesystem;

class LivingKeeperTest : public KeeperClientTest {
 protected:
  // Of this test's one.
  std::optional<LivingKeeper> Find() {
    for (const LivingKeeper& keeper : FindLivingKeepers()) {
      if (keeper.attempt() == Attempt()) return keeper;
    }
    return std::nullopt;
  }
  std::string In(const std::string& state) {
    return absl::StrCat(dir_.File(state), "/attempts/", Attempt());
  }
};

TEST_F(LivingKeeperTest, KeepsInItsDirectoryAndInNoCopyOfIt) {
  Daemon daemon(dir_.File("state"));
  COHORT_ASSERT_OK(daemon.Start(Spec({"exec sleep 1000"})));
  daemon.Next<RankStarted>();
  const std::optional<LivingKeeper> keeper = Find();
  ASSERT_TRUE(keeper.has_value());
  EXPECT_EQ(keeper->told(), In("state"));
  EXPECT_TRUE(keeper->KeepsIn(In("state")));
  fs::copy(dir_.File("state"), dir_.File("linked"),
           fs::copy_options::recursive | fs::copy_options::create_hard_links);
  // What a hard link shares: the lock.
  EXPECT_TRUE(SurveyAttempt(In("linked"))->locked);
  EXPECT_FALSE(keeper->KeepsIn(In("linked")));
  fs::rename(dir_.File("state"), dir_.File("moved"));
  EXPECT_TRUE(keeper->KeepsIn(In("moved")));
  EXPECT_EQ(keeper->Place(), In("moved"));
  EXPECT_EQ(keeper->RuntimeDirectory(), dir_.File("run"));
  fs::rename(dir_.File("linked"), dir_.File("state"));
  EXPECT_FALSE(keeper->KeepsIn(In("state"))) << "only the name is its own";
  EXPECT_FALSE(keeper->IsRemoved());
  fs::remove_all(dir_.File("moved"));
  EXPECT_TRUE(keeper->IsRemoved());
  EXPECT_EQ(keeper->RuntimeDirectory(), dir_.File("run"))
      << "its rank tells, too";
}

}  // namespace
}  // namespace cohort::worker

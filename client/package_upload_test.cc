#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "client/cluster.h"
#include "client/package.h"
#include "client/testing/fake_head.h"
#include "common/random.h"
#include "common/testing/seed.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort {
namespace {

class PackageUploadTest : public ::testing::Test {
 protected:
  PackageUploadTest() : head_(TestSeed()) {
    head_.Start();
    // Three parts and a bit.
    std::ofstream(directory_.File("data"), std::ios::binary)
        << random_.Bytes((3 << 20) + 1000);
  }

  Package Pack() {
    return *Package::Pack(
        *ListPackageFiles({.paths = {directory_.File("data")}}));
  }
  std::unique_ptr<Cluster> Connect() {
    return Cluster::ConnectThrough(
        head_.Connect(),
        {.on_retry = [this](const absl::Status&) { head_.Start(); }});
  }
  void ExpectHas(const Package& package) {
    const auto packages = head_.packages();
    ASSERT_EQ(packages.size(), 1u);
    EXPECT_EQ(packages.begin()->first, package.hash().bytes());
    EXPECT_EQ(packages.begin()->second,
              *package.Read(0, static_cast<size_t>(package.size_bytes())));
  }

  SeededRandom random_{1};
  TempDir directory_;
  client::FakeHead head_;
};

TEST_F(PackageUploadTest, SendsEachPartOnce) {
  const Package package = Pack();
  COHORT_ASSERT_OK(Connect()->UploadPackage(package));
  ExpectHas(package);
  EXPECT_EQ(head_.parts_received(), 4);
}

TEST_F(PackageUploadTest, SaysHowMuchTheHeadHas) {
  const Package package = Pack();
  std::vector<int64_t> sent;
  COHORT_ASSERT_OK(Connect()->UploadPackage(
      package, {.on_progress = [&](int64_t bytes) { sent.push_back(bytes); }}));
  EXPECT_THAT(sent, ::testing::ElementsAre(0, 1 << 20, 2 << 20, 3 << 20));
}

TEST_F(PackageUploadTest, SendsNothingThatTheHeadHas) {
  COHORT_ASSERT_OK(Connect()->UploadPackage(Pack()));
  // Packed again, by anybody: the same content, the same name.
  COHORT_ASSERT_OK(Connect()->UploadPackage(Pack()));
  EXPECT_EQ(head_.parts_received(), 4);
}

TEST_F(PackageUploadTest, AsksWhereToGoOnWhenAnAnswerWasLost) {
  const Package package = Pack();
  head_.LosePartAnswers(2);
  COHORT_ASSERT_OK(Connect()->UploadPackage(package));
  ExpectHas(package);
}

TEST_F(PackageUploadTest, GoesOnThroughABreakingNetwork) {
  const Package package = Pack();
  head_.SetBreakProbability(0.2);
  COHORT_ASSERT_OK(Connect()->UploadPackage(package));
  ExpectHas(package);
}

}  // namespace
}  // namespace cohort

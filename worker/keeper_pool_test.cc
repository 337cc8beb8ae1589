#include "worker/keeper_pool.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"

namespace cohort::worker {
namespace {

using ::testing::ElementsAre;

// Writes down what it is asked, and answers when it is told to.
class ScriptedKeepers final : public KeeperHost {
 public:
  void Begin(std::string keeper, std::vector<ProcessSpec> specs,
             DoneCallback done) override {
    asked.push_back(absl::StrCat("begin ", specs.size(), " ", keeper));
    std::move(done)(absl::OkStatus());
  }
  void Adopt(std::string keeper, AdoptCallback done) override {
    asked.push_back(absl::StrCat("adopt ", keeper));
    adopting = std::move(done);
  }
  void Stop(const std::string& keeper, std::vector<ProcessKey>,
            absl::Duration) override {
    asked.push_back(absl::StrCat("stop ", keeper));
  }
  void Kill(const std::string& keeper, std::vector<ProcessKey>) override {
    asked.push_back(absl::StrCat("kill ", keeper));
  }
  void Forget(const std::string& keeper, std::vector<ProcessKey> which,
              DoneCallback done) override {
    asked.push_back(absl::StrCat("forget ", which.size(), " ", keeper));
    std::move(done)(absl::OkStatus());
  }
  void Close(const std::string& keeper, DoneCallback done) override {
    asked.push_back(absl::StrCat("close ", keeper));
    closing = std::move(done);
  }

  std::vector<std::string> Asked() { return std::exchange(asked, {}); }

  std::vector<std::string> asked;
  AdoptCallback adopting;
  DoneCallback closing;
};

class KeeperPoolTest : public ::testing::Test {
 protected:
  static AttemptId Attempt(char last) {
    return *AttemptId::FromBytes(std::string(15, '\1') + last);
  }
  // Ids that end alike modulo four share a keeper.
  static v1::DesiredPlace PlaceOf(char last, const std::string& owner) {
    v1::DesiredPlace place;
    place.set_attempt_id(std::string(Attempt(last).bytes()));
    place.set_owner(owner);
    return place;
  }
  static ProcessKey Key(char last) {
    return {.attempt = Attempt(last).ToHex(), .slot = 0, .incarnation = 1};
  }
  void Begin(char last, const std::string& owner = "o") {
    ProcessSpec spec;
    spec.attempt = Attempt(last).ToHex();
    spec.incarnation = 1;
    pool_.Begin(PlaceOf(last, owner), {spec},
                [this](absl::Status status) { begun_.push_back(status.ok()); });
  }
  void Close(char last) {
    pool_.Close(Attempt(last),
                [](const absl::Status& status) { COHORT_EXPECT_OK(status); });
  }

  ManualExecutor strand_;
  ScriptedKeepers keepers_;
  KeeperPool pool_{keepers_, strand_};
  std::vector<bool> begun_;
};

TEST_F(KeeperPoolTest, APlaceWithoutAnOwnerHasAKeeperOfItsOwn) {
  Begin('\4', "");
  pool_.Kill({.attempt = Attempt('\4'), .slot = 0, .incarnation = 1});
  Close('\4');
  const std::string own = Attempt('\4').ToHex();
  EXPECT_THAT(keepers_.Asked(),
              ElementsAre("begin 1 " + own, "kill " + own, "close " + own));
}

TEST_F(KeeperPoolTest, PlacesOfAnOwnerShareUntilTheLastIsGone) {
  Begin('\4');
  Begin('\10');
  EXPECT_THAT(keepers_.Asked(),
              ElementsAre("begin 1 owner-6f-0", "begin 1 owner-6f-0"));
  Begin('\5');
  EXPECT_THAT(keepers_.Asked(), ElementsAre("begin 1 owner-6f-1"));
  Close('\4');
  strand_.AdvanceBy(2 * KeeperPool::kIdle);
  EXPECT_THAT(keepers_.Asked(), ElementsAre("forget 1 owner-6f-0"));
  Close('\10');
  EXPECT_THAT(keepers_.Asked(), ElementsAre("forget 1 owner-6f-0"));
  strand_.AdvanceBy(KeeperPool::kIdle);
  EXPECT_THAT(keepers_.Asked(), ElementsAre("close owner-6f-0"));
}

TEST_F(KeeperPoolTest, OneThatComesBackInTimeFindsTheKeeper) {
  Begin('\4');
  Close('\4');
  strand_.AdvanceBy(KeeperPool::kIdle / 2);
  Begin('\10');
  strand_.AdvanceBy(KeeperPool::kIdle);
  Close('\10');
  strand_.AdvanceBy(KeeperPool::kIdle / 2);
  EXPECT_THAT(keepers_.Asked(),
              ElementsAre("begin 1 owner-6f-0", "forget 1 owner-6f-0",
                          "begin 1 owner-6f-0", "forget 1 owner-6f-0"));
}

TEST_F(KeeperPoolTest, KeepsNoneForAnOwnerWhenNoMoreWillCome) {
  Begin('\4');
  Begin('\5');
  Close('\4');
  bool none_left = false;
  pool_.KeepNoIdle([&none_left] { none_left = true; });
  EXPECT_THAT(keepers_.Asked(),
              ElementsAre("begin 1 owner-6f-0", "begin 1 owner-6f-1",
                          "forget 1 owner-6f-0", "close owner-6f-0"));
  std::move(keepers_.closing)(absl::OkStatus());
  EXPECT_FALSE(none_left);
  Close('\5');
  EXPECT_THAT(keepers_.Asked(),
              ElementsAre("forget 1 owner-6f-1", "close owner-6f-1"));
  EXPECT_FALSE(none_left);
  std::move(keepers_.closing)(absl::OkStatus());
  EXPECT_TRUE(none_left);
  strand_.AdvanceBy(2 * KeeperPool::kIdle);
  EXPECT_THAT(keepers_.Asked(), ElementsAre());
}

// As of an actor whose next process is to begin elsewhere.
TEST_F(KeeperPoolTest, APlaceWithoutProcessesKeepsNoneAtTheEnd) {
  Begin('\4');
  bool none_left = false;
  pool_.KeepNoIdle([&none_left] { none_left = true; });
  keepers_.Asked();
  pool_.Forget({.attempt = Attempt('\4'), .slot = 0, .incarnation = 1},
               [](const absl::Status&) {});
  EXPECT_THAT(keepers_.Asked(),
              ElementsAre("forget 1 owner-6f-0", "close owner-6f-0"));
  std::move(keepers_.closing)(absl::OkStatus());
  EXPECT_TRUE(none_left);
}

TEST_F(KeeperPoolTest, ABeginWaitsForAKeeperThatIsBeingClosed) {
  Begin('\4');
  Close('\4');
  strand_.AdvanceBy(KeeperPool::kIdle);
  keepers_.Asked();
  Begin('\10');
  EXPECT_THAT(keepers_.Asked(), ElementsAre());
  std::move(keepers_.closing)(absl::OkStatus());
  EXPECT_THAT(keepers_.Asked(), ElementsAre("begin 1 owner-6f-0"));
  EXPECT_THAT(begun_, ElementsAre(true, true));
}

TEST_F(KeeperPoolTest, IsAdoptedOnceAndEachPlaceHearsOfItsOwn) {
  std::vector<std::string> heard;
  for (const char last : {'\4', '\10'}) {
    pool_.Adopt(PlaceOf(last, "o"), [&heard](auto adopted) {
      COHORT_ASSERT_OK(adopted);
      for (const ProcessKey& key : adopted->known) {
        heard.push_back(key.ToString());
      }
    });
  }
  Begin('\14');  // by a head that is fast
  EXPECT_THAT(keepers_.Asked(), ElementsAre("adopt owner-6f-0"));
  std::move(keepers_.adopting)(
      AdoptedKeeper{.known = {Key('\4'), Key('\10')}, .message = ""});
  EXPECT_THAT(heard, ElementsAre(Key('\4').ToString(), Key('\10').ToString()));
  EXPECT_THAT(keepers_.Asked(), ElementsAre("begin 1 owner-6f-0"));
  // What it has of the place is dropped with it.
  Close('\4');
  EXPECT_THAT(keepers_.Asked(), ElementsAre("forget 1 owner-6f-0"));
}

TEST_F(KeeperPoolTest, ForgetsAProcessOnce) {
  Begin('\4');
  pool_.Forget({.attempt = Attempt('\4'), .slot = 0, .incarnation = 1},
               [](const absl::Status& status) { COHORT_EXPECT_OK(status); });
  Close('\4');
  EXPECT_THAT(keepers_.Asked(),
              ElementsAre("begin 1 owner-6f-0", "forget 1 owner-6f-0",
                          "forget 0 owner-6f-0"));
}

TEST_F(KeeperPoolTest, EndsWhatNoPlaceKnows) {
  size_t known = 0;
  pool_.Adopt(PlaceOf('\4', "o"), [&known](auto adopted) {
    COHORT_ASSERT_OK(adopted);
    known = adopted->known.size();
  });
  std::move(keepers_.adopting)(
      AdoptedKeeper{.known = {Key('\4'), Key('\10')}, .message = ""});
  EXPECT_EQ(known, 1u);
  EXPECT_THAT(keepers_.Asked(),
              ElementsAre("adopt owner-6f-0", "kill owner-6f-0"));
}

}  // namespace
}  // namespace cohort::worker

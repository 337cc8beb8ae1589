#include "rpc/admission.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/status_util.h"
#include "common/testing/status_matchers.h"

namespace cohort::rpc {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Takes places for `caller` until it is refused.
std::vector<Admission::Place> TakeAll(Admission& admission,
                                      const std::string& caller) {
  std::vector<Admission::Place> places;
  while (true) {
    absl::StatusOr<Admission::Place> place =
        admission.Enter(Load::kBrief, caller);
    if (!place.ok()) return places;
    places.push_back(*std::move(place));
  }
}

TEST(AdmissionTest, OneCallerGetsHalfAndTwoAThirdEach) {
  Admission admission({.brief = 120});
  std::vector<Admission::Place> first = TakeAll(admission, "a");
  EXPECT_EQ(first.size(), 60);
  const std::vector<Admission::Place> second = TakeAll(admission, "b");
  EXPECT_EQ(second.size(), 30);
  // The first has more than its part now, and gets more once it gave back.
  EXPECT_THAT(TakeAll(admission, "a"), testing::IsEmpty());
  first.erase(first.begin() + 20, first.end());
  EXPECT_THAT(TakeAll(admission, "a"), testing::SizeIs(25));
}

// AD-1
TEST(AdmissionTest, AnotherCallerGetsInHoweverMuchOneAsks) {
  Admission admission({.brief = 1024});
  std::vector<std::vector<Admission::Place>> floods;
  for (int i = 0; i < 9; ++i) {
    floods.push_back(TakeAll(admission, absl::StrCat("flood", i)));
    EXPECT_GE(floods.back().size(), 1) << i;
    EXPECT_THAT(admission.Enter(Load::kBrief, "new"), IsOk()) << i;
  }
}

// AD-2
TEST(AdmissionTest, AnotherUserGetsInHoweverManyConnectionsOneOpens) {
  Admission admission({.brief = 400});
  const std::string ann = "user/ann";
  std::vector<Admission::Place> places;
  absl::Status refused;
  for (int connection = 0; connection < 1000; ++connection) {
    auto place = admission.Enter(
        Load::kBrief, absl::StrCat(ann, "@", connection), ann.size());
    if (place.ok()) places.push_back(*std::move(place));
    if (!place.ok()) refused = place.status();
  }
  EXPECT_EQ(places.size(), 300);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("300 of them of user/ann")));
  const std::string bob = "user/bob";
  EXPECT_THAT(admission.Enter(Load::kBrief, bob + "@1", bob.size()), IsOk());
  places.clear();
  EXPECT_THAT(admission.Enter(Load::kBrief, ann + "@1", ann.size()), IsOk());
}

TEST(AdmissionTest, RefusalSaysWhatIsFullAndWhose) {
  Admission admission({.brief = 4});
  const std::vector<Admission::Place> places = TakeAll(admission, "a");
  const absl::Status refused = admission.Enter(Load::kBrief, "a").status();
  EXPECT_THAT(refused,
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("2 of 4 calls"),
                             HasSubstr("2 of them from this connection"))));
  EXPECT_EQ(GetReason(refused), "busy");
}

TEST(AdmissionTest, KindsDoNotCrowdEachOther) {
  Admission admission({.brief = 2, .bulk = 2, .waiting = 2, .node = 2});
  const std::vector<Admission::Place> places = TakeAll(admission, "a");
  EXPECT_THAT(admission.Enter(Load::kNode, "a"), IsOk());
  EXPECT_THAT(admission.Enter(Load::kWaiting, "a"), IsOk());
  EXPECT_THAT(admission.Enter(Load::kBulk, "a"), IsOk());
}

TEST(AdmissionTest, PlacesComeBackAlsoAfterItsEnd) {
  std::vector<Admission::Place> places;
  {
    Admission admission({.brief = 8});
    for (int i = 0; i < 100; ++i) {
      EXPECT_THAT(admission.Enter(Load::kBrief, "a"), IsOk());
    }
    EXPECT_EQ(admission.taken(), 0);
    places = TakeAll(admission, "a");
    EXPECT_EQ(admission.taken(), places.size());
    Admission::Place moved = std::move(places.front());
    EXPECT_EQ(admission.taken(), places.size());
  }
}

TEST(AdmissionTest, NoPlacesAtAllRefuses) {
  Admission admission({.brief = 0});
  EXPECT_THAT(admission.Enter(Load::kBrief, "a"),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace cohort::rpc

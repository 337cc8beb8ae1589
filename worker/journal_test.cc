#include "worker/journal.h"

#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/file.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::worker {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class JournalTest : public testing::Test {
 protected:
  JournalTest()
      : directories_(temp_.path() + "/state", temp_.path() + "/runtime"),
        journal_(directories_) {
    EXPECT_THAT(journal_.Open(), IsOk());
  }

  void Flip(const std::string& path, int offset_from_end) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-offset_from_end, std::ios::end);
    file.put('\x7f');
  }

  SeededRandom random_{7};
  TempDir temp_;
  NodeDirectories directories_;
  Journal journal_;
};

TEST_F(JournalTest, ANodeKeepsItsId) {
  const absl::StatusOr<NodeId> first = journal_.LoadNodeId(random_);
  ASSERT_THAT(first, IsOk());
  EXPECT_EQ(*journal_.LoadNodeId(random_), *first);
  std::ofstream(directories_.NodeIdFile()) << "nonsense";
  EXPECT_THAT(journal_.LoadNodeId(random_).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("node_id")));
}

TEST_F(JournalTest, AFlippedDigitIsNotAnotherNode) {
  const absl::StatusOr<NodeId> first = journal_.LoadNodeId(random_);
  ASSERT_THAT(first, IsOk());
  const absl::StatusOr<std::string> whole = ReadFile(directories_.NodeIdFile());
  ASSERT_THAT(whole, IsOk());
  for (size_t i = 0; i < whole->size(); ++i) {
    std::string flipped = *whole;
    flipped[i] = flipped[i] == '1' ? '2' : '1';
    std::ofstream(directories_.NodeIdFile()) << flipped;
    EXPECT_THAT(journal_.LoadNodeId(random_).status(),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr("write this node's id there")))
        << i;
  }
  // What a person writes gets its checksum.
  std::ofstream(directories_.NodeIdFile()) << first->ToHex() << "\n";
  EXPECT_EQ(*journal_.LoadNodeId(random_), *first);
  EXPECT_EQ(*ReadFile(directories_.NodeIdFile()), *whole);
}

// As in a copy of another node's directory, to be one of its own.
TEST_F(JournalTest, AttemptsWithoutANodeAreNotTakenOver) {
  ASSERT_THAT(journal_.Save(AttemptId::New(random_), {}), IsOk());
  EXPECT_THAT(journal_.LoadNodeId(random_).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("on an empty --state-dir")));
}

TEST_F(JournalTest, ReadsBackWhatItSavedUntilItIsRemoved) {
  const AttemptId id = AttemptId::New(random_);
  JournalEntry entry;
  entry.desired.set_attempt_id(std::string(id.bytes()));
  entry.desired.add_command("true");
  entry.observed.set_phase(v1::PHASE_RUNNING);
  ASSERT_THAT(journal_.Save(id, entry), IsOk());
  entry.observed.set_phase(v1::PHASE_ENDED);
  ASSERT_THAT(journal_.Save(id, entry), IsOk());
  const auto entries = journal_.LoadAll();
  ASSERT_THAT(entries, IsOk());
  ASSERT_THAT(*entries, SizeIs(1));
  EXPECT_EQ((*entries)[0].desired.command(0), "true");
  EXPECT_EQ((*entries)[0].observed.phase(), v1::PHASE_ENDED);
  ASSERT_THAT(journal_.Remove(id), IsOk());
  ASSERT_THAT(journal_.Remove(id), IsOk());
  EXPECT_THAT(*journal_.LoadAll(), IsEmpty());
}

// One of them is no reason to give up all that the node runs.
TEST_F(JournalTest, SetsADamagedFileAsideAndKnowsTheOthers) {
  const AttemptId damaged = AttemptId::New(random_);
  const AttemptId empty = AttemptId::New(random_);
  const AttemptId whole = AttemptId::New(random_);
  for (const AttemptId& id : {damaged, empty, whole}) {
    JournalEntry entry;
    entry.desired.set_attempt_id(std::string(id.bytes()));
    ASSERT_THAT(journal_.Save(id, entry), IsOk());
  }
  Flip(directories_.JournalFile(damaged), 3);
  std::ofstream(directories_.JournalFile(empty), std::ios::trunc).flush();
  for (int start = 0; start < 2; ++start) {
    const auto entries = journal_.LoadAll();
    ASSERT_THAT(entries, IsOk());
    ASSERT_THAT(*entries, SizeIs(1));
    EXPECT_EQ((*entries)[0].desired.attempt_id(), whole.bytes());
  }
  EXPECT_THAT(ReadFile(directories_.Journal() + "/damaged"), IsOk());
}

TEST_F(JournalTest, KeepsTheBinding) {
  ASSERT_THAT(journal_.LoadBinding(), IsOk());
  EXPECT_FALSE(journal_.LoadBinding()->has_value());
  v1::Stamp stamp;
  stamp.set_cluster_id("c");
  stamp.set_term(4);
  stamp.set_nonce(9);
  ASSERT_THAT(journal_.SaveBinding(stamp), IsOk());
  EXPECT_EQ((*journal_.LoadBinding())->term(), 4u);
  EXPECT_EQ((*journal_.LoadBinding())->nonce(), 9u);
  Flip(directories_.BindingFile(), 1);
  EXPECT_THAT(journal_.LoadBinding().status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("cluster is damaged: it says which life")));
}

}  // namespace
}  // namespace cohort::worker

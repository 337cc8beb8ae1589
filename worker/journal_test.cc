#include "worker/journal.h"

#include <fstream>
#include <set>
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

  static PlaceEntry Place(const AttemptId& id) {
    PlaceEntry entry;
    entry.desired.set_attempt_id(std::string(id.bytes()));
    return entry;
  }
  static ProcessEntry Process(const ProcessId& id) {
    ProcessEntry entry;
    entry.begun.set_attempt_id(std::string(id.attempt.bytes()));
    entry.observed.set_slot(id.slot);
    entry.observed.set_incarnation(id.incarnation);
    return entry;
  }
  // As a daemon that starts reads it.
  JournalEntries Loaded() {
    absl::StatusOr<JournalEntries> entries = Journal(directories_).LoadAll();
    EXPECT_THAT(entries, IsOk());
    return entries.value_or(JournalEntries());
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
  const AttemptId id = AttemptId::New(random_);
  ASSERT_THAT(journal_.Save(id, Place(id)), IsOk());
  EXPECT_THAT(Journal(directories_).LoadNodeId(random_).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("on an empty --state-dir")));
  // One that has had some and has none is not one that was copied.
  ASSERT_THAT(journal_.Remove(id), IsOk());
  EXPECT_THAT(Journal(directories_).LoadNodeId(random_), IsOk());
}

TEST_F(JournalTest, ReadsBackWhatItSavedUntilItIsRemoved) {
  const AttemptId id = AttemptId::New(random_);
  const AttemptId other = AttemptId::New(random_);
  PlaceEntry place = Place(id);
  place.desired.mutable_launch()->add_command("true");
  ASSERT_THAT(journal_.Save(id, place), IsOk());
  place.observed.set_phase(v1::PHASE_PREPARED);
  ASSERT_THAT(journal_.Save(id, place), IsOk());
  ASSERT_THAT(journal_.Save(other, Place(other)), IsOk());
  for (const int slot : {0, 1}) {
    const ProcessId process = {id, slot, 5};
    ASSERT_THAT(journal_.Save(process, Process(process)), IsOk());
  }
  JournalEntries entries = Loaded();
  ASSERT_THAT(entries.places, SizeIs(2));
  const bool first = entries.places[0].desired.attempt_id() == id.bytes();
  const PlaceEntry& read = entries.places[first ? 0 : 1];
  EXPECT_EQ(read.desired.launch().command(0), "true");
  EXPECT_EQ(read.observed.phase(), v1::PHASE_PREPARED);
  ASSERT_THAT(entries.processes, SizeIs(2));
  EXPECT_EQ(entries.processes[1].begun.attempt_id(), id.bytes());
  EXPECT_EQ(entries.processes[1].observed.slot(), 1);

  ASSERT_THAT(journal_.Remove(ProcessId{id, 1, 5}), IsOk());
  ASSERT_THAT(journal_.Remove(ProcessId{id, 1, 5}), IsOk());
  EXPECT_THAT(Loaded().processes, SizeIs(1));
  ASSERT_THAT(journal_.Remove(id), IsOk());
  entries = Loaded();
  ASSERT_THAT(entries.places, SizeIs(1));
  EXPECT_EQ(entries.places[0].desired.attempt_id(), other.bytes());
  EXPECT_THAT(entries.processes, IsEmpty());
}

// One of them is not a reason to give up all that the node runs.
TEST_F(JournalTest, ADamagedRecordLosesThatProcessOnly) {
  const AttemptId id = AttemptId::New(random_);
  ASSERT_THAT(journal_.Save(id, Place(id)), IsOk());
  for (const int slot : {0, 1, 2}) {
    const ProcessId process = {id, slot, 5};
    ASSERT_THAT(journal_.Save(process, Process(process)), IsOk());
  }
  const std::string whole = *ReadFile(directories_.JournalFile());
  // Wherever a byte is flipped: in sizes, names and values.
  std::set<size_t> lost;
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string flipped = whole;
    flipped[i] ^= 0x01;
    std::ofstream(directories_.JournalFile(), std::ios::binary) << flipped;
    const JournalEntries entries = Loaded();
    EXPECT_EQ(entries.places.size() + entries.processes.size(), 3u) << i;
    lost.insert(entries.processes.size());
    EXPECT_EQ(*ReadFile(directories_.Journal() + "/damaged"), flipped);
  }
  EXPECT_THAT(lost, testing::ElementsAre(2, 3));
}

// As power that fails during a write leaves it.
TEST_F(JournalTest, ATornEndLosesTheLastRecordOnly) {
  const AttemptId id = AttemptId::New(random_);
  ASSERT_THAT(journal_.Save(id, Place(id)), IsOk());
  const size_t first = ReadFile(directories_.JournalFile())->size();
  const ProcessId process = {id, 0, 1};
  ASSERT_THAT(journal_.Save(process, Process(process)), IsOk());
  const std::string whole = *ReadFile(directories_.JournalFile());
  for (size_t size = first; size < whole.size(); ++size) {
    std::ofstream(directories_.JournalFile(), std::ios::binary)
        << whole.substr(0, size);
    const JournalEntries entries = Loaded();
    EXPECT_THAT(entries.places, SizeIs(1));
    EXPECT_THAT(entries.processes, IsEmpty());
  }
}

TEST_F(JournalTest, IsWrittenAnewWhenMostOfItIsReplaced) {
  const AttemptId id = AttemptId::New(random_);
  PlaceEntry place = Place(id);
  place.desired.mutable_launch()->add_command(std::string(64 << 10, 'x'));
  const ProcessId process = {id, 0, 1};
  ASSERT_THAT(journal_.Save(process, Process(process)), IsOk());
  for (int i = 0; i < 1'000; ++i) {
    place.observed.set_master_port(i);
    ASSERT_THAT(journal_.Save(id, place), IsOk());
  }
  ASSERT_THAT(journal_.Sync(), IsOk());
  EXPECT_LT(ReadFile(directories_.JournalFile())->size(), size_t{2} << 20);
  const JournalEntries entries = Loaded();
  ASSERT_THAT(entries.places, SizeIs(1));
  EXPECT_EQ(entries.places[0].observed.master_port(), 999);
  EXPECT_THAT(entries.processes, SizeIs(1));
}

// It was removed, or put back from a copy, under a daemon that runs.
TEST_F(JournalTest, AFileThatIsGoneIsWrittenAnew) {
  const AttemptId id = AttemptId::New(random_);
  const AttemptId other = AttemptId::New(random_);
  ASSERT_THAT(journal_.Save(id, Place(id)), IsOk());
  ASSERT_THAT(RemoveTree(directories_.Journal()), IsOk());
  EXPECT_FALSE(journal_.Save(other, Place(other)).ok());
  ASSERT_THAT(MakeDirectories(directories_.Journal(), 0700), IsOk());
  ASSERT_THAT(journal_.Save(other, Place(other)), IsOk());
  EXPECT_THAT(Loaded().places, SizeIs(2));
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

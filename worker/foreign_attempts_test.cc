#include "worker/foreign_attempts.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/file.h"
#include "common/testing/status_matchers.h"
#include "worker/attempt_dir.h"
#include "worker/keeper_spawn.h"
#include "worker/runtime_directory.h"
#include "worker/testing/keeper_fixture.h"

namespace cohort::worker {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

NodeId Node(char digit) { return *NodeId::FromHex(std::string(32, digit)); }

class ForeignAttemptsTest : public KeeperClientTest {
 protected:
  // What a daemon of `node` has of an attempt once it has begun.
  AttemptId Begin(char digit, const std::string& runtime) {
    const AttemptId attempt = *AttemptId::FromHex(std::string(32, digit));
    KeeperSpec spec = Spec({"true"});
    spec.attempt = attempt.ToHex();
    spec.runtime_dir = absl::StrCat(runtime, "/", attempt.ToHex());
    for (const std::string& path :
         {directories_.Attempts(), directories_.Journal(),
          directories_.Work(attempt), directories_.AllLogs()}) {
      COHORT_EXPECT_OK(MakeDirectories(path, 0700));
    }
    COHORT_EXPECT_OK(MakeAttemptDir(In(attempt), spec).status());
    std::ofstream(directories_.JournalFile(attempt)) << "entry";
    return attempt;
  }
  std::string In(const AttemptId& attempt) {
    return absl::StrCat(directories_.Attempts(), "/", attempt.ToHex());
  }
  // How much of it is left.
  int Left(const AttemptId& attempt) {
    int left = 0;
    for (const std::string& path :
         {In(attempt), directories_.JournalFile(attempt),
          directories_.Work(attempt)}) {
      if (fs::exists(path)) ++left;
    }
    return left;
  }

  const std::string own_ = RuntimeDirectory::PathOf(Node('a'));
  const std::string foreign_ = RuntimeDirectory::PathOf(Node('b'));
  const NodeDirectories directories_{dir_.File("state"), own_};
};

TEST_F(ForeignAttemptsTest, ADirectoryWithoutANodeIdKeepsNone) {
  const AttemptId attempt = Begin('1', foreign_);
  COHORT_EXPECT_OK(RemoveAttemptsWithoutNode(directories_));
  EXPECT_EQ(Left(attempt), 0);
  EXPECT_TRUE(fs::exists(directories_.AllLogs()));
}

// Of a worker whose `work` is a disk that it shares, as a copy's is.
TEST_F(ForeignAttemptsTest, WorkThatLiesElsewhereIsLeftAlone) {
  const std::string shared = dir_.File("scratch");
  const AttemptId attempt = Begin('1', foreign_);
  fs::rename(directories_.AllWork(), shared);
  fs::create_symlink(shared, directories_.AllWork());
  const AttemptId others = *AttemptId::FromHex(std::string(32, '9'));
  fs::create_directories(directories_.Work(others));
  COHORT_EXPECT_OK(RemoveAttemptsWithoutNode(directories_));
  EXPECT_EQ(Left(attempt), 1);
  EXPECT_TRUE(fs::exists(directories_.Work(attempt)));
  EXPECT_TRUE(fs::exists(directories_.Work(others)));
}

// The node that was copied has its records there, too.
TEST_F(ForeignAttemptsTest, AttemptsThatLieElsewhereAreLeftAlone) {
  const std::string shared = dir_.File("disk");
  const AttemptId attempt = Begin('1', foreign_);
  fs::rename(directories_.Attempts(), shared);
  fs::create_symlink(shared, directories_.Attempts());
  COHORT_EXPECT_OK(RemoveForeignAttempts(directories_));
  EXPECT_FALSE(fs::exists(directories_.JournalFile(attempt)));
  EXPECT_TRUE(fs::exists(In(attempt) + "/spec"));
  COHORT_EXPECT_OK(RemoveAttemptsWithoutNode(directories_));
  EXPECT_TRUE(fs::exists(In(attempt) + "/spec"));
}

TEST_F(ForeignAttemptsTest, AJournalThatLiesElsewhereIsNotTaken) {
  const std::string shared = dir_.File("disk");
  const AttemptId attempt = Begin('1', foreign_);
  fs::rename(directories_.Journal(), shared);
  fs::create_symlink(shared, directories_.Journal());
  const auto refused = StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr(directories_.Journal()));
  EXPECT_THAT(RemoveAttemptsWithoutNode(directories_), refused);
  EXPECT_THAT(RemoveForeignAttempts(directories_), refused);
  EXPECT_EQ(Left(attempt), 3);
  fs::remove(directories_.JournalFile(attempt));
  COHORT_EXPECT_OK(RemoveAttemptsWithoutNode(directories_));
}

TEST_F(ForeignAttemptsTest, ANewDirectoryHasNone) {
  COHORT_EXPECT_OK(RemoveAttemptsWithoutNode(directories_));
  COHORT_EXPECT_OK(RemoveForeignAttempts(directories_));
}

TEST_F(ForeignAttemptsTest, OnlyThoseOfAnotherNodeGo) {
  const AttemptId own = Begin('1', own_);
  const AttemptId foreign = Begin('2', foreign_);
  const AttemptId elsewhere = Begin('3', dir_.File("run"));
  COHORT_EXPECT_OK(RemoveForeignAttempts(directories_));
  EXPECT_EQ(Left(own), 3);
  EXPECT_EQ(Left(foreign), 0);
  EXPECT_EQ(Left(elsewhere), 3) << "no node's directory: nothing is known";
}

TEST_F(ForeignAttemptsTest, WhatLivesInThisVeryDirectoryIsNotRemoved) {
  const AttemptId attempt = *AttemptId::FromHex(std::string(32, '4'));
  KeeperSpec spec = Spec({"exec sleep 1000"});
  spec.attempt = attempt.ToHex();
  ASSERT_EQ(keeper::MakeDirectories(directories_.Attempts()), "");
  const absl::StatusOr<NewAttemptDir> made = MakeAttemptDir(In(attempt), spec);
  COHORT_ASSERT_OK(made);
  const auto listener = ListenForKeeper(spec.runtime_dir);
  COHORT_ASSERT_OK(listener);
  const auto connection = ConnectToKeeper(spec.runtime_dir);
  COHORT_ASSERT_OK(connection);
  const absl::StatusOr<KeeperProcess> process =
      SpawnKeeper(COHORT_KEEPER_PROGRAM, In(attempt), *made, *listener);
  COHORT_ASSERT_OK(process);
  pollfd hello = {connection->get(), POLLIN, 0};
  ASSERT_EQ(poll(&hello, 1, absl::ToInt64Milliseconds(kDeadline)), 1);
  EXPECT_THAT(RemoveAttemptsWithoutNode(directories_),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(absl::StrCat("kill ", process->pid)),
                             HasSubstr(directories_.NodeIdFile()))));
  EXPECT_TRUE(fs::exists(In(attempt) + "/spec"));
  // Those of the node that was copied, perhaps.
  fs::rename(directories_.Attempts(), dir_.File("disk"));
  fs::create_symlink(dir_.File("disk"), directories_.Attempts());
  EXPECT_THAT(RemoveAttemptsWithoutNode(directories_),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(Not(HasSubstr("kill ")),
                             HasSubstr("empty directory in place of"))));
}

}  // namespace
}  // namespace cohort::worker

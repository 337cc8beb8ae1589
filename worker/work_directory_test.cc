#include "worker/work_directory.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/file.h"
#include "common/random.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "common/unique_fd.h"

namespace cohort::worker {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kGeneration[] = "0123456789abcdef";

class WorkDirectoryTest : public testing::Test {
 protected:
  WorkDirectoryTest() {
    COHORT_EXPECT_OK(MakeDirectories(directories_.AllWork(), 0700));
  }

  v1::DesiredPlace Place(int number, bool keep_work = false) {
    v1::DesiredPlace place;
    place.set_attempt_id(std::string(AttemptId::New(random_).bytes()));
    place.set_job_id(std::string(16, 'j'));
    place.set_number(number);
    place.set_keep_work(keep_work);
    return place;
  }
  static AttemptId IdOf(const v1::DesiredPlace& place) {
    return *AttemptId::FromBytes(place.attempt_id());
  }
  std::string Work(const v1::DesiredPlace& place) const {
    return directories_.Work(IdOf(place));
  }
  static void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(ParentDirectory(path));
    std::ofstream(path) << text;
  }
  std::string Run(const v1::DesiredPlace& place) const {
    return directories_.RunDirectory(place);
  }
  std::vector<std::string> Listed(const v1::DesiredPlace& place) const {
    std::vector<std::string> paths;
    const auto files = work_.List(place);
    COHORT_EXPECT_OK(files);
    if (!files.ok()) return paths;
    for (const v1::RunFile& file : *files) paths.push_back(file.path());
    return paths;
  }

  TempDir temp_;
  SeededRandom random_{1};
  NodeDirectories directories_{temp_.File("state"), temp_.File("runtime")};
  WorkDirectories work_{directories_, "rack 7/n1", "1f"};
};

TEST_F(WorkDirectoryTest, KeepsWhatARankWroteAndWhatItPutInItsRunDirectory) {
  const v1::DesiredPlace place = Place(1);
  COHORT_ASSERT_OK(work_.Make(place, "", kGeneration));
  Write(Work(place) + "/snapshot.pt", "epoch 3");
  Write(Work(place) + "/runs/a/events", "x");
  Write(Work(place) + "/__pycache__/m.pyc", "x");
  Write(Run(place) + "/model.pt", "weights");
  // The same names before and after the attempt has ended.
  const auto names = ElementsAre("model.pt", "work-1/rack 7_n1/runs/a/events",
                                 "work-1/rack 7_n1/snapshot.pt");
  EXPECT_THAT(Listed(place), names);
  COHORT_ASSERT_OK(work_.Remove(IdOf(place)));
  EXPECT_THAT(Listed(place), names);
  EXPECT_EQ(ReadFile(Run(place) + "/work-1/rack 7_n1/snapshot.pt").value(),
            "epoch 3");
  EXPECT_NE(access(Work(place).c_str(), F_OK), 0);
}

TEST_F(WorkDirectoryTest, APackagesProgramIsTheRanksOnceTheyReplaceIt) {
  Write(temp_.File("package/program"),
        "\x7f"
        "ELF 1");
  Write(temp_.File("package/data"), "data 1");
  std::filesystem::permissions(temp_.File("package/program"),
                               std::filesystem::perms::owner_all);
  const std::string archive = temp_.File("archive");
  ASSERT_EQ(
      std::system(absl::StrCat("tar --format=ustar -C ", temp_.File("package"),
                               " -cf ", archive, " program data")
                      .c_str()),
      0);
  const v1::DesiredPlace first = Place(1);
  const v1::DesiredPlace second = Place(2);
  COHORT_ASSERT_OK(work_.Make(first, archive, kGeneration));
  COHORT_ASSERT_OK(work_.Make(second, archive, kGeneration));
  // Another place's links are not a change, nor is their release by the cache.
  COHORT_ASSERT_OK(RemoveTree(archive + ".programs"));
  EXPECT_THAT(Listed(first), IsEmpty());
  // Nor is who may run it, which another job may have changed.
  std::filesystem::permissions(Work(second) + "/program",
                               std::filesystem::perms::owner_all);
  EXPECT_THAT(Listed(first), IsEmpty());
  ASSERT_EQ(unlink((Work(first) + "/program").c_str()), 0);
  Write(Work(first) + "/program",
        "\x7f"
        "ELF 2");
  EXPECT_THAT(Listed(first), ElementsAre("work-1/rack 7_n1/program"));
  // Written to where it lies it is another one in all places.
  Write(Work(second) + "/program",
        "\x7f"
        "ELF 3");
  EXPECT_THAT(Listed(second), ElementsAre("work-1/rack 7_n1/program",
                                          "work-2/rack 7_n1/program"));
}

TEST_F(WorkDirectoryTest, LeavesNothingOfAJobThatLeftNothing) {
  const v1::DesiredPlace place = Place(1);
  COHORT_ASSERT_OK(work_.Make(place, "", kGeneration));
  EXPECT_EQ(access(Run(place).c_str(), F_OK), 0);
  COHORT_ASSERT_OK(work_.Remove(IdOf(place)));
  EXPECT_TRUE(std::filesystem::is_empty(directories_.Results()));
  EXPECT_TRUE(std::filesystem::is_empty(directories_.AllWork()));
}

TEST_F(WorkDirectoryTest, ATreeOfManyLevelsGoesAndTakesNoDescriptors) {
  const v1::DesiredPlace place = Place(1);
  COHORT_ASSERT_OK(work_.Make(place, "", kGeneration));
  Write(Work(place) + "/a/b", "x");
  UniqueFd at(open(Work(place).c_str(), O_RDONLY | O_DIRECTORY));
  for (int level = 0; level < 5'000; ++level) {
    ASSERT_EQ(mkdirat(at.get(), "d", 0700), 0);
    at = UniqueFd(openat(at.get(), "d", O_RDONLY | O_DIRECTORY));
  }
  at.Reset();
  struct rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const struct rlimit few = {512, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const absl::Status removed = work_.Remove(IdOf(place));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  COHORT_EXPECT_OK(removed);
  EXPECT_TRUE(std::filesystem::is_empty(directories_.AllWork()));
  EXPECT_THAT(Listed(place), ElementsAre("work-1/rack 7_n1/a/b"));
}

TEST_F(WorkDirectoryTest, TheRunDirectoryStaysWhileAnotherAttemptUsesIt) {
  const v1::DesiredPlace first = Place(1);
  const v1::DesiredPlace second = Place(2);
  COHORT_ASSERT_OK(work_.Make(first, "", kGeneration));
  COHORT_ASSERT_OK(work_.Make(second, "", kGeneration));
  COHORT_ASSERT_OK(work_.Remove(IdOf(first)));
  EXPECT_EQ(access(Run(second).c_str(), F_OK), 0);
}

TEST_F(WorkDirectoryTest, AnAttemptStartsWithWhatTheFormerOneLeft) {
  const v1::DesiredPlace first = Place(1, /*keep_work=*/true);
  COHORT_ASSERT_OK(work_.Make(first, "", kGeneration));
  Write(Work(first) + "/snapshot.pt", "epoch 3");
  COHORT_ASSERT_OK(work_.Remove(IdOf(first)));
  // The third: the second was elsewhere.
  const v1::DesiredPlace third = Place(3, /*keep_work=*/true);
  COHORT_ASSERT_OK(work_.Make(third, "", kGeneration));
  EXPECT_EQ(ReadFile(Work(third) + "/snapshot.pt").value(), "epoch 3");
  EXPECT_THAT(Listed(third), ElementsAre("work-3/rack 7_n1/snapshot.pt"));
}

TEST_F(WorkDirectoryTest, SaysWhatKeepWorkDidNotFind) {
  const v1::DesiredPlace first = Place(1, /*keep_work=*/true);
  COHORT_ASSERT_OK(work_.Make(first, "", kGeneration));
  Write(Work(first) + "/snapshot.pt", "epoch 3");
  COHORT_ASSERT_OK(work_.Remove(IdOf(first)));
  EXPECT_THAT(work_.TakeWarnings(), IsEmpty());
  COHORT_ASSERT_OK(work_.Make(Place(2, /*keep_work=*/true), "", kGeneration));
  EXPECT_THAT(work_.TakeWarnings(), IsEmpty());
  COHORT_ASSERT_OK(work_.Make(Place(4, /*keep_work=*/true), "", kGeneration));
  EXPECT_THAT(work_.TakeWarnings(),
              ElementsAre(HasSubstr("starts with what attempt 2 left there")));
  v1::DesiredPlace elsewhere = Place(2, /*keep_work=*/true);
  elsewhere.set_job_id(std::string(16, 'k'));
  COHORT_ASSERT_OK(work_.Make(elsewhere, "", kGeneration));
  EXPECT_THAT(work_.TakeWarnings(),
              ElementsAre(HasSubstr("attempt 2 on rack 7/n1 found no files")));
}

TEST_F(WorkDirectoryTest, TakesWhatAnotherNodeLeftOnSharedStorage) {
  WorkDirectories other(directories_, "n2", "2f");
  v1::DesiredPlace first = Place(1, /*keep_work=*/true);
  v1::DesiredPlace second = Place(2, /*keep_work=*/true);
  for (v1::DesiredPlace* place : {&first, &second}) {
    place->set_storage_path(temp_.File("shared"));
    place->set_node_count(1);
  }
  EXPECT_FALSE(work_.AwaitsFormer(first));
  COHORT_ASSERT_OK(other.Make(first, "", kGeneration));
  Write(Work(first) + "/snapshot.pt", "epoch 3");
  EXPECT_TRUE(work_.AwaitsFormer(second));
  EXPECT_FALSE(other.AwaitsFormer(second));  // it removes its own itself
  COHORT_ASSERT_OK(other.Remove(IdOf(first)));
  EXPECT_FALSE(work_.AwaitsFormer(second));
  COHORT_ASSERT_OK(work_.Make(second, "", kGeneration));
  EXPECT_EQ(ReadFile(Work(second) + "/snapshot.pt").value(), "epoch 3");
  EXPECT_THAT(work_.TakeWarnings(), IsEmpty());
}

TEST_F(WorkDirectoryTest, AwaitsNothingOfAnAttemptThatLeftNothing) {
  WorkDirectories other(directories_, "n2", "2f");
  v1::DesiredPlace first = Place(1, /*keep_work=*/true);
  first.set_storage_path(temp_.File("shared"));
  first.set_node_count(1);
  COHORT_ASSERT_OK(other.Make(first, "", kGeneration));
  COHORT_ASSERT_OK(other.Remove(IdOf(first)));
  v1::DesiredPlace second = first;
  second.set_number(2);
  EXPECT_FALSE(work_.AwaitsFormer(second));
  EXPECT_TRUE(std::filesystem::is_empty(Run(first)));
}

TEST_F(WorkDirectoryTest, LinksOfATreeIntoItselfGoWithIt) {
  const v1::DesiredPlace place = Place(1);
  COHORT_ASSERT_OK(work_.Make(place, "", kGeneration));
  Write(Work(place) + "/runs/ckpt-5.pt", "epoch 5");
  std::filesystem::create_symlink(Work(place) + "/runs/ckpt-5.pt",
                                  Work(place) + "/runs/latest.pt");
  std::filesystem::create_symlink(Work(place) + "/runs/ckpt-5.pt",
                                  Work(place) + "/latest.pt");
  std::filesystem::create_symlink("/etc/hosts", Work(place) + "/hosts");
  const auto links = [&] {
    std::vector<std::string> targets;
    const auto files = work_.List(place);
    for (const v1::RunFile& file : *files) targets.push_back(file.link());
    return targets;
  };
  const auto expected =
      ElementsAre("/etc/hosts", "runs/ckpt-5.pt", "", "ckpt-5.pt");
  EXPECT_THAT(links(), expected);
  COHORT_ASSERT_OK(work_.Remove(IdOf(place)));
  EXPECT_THAT(links(), expected);
  EXPECT_EQ(ReadFile(Run(place) + "/work-1/rack 7_n1/runs/latest.pt").value(),
            "epoch 5");
}

TEST_F(WorkDirectoryTest, TheFormerAttemptNeedNotHaveGoneYet) {
  const v1::DesiredPlace first = Place(1, /*keep_work=*/true);
  COHORT_ASSERT_OK(work_.Make(first, "", kGeneration));
  Write(Work(first) + "/snapshot.pt", "epoch 3");
  const v1::DesiredPlace second = Place(2, /*keep_work=*/true);
  COHORT_ASSERT_OK(work_.Make(second, "", kGeneration));
  EXPECT_EQ(ReadFile(Work(second) + "/snapshot.pt").value(), "epoch 3");
  COHORT_EXPECT_OK(work_.Remove(IdOf(first)));
}

TEST_F(WorkDirectoryTest, KeepsTheNewestWithinTheBoundAndNamesTheOthers) {
  WorkDirectories work(directories_, "n1", "1f", {.bytes = 10});
  const v1::DesiredPlace place = Place(1);
  COHORT_ASSERT_OK(work.Make(place, "", kGeneration));
  Write(Work(place) + "/old", "12345678");
  Write(Work(place) + "/new", "12345678");
  const timespec past[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
  utimensat(AT_FDCWD, (Work(place) + "/old").c_str(), past, 0);
  COHORT_ASSERT_OK(work.Remove(IdOf(place)));
  EXPECT_EQ(access((Run(place) + "/work-1/n1/new").c_str(), F_OK), 0);
  EXPECT_NE(access((Run(place) + "/work-1/n1/old").c_str(), F_OK), 0);
  EXPECT_THAT(ReadFile(Run(place) + "/work-1/n1.not-kept.txt").value(),
              HasSubstr("\nold\n"));
  EXPECT_THAT(
      work.TakeWarnings(),
      ElementsAre(AllOf(HasSubstr("1 file of attempt 1 on n1 was not kept"),
                        HasSubstr("work-1/n1.not-kept.txt"))));
}

TEST_F(WorkDirectoryTest, KeepsSmallFilesBesideALargeNewerOne) {
  WorkDirectories work(directories_, "n1", "1f", {.bytes = 8192});
  const v1::DesiredPlace place = Place(1);
  COHORT_ASSERT_OK(work.Make(place, "", kGeneration));
  Write(Work(place) + "/epoch", "3");
  Write(Work(place) + "/before", std::string(5000, 'x'));
  Write(Work(place) + "/model", std::string(9000, 'x'));
  const timespec past[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
  utimensat(AT_FDCWD, (Work(place) + "/epoch").c_str(), past, 0);
  utimensat(AT_FDCWD, (Work(place) + "/before").c_str(), past, 0);
  COHORT_ASSERT_OK(work.Remove(IdOf(place)));
  EXPECT_EQ(access((Run(place) + "/work-1/n1/epoch").c_str(), F_OK), 0);
  EXPECT_EQ(access((Run(place) + "/work-1/n1/model").c_str(), F_OK), 0);
  EXPECT_NE(access((Run(place) + "/work-1/n1/before").c_str(), F_OK), 0);
}

TEST_F(WorkDirectoryTest, KeepsTheNewestHoweverLargeItIs) {
  WorkDirectories work(directories_, "n1", "1f", {.bytes = 3});
  const v1::DesiredPlace place = Place(1);
  COHORT_ASSERT_OK(work.Make(place, "", kGeneration));
  Write(Work(place) + "/snapshot", "12345678");
  COHORT_ASSERT_OK(work.Remove(IdOf(place)));
  EXPECT_EQ(access((Run(place) + "/work-1/n1/snapshot").c_str(), F_OK), 0);
}

TEST_F(WorkDirectoryTest, KeepsWhatAllResultsHaveRoomForAndRemovesNoOthers) {
  WorkDirectories work(directories_, "n1", "1f", {.results_bytes = 40});
  const v1::DesiredPlace first = Place(1);
  COHORT_ASSERT_OK(work.Make(first, "", kGeneration));
  Write(Run(first) + "/checkpoint", "1234567");
  Write(Work(first) + "/a", "12345678");
  COHORT_ASSERT_OK(work.Remove(IdOf(first)));
  // 31 bytes, with the generation of the job's directory.
  const v1::DesiredPlace second = Place(2);
  COHORT_ASSERT_OK(work.Make(second, "", kGeneration));
  Write(Work(second) + "/old", "123456789");
  Write(Work(second) + "/new", "12345678");
  const timespec past[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
  utimensat(AT_FDCWD, (Work(second) + "/old").c_str(), past, 0);
  COHORT_ASSERT_OK(work.Remove(IdOf(second)));
  // And the newest is not kept either when there is no room for it.
  const v1::DesiredPlace third = Place(3);
  COHORT_ASSERT_OK(work.Make(third, "", kGeneration));
  Write(Work(third) + "/last", "12345678");
  COHORT_ASSERT_OK(work.Remove(IdOf(third)));
  EXPECT_THAT(Listed(first),
              ElementsAre("checkpoint", "work-1/n1/a", "work-2/n1.not-kept.txt",
                          "work-2/n1/new", "work-3/n1.not-kept.txt"));
  EXPECT_THAT(ReadFile(Run(first) + "/work-2/n1.not-kept.txt").value(),
              AllOf(HasSubstr("had 9 bytes left of the 40"),
                    HasSubstr("jobs remove"), HasSubstr("\nold\n")));
}

TEST_F(WorkDirectoryTest, ListsWhatAnAttemptWillHaveLeft) {
  WorkDirectories work(directories_, "n1", "1f", {.files = 1});
  const v1::DesiredPlace place = Place(1);
  COHORT_ASSERT_OK(work.Make(place, "", kGeneration));
  Write(Work(place) + "/old", "1");
  Write(Work(place) + "/new", "1");
  const timespec past[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
  utimensat(AT_FDCWD, (Work(place) + "/old").c_str(), past, 0);
  const auto look = [&] {
    std::string text;
    const auto files = work.List(place);
    COHORT_EXPECT_OK(files);
    for (const v1::RunFile& file : *files) {
      absl::StrAppend(&text, file.path(), " ", file.size_bytes(), "\n");
    }
    const auto list = work.Open(place, "work-1/n1.not-kept.txt");
    COHORT_EXPECT_OK(list);
    char bytes[1000];
    const ssize_t n = read(list->get(), bytes, sizeof(bytes));
    return text.append(bytes, static_cast<size_t>(std::max<ssize_t>(n, 0)));
  };
  const std::string before = look();
  EXPECT_THAT(before, AllOf(HasSubstr("work-1/n1/new 1\n"),
                            HasSubstr("was not kept"), HasSubstr("\nold\n")));
  COHORT_ASSERT_OK(work.Remove(IdOf(place)));
  EXPECT_EQ(look(), before);
}

TEST_F(WorkDirectoryTest, BoundsNoResultsOnStorageOfTheJobs) {
  WorkDirectories work(directories_, "n1", "1f", {.results_bytes = 0});
  v1::DesiredPlace place = Place(1);
  place.set_storage_path(temp_.File("shared"));
  COHORT_ASSERT_OK(work.Make(place, "", kGeneration));
  Write(Work(place) + "/a", "12345678");
  COHORT_ASSERT_OK(work.Remove(IdOf(place)));
  EXPECT_EQ(access((Run(place) + "/work-1/n1.1f/a").c_str(), F_OK), 0);
}

TEST_F(WorkDirectoryTest, SaysWhatIsNotKeptWhereNothingElseIs) {
  WorkDirectories work(directories_, "n1", "1f", {.files = 0});
  const v1::DesiredPlace place = Place(1);
  COHORT_ASSERT_OK(work.Make(place, "", kGeneration));
  Write(Work(place) + "/a", "1");
  COHORT_ASSERT_OK(work.Remove(IdOf(place)));
  EXPECT_EQ(access((Run(place) + "/work-1/n1.not-kept.txt").c_str(), F_OK), 0);
}

// A rename changes no time of what is in a directory.
TEST_F(WorkDirectoryTest, KeepsADirectoryThatIsOlderThanTheAttempt) {
  Write(temp_.File("old/model.pt"), "x");
  const v1::DesiredPlace place = Place(1);
  COHORT_ASSERT_OK(work_.Make(place, "", kGeneration));
  std::filesystem::rename(temp_.File("old"), Work(place) + "/old");
  COHORT_ASSERT_OK(work_.Remove(IdOf(place)));
  EXPECT_THAT(Listed(place), ElementsAre("work-1/rack 7_n1/old/model.pt"));
}

// A daemon that was restarted has only what is on disk.
TEST_F(WorkDirectoryTest, AnotherDaemonKnowsWhatIsHere) {
  const v1::DesiredPlace place = Place(1);
  COHORT_ASSERT_OK(work_.Make(place, "", kGeneration));
  Write(Work(place) + "/a", "x");
  WorkDirectories next(directories_, "n1", "1f");
  COHORT_ASSERT_OK(next.Remove(IdOf(place)));
  EXPECT_EQ(access((Run(place) + "/work-1/n1/a").c_str(), F_OK), 0);
  EXPECT_TRUE(std::filesystem::is_empty(directories_.AllWork()));
}

// Where several nodes may have one name.
TEST_F(WorkDirectoryTest, NodesWithOneStorageAreInNobodysWay) {
  v1::DesiredPlace place = Place(1);
  place.set_storage_path(temp_.File("shared"));
  COHORT_ASSERT_OK(work_.Make(place, "", kGeneration));
  Write(Work(place) + "/a", "x");
  EXPECT_THAT(Listed(place), ElementsAre("work-1/rack 7_n1.1f/a"));
}

TEST_F(WorkDirectoryTest, OpensFilesBelowTheRunDirectoryOnly) {
  const v1::DesiredPlace place = Place(1);
  COHORT_ASSERT_OK(work_.Make(place, "", kGeneration));
  Write(temp_.File("secret"), "x");
  Write(Run(place) + "/a", "x");
  std::filesystem::create_symlink(temp_.File("secret"), Run(place) + "/b");
  Write(Work(place) + "/c", "x");
  COHORT_EXPECT_OK(work_.Open(place, "a"));
  COHORT_EXPECT_OK(work_.Open(place, "work-1/rack 7_n1/c"));
  for (const char* path : {"b", "../out/a", "/etc/passwd", "work-1", "d"}) {
    EXPECT_FALSE(work_.Open(place, path).ok()) << path;
  }
}

TEST_F(WorkDirectoryTest, ListsCheckpointsByTheirManifestsAndOpensTheirFiles) {
  const v1::DesiredPlace place = Place(1);
  const std::string storage = directories_.Storage(place);
  Write(storage + "/attempt-1.1/step-5/manifest.json", "x");
  Write(storage + "/attempt-1.1/step-5/model.safetensors", "x");
  Write(storage + "/attempt-1.1/.step-6.tmp/model.safetensors", "x");
  Write(storage + "/attempt-1.1/step-7/begun", "x");
  Write(storage + "/state/secret", "x");
  EXPECT_THAT(Listed(place),
              ElementsAre(".checkpoints/attempt-1.1/step-5/manifest.json"));
  COHORT_EXPECT_OK(
      work_.Open(place, ".checkpoints/attempt-1.1/step-5/model.safetensors"));
  for (const char* path : {"state/secret", "attempt-1.1/../state/secret",
                           "attempt-1.1/step-9/manifest.json"}) {
    EXPECT_FALSE(work_.Open(place, absl::StrCat(".checkpoints/", path)).ok())
        << path;
  }
}

TEST_F(WorkDirectoryTest, KnowsWhatMayGoWithItsJobsRecord) {
  const v1::DesiredPlace place = Place(1);
  const JobId job = *JobId::FromBytes(place.job_id());
  COHORT_ASSERT_OK(work_.Make(place, "", kGeneration));
  Write(Run(place) + "/a", "x");
  EXPECT_FALSE(work_.MayBeForgotten(job, kGeneration));  // it is here
  COHORT_ASSERT_OK(work_.Remove(IdOf(place)));
  EXPECT_TRUE(work_.MayBeForgotten(job, kGeneration));
  EXPECT_FALSE(work_.MayBeForgotten(job, "0123456789abcdeF"));  // restored
}

TEST_F(WorkDirectoryTest, MovesNothingOutOfAUsersOwnDirectory) {
  v1::DesiredPlace place = Place(1);
  place.mutable_launch()->set_working_directory(temp_.path());
  COHORT_ASSERT_OK(work_.Make(place, "", kGeneration));
  Write(temp_.File("mine"), "x");
  EXPECT_THAT(Listed(place), IsEmpty());
  COHORT_EXPECT_OK(work_.Remove(IdOf(place)));
  EXPECT_EQ(access(temp_.File("mine").c_str(), F_OK), 0);
}

}  // namespace
}  // namespace cohort::worker

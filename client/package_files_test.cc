#include "client/package_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/status_util.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PackageFilesTest : public ::testing::Test {
 protected:
  PackageFilesTest() { mkdir(tree_.c_str(), 0700); }

  std::string Write(const std::string& name, const std::string& bytes = "x") {
    const std::string path = directory_.File(name);
    std::filesystem::create_directories(
        std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  // A link in the tree.
  std::string Link(const std::string& target, const std::string& name) {
    const std::string path = tree_ + "/" + name;
    std::filesystem::create_directories(
        std::filesystem::path(path).parent_path());
    EXPECT_EQ(symlink(target.c_str(), path.c_str()), 0);
    return path;
  }

  // Names, with "/" after a directory's and "-> target" after a link's.
  static std::vector<std::string> Names(const PackageSource& source) {
    const auto files = ListPackageFiles(source);
    if (!files.ok()) return {std::string(files.status().message())};
    std::vector<std::string> names;
    for (const PackageFiles::Entry& entry : files->entries) {
      names.push_back(absl::StrCat(
          entry.name, entry.is_directory() ? "/" : "",
          entry.link.empty() ? "" : absl::StrCat(" -> ", entry.link)));
    }
    return names;
  }
  std::vector<std::string> Tree() { return Names({.directory = tree_}); }

  // `why` for `path`, and once that is removed nothing.
  void ExpectRefused(const std::string& path, const std::string& why) {
    const auto refused = ListPackageFiles({.directory = tree_});
    EXPECT_THAT(refused, StatusIs(absl::StatusCode::kInvalidArgument,
                                  AllOf(HasSubstr(path), HasSubstr(why))));
    EXPECT_EQ(GetReason(refused.status()), "cannot_pack");
    std::filesystem::remove_all(path);
  }

  TempDir directory_;
  const std::string tree_ = directory_.File("tree");
};

TEST_F(PackageFilesTest, KeepsLinksThatStayInTheTree) {
  Write("tree/v2/model.py");
  Link("v2", "current");
  Link("../v2/model.py", "bin/run");
  Link("missing", "dangling");
  Link("..", "v2/up");
  EXPECT_THAT(Tree(), ElementsAre("bin/", "bin/run -> ../v2/model.py",
                                  "current -> v2", "dangling -> missing", "v2/",
                                  "v2/model.py", "v2/up -> .."));
}

TEST_F(PackageFilesTest, MakesAbsoluteLinksIntoTheTreeRelative) {
  Write("tree/a/file");
  Link(tree_ + "/a/file", "a/latest");
  Link(tree_ + "/a/file", "odd");
  Link(tree_, "a/top");
  EXPECT_THAT(Tree(), ElementsAre("a/", "a/file", "a/latest -> file",
                                  "a/top -> ../.", "odd -> a/file"));
}

TEST_F(PackageFilesTest, RefusesLinksThatLeadOutOrInACircle) {
  Write("tree/a/file");
  Write("outside");
  ExpectRefused(Link("/etc/passwd", "odd"), "link to /etc/passwd, outside");
  ExpectRefused(Link("../outside", "odd"), "outside of what is packed");
  ExpectRefused(Link("../../outside", "a/odd"), "outside of what is packed");
  ExpectRefused(Link("a/../../outside", "odd"), "outside of what is packed");
  ExpectRefused(Link("odd", "odd"), "leads in a circle");
  EXPECT_THAT(Tree(), ElementsAre("a/", "a/file"));
}

TEST_F(PackageFilesTest, LinksOfADirectoryAmongPathsStayInThatDirectory) {
  Write("tree/file");
  Link("../file", "sub/link");
  EXPECT_THAT(Tree(), ElementsAre("file", "sub/", "sub/link -> ../file"));
  EXPECT_THAT(Names({.paths = {tree_ + "/sub", tree_ + "/file"}}),
              ElementsAre(HasSubstr("outside of what is packed")));
}

TEST_F(PackageFilesTest, RefusesWhatIsNeitherFileNorDirectoryNorLink) {
  const std::string odd = tree_ + "/odd";
  ASSERT_EQ(mkfifo(odd.c_str(), 0600), 0);
  ExpectRefused(odd, "a pipe; leave it out with --exclude");
  ASSERT_EQ(mkfifo(odd.c_str(), 0600), 0);
  EXPECT_THAT(Names({.directory = tree_, .exclude = {"odd"}}), IsEmpty());
}

TEST_F(PackageFilesTest, TakesHardLinksAsFiles) {
  const std::string file = Write("tree/file");
  ASSERT_EQ(link(file.c_str(), (tree_ + "/other").c_str()), 0);
  EXPECT_THAT(Tree(), ElementsAre("file", "other"));
}

TEST_F(PackageFilesTest, TakesFilesAndDirectoriesByTheLastPartOfTheirNames) {
  const std::string train = Write("far/train.py");
  Write("far/data/part/1");
  Write("tree/config");
  EXPECT_THAT(Names({.paths = {train, directory_.File("far/data/")}}),
              ElementsAre("data/", "data/part/", "data/part/1", "train.py"));
  EXPECT_THAT(Names({.directory = tree_, .paths = {train}}),
              ElementsAre("config", "train.py"));
  const std::string link = Link("../../far/train.py", "sub/linked.py");
  EXPECT_THAT(Names({.paths = {link}}), ElementsAre("linked.py"));
  for (const char* nameless : {"/", ".", "..", "a/.."}) {
    EXPECT_THAT(Names({.paths = {nameless}}),
                ElementsAre(HasSubstr("ends in no name")));
  }
}

TEST_F(PackageFilesTest, OneNameIsOneFile) {
  const std::string inside = Write("tree/train.py");
  const std::string outside = Write("far/train.py");
  EXPECT_THAT(Names({.directory = tree_, .paths = {inside, inside}}),
              ElementsAre("train.py"));
  EXPECT_THAT(Names({.directory = tree_, .paths = {outside}}),
              ElementsAre(AllOf(HasSubstr(inside), HasSubstr(outside),
                                HasSubstr("same name, train.py; rename"))));
  EXPECT_THAT(Names({.paths = {inside, outside}}),
              ElementsAre(HasSubstr("same name, train.py; rename")));
}

TEST_F(PackageFilesTest, HonoursIgnoreFilesInEachDirectory) {
  Write("tree/.gitignore", "*.log\n/build/\nkeep/**\n!keep/this\n");
  Write("tree/a.log");
  Write("tree/build/x");
  Write("tree/sub/build/x");
  Write("tree/sub/.gitignore", "!b.log\n/local\n");
  Write("tree/sub/b.log");
  Write("tree/sub/local");
  Write("tree/sub/deep/local");
  Write("tree/keep/this");
  Write("tree/keep/that");
  EXPECT_THAT(Tree(),
              ElementsAre(".gitignore", "keep/", "keep/this", "sub/",
                          "sub/.gitignore", "sub/b.log", "sub/build/",
                          "sub/build/x", "sub/deep/", "sub/deep/local"));
  const auto files = ListPackageFiles({.directory = tree_});
  std::vector<std::string> left_out;
  for (const auto& each : files->left_out) {
    left_out.push_back(absl::StrCat(each.name, ": ", each.why));
  }
  EXPECT_THAT(left_out, ElementsAre("a.log: .gitignore line 1, *.log",
                                    "build: .gitignore line 2, /build/",
                                    "keep/that: .gitignore line 3, keep/**",
                                    "sub/local: sub/.gitignore line 2, "
                                    "/local"));
}

TEST_F(PackageFilesTest, CohortignoreStandsInForGitignoreOfItsDirectory) {
  Write("tree/.gitignore", "data\n");
  Write("tree/.cohortignore", "src\n!.venv\n");
  Write("tree/data/1");
  Write("tree/src/1");
  Write("tree/.venv/1");
  Write("tree/sub/.gitignore", "2\n");
  Write("tree/sub/2");
  EXPECT_THAT(Tree(),
              ElementsAre(".cohortignore", ".gitignore", ".venv/", ".venv/1",
                          "data/", "data/1", "sub/", "sub/.gitignore"));
}

TEST_F(PackageFilesTest, HonoursIgnoreFilesUpToTheRootOfTheRepository) {
  Write("repository/tree/lib/a.pt");
  Write("repository/tree/keep.pt");
  Write("repository/tree/train.py");
  Write("repository/.gitignore", "*.pt\n/tree/lib\n");
  Write("repository/tree/.gitignore", "!keep.pt\n");
  Write(".gitignore", "*\n");
  const PackageSource source = {.directory =
                                    directory_.File("repository/tree")};
  EXPECT_THAT(Names(source), ElementsAre(".gitignore", "keep.pt", "lib/",
                                         "lib/a.pt", "train.py"));
  Write("repository/.git/HEAD");
  EXPECT_THAT(Names(source), ElementsAre(".gitignore", "keep.pt", "train.py"));
  const auto files = ListPackageFiles(source);
  COHORT_ASSERT_OK(files);
  ASSERT_EQ(files->left_out.size(), 1u);
  EXPECT_EQ(files->left_out[0].why, "../.gitignore line 2, /tree/lib");
}

TEST_F(PackageFilesTest, LeavesOutLinksToWhatIsLeftOut) {
  Write("tree/.gitignore", "data\n");
  Write("tree/data/set.bin");
  Write("tree/train.py");
  Link("data/set.bin", "set");
  Link("../set", "lib/again");
  Link("train.py", "main.py");
  EXPECT_THAT(Tree(), ElementsAre(".gitignore", "lib/", "main.py -> train.py",
                                  "train.py"));
  const auto files = ListPackageFiles({.directory = tree_});
  COHORT_ASSERT_OK(files);
  EXPECT_EQ(files->left_out.size(), 3u);
}

TEST_F(PackageFilesTest, LeavesOutWhatNobodySends) {
  Write("tree/.git/config");
  Write("tree/.venv/bin/python");
  Write("tree/sub/__pycache__/a.pyc");
  Write("tree/sub/.git", "gitdir: elsewhere");
  Write("tree/sub/env/pyvenv.cfg");
  EXPECT_THAT(Tree(), ElementsAre("sub/"));
  Write("tree/.gitignore", "sub\n");
  EXPECT_THAT(
      Names({.directory = tree_,
             .exclude = {".venv", ".git"},
             .use_ignore_files = false}),
      ElementsAre(".gitignore", "sub/", "sub/__pycache__/",
                  "sub/__pycache__/a.pyc", "sub/env/", "sub/env/pyvenv.cfg"));
}

TEST_F(PackageFilesTest, SendsAVenvThatAnIgnoreFileWants) {
  Write("tree/.cohortignore", "!env\n");
  Write("tree/env/pyvenv.cfg");
  Write("tree/other/pyvenv.cfg");
  EXPECT_THAT(Tree(), ElementsAre(".cohortignore", "env/", "env/pyvenv.cfg"));
}

TEST_F(PackageFilesTest, ExcludeHasTheLastWord) {
  Write("tree/.gitignore", "*.bin\n!b.txt\n");
  Write("tree/a.bin");
  Write("tree/b.txt");
  Write("tree/sub/b.txt");
  EXPECT_THAT(Names({.directory = tree_, .exclude = {"/b.txt", "!a.bin"}}),
              ElementsAre(".gitignore", "a.bin", "sub/", "sub/b.txt"));
  EXPECT_THAT(Names({.paths = {tree_}, .exclude = {"/tree/sub", "b.txt"}}),
              ElementsAre("tree/", "tree/.gitignore"));
}

TEST_F(PackageFilesTest, WhatPathsNameIsTakenWhateverIgnoresIt) {
  Write("tree/.gitignore", "data\n*.bin\n");
  Write("tree/data/.gitignore", "tmp\n");
  Write("tree/data/1.bin");
  Write("tree/data/tmp");
  Write("tree/x.bin");
  EXPECT_THAT(
      Names({.directory = tree_, .paths = {tree_ + "/data", tree_ + "/x.bin"}}),
      ElementsAre(".gitignore", "data/", "data/.gitignore", "data/1.bin",
                  "x.bin"));
}

TEST_F(PackageFilesTest, NamesWhatIsNotThere) {
  const std::string file = Write("file");
  for (const std::string& missing :
       {directory_.File("missing"), file + "/below"}) {
    EXPECT_THAT(
        ListPackageFiles({.directory = missing}),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(missing)));
    EXPECT_THAT(
        ListPackageFiles({.paths = {missing}}),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(missing)));
  }
  EXPECT_THAT(
      ListPackageFiles({.directory = file}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--file")));
}

TEST_F(PackageFilesTest, BoundsTheirNumber) {
  Write("tree/1");
  Write("tree/2");
  EXPECT_THAT(
      ListPackageFiles({.directory = tree_}, 1),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than 1 ")));
  COHORT_EXPECT_OK(ListPackageFiles({.directory = tree_}, 2));
}

TEST_F(PackageFilesTest, RefusesADirectoryThatItMayNotReadUnlessItIsLeftOut) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  Write("tree/secret/file");
  chmod((tree_ + "/secret").c_str(), 0);
  EXPECT_THAT(ListPackageFiles({.directory = tree_}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("secret: Permission denied")));
  EXPECT_THAT(Names({.directory = tree_, .exclude = {"secret"}}), IsEmpty());
  chmod((tree_ + "/secret").c_str(), 0700);
}

}  // namespace
}  // namespace cohort

#include "head/state/head_lives.h"

#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/seed.h"

namespace cohort::head {
namespace {

// HD-1
class HeadLivesTest : public ::testing::Test {
 protected:
  // A head starts.
  void Start() {
    cluster_.set_term(cluster_.term() + 1);
    BeginLife(100 + cluster_.term(), nodes_, cluster_);
  }
  NodeId RegisterANode() {
    NodeRecord node;
    node.id = NodeId::New(random_);
    node.node.set_incarnation(cluster_.next_incarnation());
    cluster_.set_next_incarnation(node.node.incarnation() + 1);
    nodes_.Put(node);
    return node.id;
  }
  bool Knows(uint64_t term) const {
    return KnowsLife(cluster_, term, 100 + term);
  }

  SeededRandom random_{TestSeed()};
  NodeTable nodes_;
  ClusterRecord cluster_ = NewCluster();
};

TEST_F(HeadLivesTest, AreKnownByTermAndNonce) {
  Start();
  Start();
  EXPECT_TRUE(Knows(1));
  EXPECT_TRUE(Knows(2));
  EXPECT_FALSE(KnowsLife(cluster_, 2, 101));
  EXPECT_FALSE(KnowsLife(cluster_, 3, 0));
  EXPECT_EQ(NonceOf(cluster_), 102u);
  EXPECT_EQ(NonceOf({}), 0u);
}

TEST_F(HeadLivesTest, AHeadThatStartsOverAndOverForgetsNoneThatANodeFollowed) {
  Start();
  Start();  // term 2: of nobody
  Start();
  RegisterANode();
  for (int i = 0; i < 3 * kHeadLivesMax; ++i) Start();
  EXPECT_EQ(cluster_.lives().size(), kHeadLivesMax);
  EXPECT_TRUE(Knows(3));
  EXPECT_FALSE(Knows(1));
  EXPECT_FALSE(Knows(2));
  EXPECT_TRUE(Knows(cluster_.term()));
  EXPECT_TRUE(Knows(cluster_.term() - 1));
}

TEST_F(HeadLivesTest, WhereEachWasFollowedTheOldestGoes) {
  for (int i = 0; i <= kHeadLivesMax; ++i) {
    Start();
    RegisterANode();
  }
  EXPECT_EQ(cluster_.lives().size(), kHeadLivesMax);
  EXPECT_FALSE(Knows(1));
  EXPECT_TRUE(Knows(2));
}

}  // namespace
}  // namespace cohort::head

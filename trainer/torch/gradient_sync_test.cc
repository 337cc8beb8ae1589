// What GradientSync does for a module on a device, told by a device and a
// communicator that write down what they are asked, over the host's memory.

#include "trainer/torch/gradient_sync.h"

#include <ATen/Context.h>

#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/csrc/autograd/custom_function.h"
#include "torch/nn/module.h"
#include "torch/utils.h"
#include "torch/version.h"

#include "common/testing/status_matchers.h"
#include "trainer/local_comm.h"
#include "trainer/torch/gpu.h"

namespace cohort::torch_adapter {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using trainer::Buffer;
using trainer::Comm;

// Two ranks that bring the same: a mean is what it was.
class WritingComm final : public Comm {
 public:
  explicit WritingComm(std::vector<std::string>& book, bool on_device = true)
      : Comm({.rank = 0, .world = 2, .epoch = 1}),
        book_(book),
        on_device_(on_device) {}

  absl::StatusOr<std::span<std::byte>> Allocate(size_t bytes) override {
    return memory_.Allocate(bytes);
  }
  bool allocates_on_device() const override { return on_device_; }
  absl::Status Zero(std::span<std::byte>) override {
    return absl::InternalError("not ordered with the pass");
  }
  absl::Status CheckPeers() const override { return peers; }
  void Revoke() override {}

  absl::Status answer;
  absl::Status peers;

 private:
  absl::Status Run(const Call& call) override {
    if (call.kind == Kind::kBroadcast) {
      book_.push_back(absl::StrCat("broadcast ", call.buffers.size()));
      return absl::OkStatus();
    }
    for (const Buffer& buffer : call.buffers) {
      book_.push_back(absl::StrCat("reduce ", buffer.count));
    }
    return answer;
  }

  std::vector<std::string>& book_;
  const bool on_device_;
  trainer::LocalComm memory_;
};

struct DeviceState {
  bool hangs = false;
  bool is_broken = false;
  std::string owner = "fake:0";  // of all memory
};

// A device that is over with a mark when it is looked at the second time.
class WritingMarks final : public DeviceMarks {
 public:
  WritingMarks(std::vector<std::string>& book, const DeviceState& state)
      : book_(book), state_(state) {}

  std::string device() const override { return "fake:0"; }
  int64_t CurrentStream() const override { return 0; }
  void Set(size_t mark) override {
    TORCH_CHECK(!state_.is_broken, "an illegal memory access");
    book_.push_back(absl::StrCat("mark ", mark));
    waiting_.insert(mark);
  }
  bool IsOver(size_t mark) const override {
    if (state_.hangs || waiting_.erase(mark) > 0) return false;
    book_.push_back(absl::StrCat("over ", mark));
    return true;
  }
  std::string OwnerOf(std::byte*) const override { return state_.owner; }
  void Keep(const torch::Tensor& tensor) const override {
    book_.push_back(absl::StrCat("keep ", tensor.numel()));
  }

 private:
  std::vector<std::string>& book_;
  const DeviceState& state_;
  mutable std::set<size_t> waiting_;
};

// 3, 2 and 1 numbers: padded to 16, which are the buckets' sizes.
struct Chain : torch::nn::Module {
  Chain() {
    a = register_parameter("a", torch::ones({3}));
    b = register_parameter("b", torch::ones({2}));
    c = register_parameter("c", torch::ones({1}));
  }
  // c is nearest to the loss, then b, then a.
  torch::Tensor forward() { return ((a * 2).sum() * b).sum() * c; }
  torch::Tensor a, b, c;
};

// A bucket for each gradient.
constexpr trainer::ReducerOptions kSmall = {.first_bucket_bytes = 1,
                                            .bucket_bytes_max = 1};

class GradientSyncTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto sync = GradientSync::Create(
        chain_, comm_, kSmall, std::make_unique<WritingMarks>(book_, device_));
    COHORT_ASSERT_OK(sync);
    sync_ = *std::move(sync);
    EXPECT_THAT(Book(), ElementsAre("mark 3", "over 3", "broadcast 3"));
  }

  // What was written since the last call.
  std::vector<std::string> Book() { return std::exchange(book_, {}); }

  std::vector<std::string> book_;
  DeviceState device_;
  WritingComm comm_{book_};
  Chain chain_;
  std::unique_ptr<GradientSync> sync_;
};

TEST_F(GradientSyncTest, ReducesEachBucketBehindItsMark) {
  for (int round = 0; round < 2; ++round) {
    sync_->Clear();
    COHORT_ASSERT_OK(sync_->Backward(chain_.forward(), Sync::kNow));
    EXPECT_THAT(Book(),
                ElementsAre("mark 0", "mark 1", "mark 2", "over 0", "reduce 16",
                            "over 1", "reduce 16", "over 2", "reduce 16"));
    EXPECT_TRUE(torch::equal(chain_.a.grad(), torch::full({3}, 4.0)));
    EXPECT_TRUE(torch::equal(chain_.b.grad(), torch::full({2}, 6.0)));
    EXPECT_TRUE(torch::equal(chain_.c.grad(), torch::full({1}, 12.0)));
  }
}

TEST_F(GradientSyncTest, FollowsOnlyThePassThatIsAveraged) {
  COHORT_ASSERT_OK(sync_->Backward(chain_.forward(), Sync::kLater));
  EXPECT_THAT(Book(), IsEmpty());
  // Of this one the loss reaches c alone.
  COHORT_ASSERT_OK(sync_->Backward(chain_.c.sum(), Sync::kNow));
  EXPECT_THAT(Book(),
              ElementsAre("mark 0", "mark 1", "mark 2", "over 0", "reduce 16",
                          "over 1", "reduce 16", "over 2", "reduce 16"));
  EXPECT_TRUE(torch::equal(chain_.a.grad(), torch::full({3}, 4.0)));
  EXPECT_TRUE(torch::equal(chain_.c.grad(), torch::full({1}, 13.0)));
}

TEST_F(GradientSyncTest, MarksAgainBehindTheCopyOfAReplacedGradient) {
  const void* home = chain_.c.grad().data_ptr();
  chain_.c.mutable_grad() = torch::full({1}, 100.0);
  chain_.b.mutable_grad() = torch::Tensor();
  COHORT_ASSERT_OK(sync_->Backward(chain_.forward(), Sync::kNow));
  EXPECT_THAT(Book(), ElementsAre("mark 0", "mark 1", "mark 2",  //
                                  "keep 2", "keep 1", "mark 0", "mark 1",
                                  "over 0", "reduce 16", "over 1", "reduce 16",
                                  "over 2", "reduce 16"));
  EXPECT_EQ(chain_.c.grad().data_ptr(), home);
  EXPECT_TRUE(torch::equal(chain_.c.grad(), torch::full({1}, 112.0)));
  EXPECT_TRUE(torch::equal(chain_.b.grad(), torch::full({2}, 6.0)));
}

// A node of the graph that throws when its gradient is wanted.
struct Bomb : torch::autograd::Function<Bomb> {
  static torch::Tensor forward(torch::autograd::AutogradContext*,
                               const torch::Tensor& x) {
    return x.clone();
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext*,
      const torch::autograd::variable_list&) {
    TORCH_CHECK(false, "boom");
  }
};

TEST_F(GradientSyncTest, GoesOnAfterAPassThatFailed) {
  EXPECT_THAT(sync_->Backward(torch::zeros({2}), Sync::kNow),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("LibTorch")));
  EXPECT_THAT(Book(), IsEmpty());
  // Half way: c's hook has told, a's and b's never will.
  const torch::Tensor half = Bomb::apply((chain_.a * chain_.b.sum()).sum());
  EXPECT_THAT(sync_->Backward((half * chain_.c).sum(), Sync::kNow),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("rank 0: cpu: the backward pass: LibTorch: "
                                 "boom")));
  EXPECT_THAT(Book(), ElementsAre("mark 0"));
  device_.is_broken = true;
  EXPECT_THAT(sync_->Backward(chain_.forward(), Sync::kNow),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("illegal")));
  EXPECT_THAT(Book(), IsEmpty());
  device_.is_broken = false;

  sync_->Clear();
  COHORT_ASSERT_OK(sync_->Backward(chain_.forward(), Sync::kNow));
  EXPECT_THAT(Book(),
              ElementsAre("mark 0", "mark 1", "mark 2", "over 0", "reduce 16",
                          "over 1", "reduce 16", "over 2", "reduce 16"));
  EXPECT_TRUE(torch::equal(chain_.a.grad(), torch::full({3}, 4.0)));
  EXPECT_TRUE(torch::equal(chain_.c.grad(), torch::full({1}, 12.0)));
}

// The communicator's memory goes behind it.
TEST_F(GradientSyncTest, WaitsForTheDeviceBeforeItGoes) {
  comm_.answer = absl::AbortedError("revoked");
  EXPECT_THAT(sync_->Backward(chain_.forward(), Sync::kNow),
              StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(Book(),
              ElementsAre("mark 0", "mark 1", "mark 2", "over 0", "reduce 16"));
  sync_.reset();
  EXPECT_THAT(Book(),
              ElementsAre("mark 3", "over 3", "over 0", "over 1", "over 2"));
}

TEST_F(GradientSyncTest, HearsOfADeadPeerWhileTheDeviceIsBusy) {
  device_.hangs = true;
  comm_.peers = absl::AbortedError("the process of local rank 1 is gone");
  const auto is_gone = StatusIs(
      absl::StatusCode::kAborted,
      AllOf(HasSubstr("rank 0: fake:0: "), HasSubstr("local rank 1 is gone")));
  EXPECT_THAT(sync_->Backward(chain_.forward(), Sync::kNow), is_gone);
  EXPECT_THAT(Book(), ElementsAre("mark 0", "mark 1", "mark 2"));
  EXPECT_THAT(sync_->Settle(), is_gone);
  device_.hangs = false;
}

TEST_F(GradientSyncTest, SettlesBehindAPassThatIsOnlyBegun) {
  COHORT_ASSERT_OK(sync_->Backward(chain_.forward(), Sync::kLater));
  COHORT_ASSERT_OK(sync_->Settle());
  EXPECT_THAT(Book(), ElementsAre("mark 3", "over 3"));
  device_.is_broken = true;
  EXPECT_THAT(sync_->Settle(), StatusIs(absl::StatusCode::kInternal,
                                        HasSubstr("illegal memory access")));
  device_.is_broken = false;
}

TEST_F(GradientSyncTest, JudgesGradientsOnTheDevice) {
  COHORT_ASSERT_OK(sync_->Backward(chain_.forward(), Sync::kLater));
  EXPECT_THAT(sync_->AllFinite(), IsOkAndHolds(true));
  EXPECT_THAT(Book(), ElementsAre("mark 3", "over 3"));
  for (const float bad : {std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    sync_->Clear();
    chain_.b.grad()[1].fill_(bad);
    EXPECT_THAT(sync_->AllFinite(), IsOkAndHolds(false));
  }
  device_.is_broken = true;
  EXPECT_THAT(sync_->AllFinite(), StatusIs(absl::StatusCode::kInternal));
  device_.is_broken = false;
}

TEST_F(GradientSyncTest, LeavesTheModuleToOthersWhenItGoes) {
  const torch::Tensor mine = torch::ones({2});
  chain_.b.mutable_grad() = mine;
  sync_.reset();
  Book();
  EXPECT_FALSE(chain_.a.grad().defined()) << "in memory that will be freed";
  EXPECT_TRUE(chain_.b.grad().is_same(mine));
  chain_.forward().backward();
  EXPECT_THAT(Book(), IsEmpty());
  EXPECT_TRUE(torch::equal(chain_.a.grad(), torch::full({3}, 4.0)));
}

TEST(GradientSyncPlaceTest, RefusesAModuleThatIsElsewhere) {
  std::vector<std::string> book;
  Chain chain;
  WritingComm device(book), host(book, /*on_device=*/false);
  EXPECT_THAT(
      GradientSync::Create(chain, device, {}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("memory is the GPU's and the module is on the "
                               "CPU"),
                     HasSubstr("without can_use_gpu"))));
  chain.register_parameter("d", torch::ones({1}, torch::kMeta));
  EXPECT_THAT(GradientSync::Create(chain, host, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a is on cpu and d on meta")));
  EXPECT_THAT(book, IsEmpty());
}

// Where the ranks got no communicator on their GPUs: through the host's memory,
// bucket by bucket behind the marks.
TEST(GradientSyncPlaceTest, ReducesADevicesGradientsThroughTheHost) {
  std::vector<std::string> book;
  const DeviceState device;
  Chain chain;
  WritingComm host(book, /*on_device=*/false);
  auto sync = GradientSync::Create(
      chain, host, kSmall, std::make_unique<WritingMarks>(book, device));
  COHORT_ASSERT_OK(sync);
  EXPECT_THAT(std::exchange(book, {}),
              ElementsAre("mark 3", "over 3", "broadcast 3"));
  COHORT_ASSERT_OK((*sync)->Backward(chain.forward(), Sync::kNow));
  EXPECT_THAT(book,
              ElementsAre("mark 0", "mark 1", "mark 2", "over 0", "reduce 16",
                          "over 1", "reduce 16", "over 2", "reduce 16"));
  EXPECT_TRUE(torch::equal(chain.a.grad(), torch::full({3}, 4.0)));
  EXPECT_TRUE(torch::equal(chain.c.grad(), torch::full({1}, 12.0)));
}

// The GPU of a sibling, say, which this rank sees too.
TEST(GradientSyncPlaceTest, RefusesMemoryOfAnotherDevice) {
  std::vector<std::string> book;
  const DeviceState device = {.owner = "fake:1"};
  Chain chain;
  WritingComm comm(book);
  EXPECT_THAT(
      GradientSync::Create(chain, comm, {},
                           std::make_unique<WritingMarks>(book, device)),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("the module is on fake:0"),
                     HasSubstr("memory on fake:1"), HasSubstr("OpenGpu()"))));
  EXPECT_THAT(book, IsEmpty()) << "peers were met first";
}

TEST(GradientSyncPlaceTest, NamesAParameterThatIsNoPlainMemory) {
  std::vector<std::string> book;
  WritingComm comm(book, /*on_device=*/false);
  torch::nn::Module module;
  module.register_parameter("a", torch::ones({3}).to_sparse());
  EXPECT_THAT(
      GradientSync::Create(module, comm, {}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a must")));
}

// A gang of one needs no communicator of the device's.
TEST(GradientSyncPlaceTest, TakesItsOwnMemoryWhereItIsAlone) {
  std::vector<std::string> book;
  const DeviceState device;
  Chain chain;
  trainer::LocalComm comm;
  auto sync = GradientSync::Create(
      chain, comm, kSmall, std::make_unique<WritingMarks>(book, device));
  COHORT_ASSERT_OK(sync);
  EXPECT_THAT(std::exchange(book, {}), ElementsAre("mark 3", "over 3"));
  COHORT_ASSERT_OK((*sync)->Backward(chain.forward(), Sync::kLater));
  COHORT_ASSERT_OK((*sync)->Backward(chain.forward(), Sync::kNow));
  EXPECT_THAT(book, IsEmpty());
  EXPECT_TRUE(torch::equal(chain.a.grad(), torch::full({3}, 8.0)));
  (*sync)->Clear();
  EXPECT_TRUE(torch::equal(chain.a.grad(), torch::zeros({3})));
  // That memory goes with it.
  sync->reset();
  for (const torch::Tensor& parameter : chain.parameters()) {
    EXPECT_FALSE(parameter.grad().defined());
  }
}

TEST(GradientSyncPlaceTest, HasNothingToSettleOnTheCpu) {
  std::vector<std::string> book;
  Chain chain;
  WritingComm comm(book, /*on_device=*/false);
  auto sync = GradientSync::Create(chain, comm, kSmall);
  COHORT_ASSERT_OK(sync);
  comm.peers = absl::AbortedError("gone");
  COHORT_EXPECT_OK((*sync)->Settle());
}

TEST(OpenGpuTest, SaysWhyThereIsNone) {
  setenv("CUDA_VISIBLE_DEVICES", "", /*overwrite=*/1);
  const bool is_for_cuda = at::globalContext().hasCUDART();
  EXPECT_THAT(
      OpenGpu(),
      StatusIs(
          absl::StatusCode::kFailedPrecondition,
          AllOf(HasSubstr(TORCH_VERSION),
                HasSubstr(is_for_cuda ? "finds 0 GPUs" : "is for CPUs"),
                HasSubstr(is_for_cuda ? "--use-gpu" : "COHORT_TORCH_DIR"))));
}

}  // namespace
}  // namespace cohort::torch_adapter

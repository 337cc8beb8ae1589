#include "trainer/comm/gpu_transport.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "trainer/comm/nccl_library.h"
#include "trainer/comm/reduce_args.h"

namespace cohort::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const auto kUnmet = absl::StatusCode::kFailedPrecondition;
constexpr int kVersion = 22809;

// Ranks that have all there is, on the GPUs of these names.
std::vector<GpuOffer> On(const std::vector<std::string>& gpus) {
  std::vector<GpuOffer> offers;
  for (const std::string& gpu : gpus) {
    offers.push_back(
        {.gpu = gpu, .nccl_version = kVersion, .has_kernels = true});
  }
  offers[0].unique_id = std::string(sizeof(nccl::UniqueId), 'u');
  return offers;
}

void LoseNccl(GpuOffer& offer) {
  offer.nccl_version = 0;
  offer.no_nccl = "no libnccl.so.2";
}

TEST(GpuOfferTest, ComesBackAsItWas) {
  const GpuOffer offer = {.gpu = "GPU-1",
                          .no_gpu = "line\nand \"line\"",
                          .nccl_version = kVersion,
                          .no_nccl = "\n",
                          .has_kernels = true,
                          .unique_id = std::string("\0\n\xff", 3)};
  const auto back = GpuOffer::Decode(offer.Encode());
  COHORT_ASSERT_OK(back);
  EXPECT_EQ(back->gpu, offer.gpu);
  EXPECT_EQ(back->no_gpu, offer.no_gpu);
  EXPECT_EQ(back->nccl_version, offer.nccl_version);
  EXPECT_EQ(back->no_nccl, offer.no_nccl);
  EXPECT_TRUE(back->has_kernels);
  EXPECT_EQ(back->unique_id, offer.unique_id);
}

TEST(GpuOfferTest, RefusesAnothersWords) {
  for (const char* const text : {"", "a\nb", "\n\nx\n\n0\n", "\n\n1\n\\\n0\n",
                                 "\n\n1\n\n0\n?", "1\n2\n3\n4\n5\n6\n7"}) {
    EXPECT_THAT(GpuOffer::Decode(text), StatusIs(absl::StatusCode::kInternal))
        << text;
  }
}

TEST(ChooseTransportTest, TakesNcclForRanksWithAGpuEach) {
  const auto transport = ChooseTransport(On({"b", "a", "c"}));
  COHORT_ASSERT_OK(transport);
  EXPECT_EQ(*transport, GpuTransport::kNccl);
}

TEST(ChooseTransportTest, TakesKernelsForRanksThatShareOneAndNeedsNoNccl) {
  std::vector<GpuOffer> offers = On({"a", "a", "a"});
  for (GpuOffer& offer : offers) LoseNccl(offer);
  const auto transport = ChooseTransport(offers);
  COHORT_ASSERT_OK(transport);
  EXPECT_EQ(*transport, GpuTransport::kCudaIpc);
}

// Whatever they have besides.
TEST(ChooseTransportTest, RefusesAGangOfWhichOnlySomeShareAGpu) {
  EXPECT_THAT(
      ChooseTransport(On({"b", "a", "b", "c"})),
      StatusIs(kUnmet,
               AllOf(HasSubstr("ranks 0, 2 share b in a gang of 3 GPUs"),
                     HasSubstr("ask for whole GPUs"))));
  EXPECT_THAT(ChooseTransport(On({"a", "b", "a", "b"})),
              StatusIs(kUnmet, HasSubstr("ranks 0, 2 share a")));
}

TEST(ChooseTransportTest, NamesTheRankThatHasNoNccl) {
  std::vector<GpuOffer> offers = On({"a", "b", "c"});
  LoseNccl(offers[1]);
  EXPECT_THAT(ChooseTransport(offers),
              StatusIs(kUnmet, "rank 1: no libnccl.so.2"));
}

TEST(ChooseTransportTest, TakesWhatALoneRankHas) {
  std::vector<GpuOffer> offers = On({"a"});
  EXPECT_EQ(*ChooseTransport(offers), GpuTransport::kNccl);
  LoseNccl(offers[0]);
  EXPECT_EQ(*ChooseTransport(offers), GpuTransport::kCudaIpc);
  offers[0].has_kernels = false;
  EXPECT_THAT(
      ChooseTransport(offers),
      StatusIs(kUnmet, AllOf(HasSubstr("rank 0"), HasSubstr("no libnccl.so.2"),
                             HasSubstr("without CUDA kernels"))));
}

TEST(ChooseTransportTest, NamesTheRankThatHasNoGpu) {
  std::vector<GpuOffer> offers = On({"a", "b"});
  offers[1].gpu.clear();
  offers[1].no_gpu = "no CUDA driver";
  EXPECT_THAT(ChooseTransport(offers),
              StatusIs(kUnmet, "rank 1: no CUDA driver"));
}

TEST(ChooseTransportTest, NamesTheRankWhoseProgramHasNoKernels) {
  std::vector<GpuOffer> offers = On({"a", "a", "a"});
  offers[2].has_kernels = false;
  EXPECT_THAT(ChooseTransport(offers),
              StatusIs(kUnmet, AllOf(HasSubstr("all ranks share a"),
                                     HasSubstr("the program of rank 2"))));
}

TEST(ChooseTransportTest, RefusesMoreRanksThanAKernelTakes) {
  const std::vector<std::string> most(kReduceRanksMax, "a");
  COHORT_EXPECT_OK(ChooseTransport(On(most)));
  const std::vector<std::string> too_many(kReduceRanksMax + 1, "a");
  EXPECT_THAT(ChooseTransport(On(too_many)),
              StatusIs(kUnmet, HasSubstr("65 ranks share a, and at most 64")));
}

TEST(ChooseTransportTest, RefusesDifferentVersionsOfNccl) {
  std::vector<GpuOffer> offers = On({"a", "b"});
  offers[1].nccl_version = 22203;
  EXPECT_THAT(ChooseTransport(offers),
              StatusIs(kUnmet, AllOf(HasSubstr("rank 0 has NCCL 2.28.9"),
                                     HasSubstr("rank 1 2.22.3"))));
}

}  // namespace
}  // namespace cohort::trainer

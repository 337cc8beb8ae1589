// What every communicator must do, whatever it runs over: each test runs over
// each backend and world; a rank is a thread.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <latch>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "shm/arena.h"
#include "trainer/comm/comm.h"
#include "trainer/comm/float16.h"
#include "trainer/comm/shm_comm.h"
#include "trainer/comm/testing/gpu_world.h"
#include "trainer/comm/testing/ranks.h"
#ifdef COHORT_HAVE_GLOO
#include "trainer/comm/gloo_comm.h"
#include "trainer/comm/nodes_comm.h"
#endif

namespace cohort::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kLong = absl::Seconds(60);
constexpr uint64_t kEpoch = 2;
constexpr size_t kSizes[] = {0, 1, 7, 1000, 100003};

// The gang of one test.
class Backend {
 public:
  virtual ~Backend() = default;
  // On the rank's own thread; valid while the backend is.
  virtual absl::StatusOr<std::unique_ptr<Comm>> Join(int rank) = 0;
};

class ShmBackend final : public Backend {
 public:
  explicit ShmBackend(int world) : places_(world) {
    auto arena = shm::Arena::Create(
        dir_.path(),
        {.attempt = "test", .epoch = kEpoch, .local_world = world});
    EXPECT_THAT(arena, IsOk());
  }

  absl::StatusOr<std::unique_ptr<Comm>> Join(int rank) override {
    auto place = shm::ArenaPlace::Claim(dir_.path(), rank);
    if (!place.ok()) return place.status();
    places_[rank] = *std::move(place);
    return ShmComm::Create(*places_[rank], kEpoch);
  }

 private:
  TempDir dir_;
  std::vector<std::unique_ptr<shm::ArenaPlace>> places_;
};

#ifdef COHORT_HAVE_GLOO
class GlooBackend final : public Backend {
 public:
  explicit GlooBackend(int world) : world_(world), exchange_(world) {}

  absl::StatusOr<std::unique_ptr<Comm>> Join(int rank) override {
    Exchange exchange = exchange_.For(rank);
    return ConnectGloo({.rank = rank, .world = world_, .epoch = kEpoch},
                       exchange);
  }

 private:
  const int world_;
  MemoryExchange exchange_;
};
#endif

// The ranks of each node, in worlds of several.
std::vector<int> NodesOf(int world) {
  switch (world) {
    case 3:
      return {2, 1};
    case 4:
      return {2, 2};
    case 5:
      return {1, 2, 2};
    case 8:
      return {3, 3, 2};
    default:
      return std::vector<int>(world, 1);
  }
}

#ifdef COHORT_HAVE_GLOO
// As many arenas as nodes.
class NodesBackend final : public Backend {
 public:
  explicit NodesBackend(int world) : exchange_(world) {
    for (const int size : NodesOf(world)) {
      dirs_.push_back(std::make_unique<TempDir>());
      EXPECT_THAT(
          shm::Arena::Create(
              dirs_.back()->path(),
              {.attempt = "test", .epoch = kEpoch, .local_world = size}),
          IsOk());
      for (int local = 0; local < size; ++local) {
        seats_.push_back({static_cast<int>(dirs_.size()) - 1, local});
      }
    }
    places_.resize(seats_.size());
  }

  absl::StatusOr<std::unique_ptr<Comm>> Join(int rank) override {
    const Seat& seat = seats_[rank];
    auto place =
        shm::ArenaPlace::Claim(dirs_[seat.node]->path(), seat.local_rank);
    if (!place.ok()) return place.status();
    places_[rank] = *std::move(place);
    Exchange exchange = exchange_.For(rank);
    auto connected = ConnectNodes({.rank = rank,
                                   .world = static_cast<int>(seats_.size()),
                                   .epoch = kEpoch},
                                  seat, *places_[rank], exchange);
    if (!connected.ok()) return connected.status();
    return std::move(connected->comm);
  }

 private:
  MemoryExchange exchange_;
  std::vector<std::unique_ptr<TempDir>> dirs_;  // by node
  std::vector<Seat> seats_;
  std::vector<std::unique_ptr<shm::ArenaPlace>> places_;
};
#endif

// Over fake GPUs.  The fake NCCL adds in rank order; the real one need not
// (CM-2).
class GpuBackend final : public Backend {
 public:
  explicit GpuBackend(const std::vector<int>& gpus) : gang_(gpus) {}

  absl::StatusOr<std::unique_ptr<Comm>> Join(int rank) override {
    return gang_.Join(rank);
  }

 private:
  GpuWorld gang_;
};
static_assert(GpuWorld::kEpoch == kEpoch);

// On which GPU each rank is: "nccl" has one for each, "ipc" one for all.
std::vector<int> GpusOf(const std::string& name, int world) {
  std::vector<int> gpus(world);
  if (name == "nccl") std::iota(gpus.begin(), gpus.end(), 0);
  return gpus;
}

std::unique_ptr<Backend> MakeBackend(const std::string& name, int world) {
  if (name == "shm") return std::make_unique<ShmBackend>(world);
  if (name == "nccl" || name == "ipc") {
    return std::make_unique<GpuBackend>(GpusOf(name, world));
  }
#ifdef COHORT_HAVE_GLOO
  if (name == "nodes") return std::make_unique<NodesBackend>(world);
  return std::make_unique<GlooBackend>(world);
#else
  return nullptr;
#endif
}

class CommTest : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  int world() const { return std::get<1>(GetParam()); }
  // How many ranks of each node are combined first.
  std::vector<int> nodes() const {
    return std::get<0>(GetParam()) == "nodes" ? NodesOf(world())
                                              : std::vector<int>{world()};
  }

  void Run(const std::function<void(Comm&)>& body) {
    const auto backend = MakeBackend(std::get<0>(GetParam()), world());
    RunRanks(world(), [&](int rank) {
      auto comm = backend->Join(rank);
      ASSERT_THAT(comm, IsOk());
      body(**comm);
    });
  }
};

std::string Name(
    const ::testing::TestParamInfo<std::tuple<std::string, int>>& info) {
  return absl::StrCat(std::get<0>(info.param), "x", std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Shm, CommTest,
                         ::testing::Combine(::testing::Values("shm"),
                                            ::testing::Values(1, 2, 3, 4, 8)),
                         Name);
INSTANTIATE_TEST_SUITE_P(Nccl, CommTest,
                         ::testing::Combine(::testing::Values("nccl"),
                                            ::testing::Range(1, 9)),
                         Name);
INSTANTIATE_TEST_SUITE_P(CudaIpc, CommTest,
                         ::testing::Combine(::testing::Values("ipc"),
                                            ::testing::Range(1, 9)),
                         Name);
#ifdef COHORT_HAVE_GLOO
INSTANTIATE_TEST_SUITE_P(Gloo, CommTest,
                         ::testing::Combine(::testing::Values("gloo"),
                                            ::testing::Values(1, 2, 3)),
                         Name);
INSTANTIATE_TEST_SUITE_P(Nodes, CommTest,
                         ::testing::Combine(::testing::Values("nodes"),
                                            ::testing::Values(2, 3, 4, 5, 8)),
                         Name);
#endif

// What `rank` brings: values whose sum depends on the order of addition.
template <typename T>
std::vector<T> Input(int rank, size_t count, uint64_t salt = 0) {
  constexpr double kTens[] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7};
  SeededRandom random(rank + 1000 * salt + count);
  std::vector<T> values(count);
  for (T& value : values) {
    value = static_cast<T>((random.Double() - 0.5) * kTens[random.Below(8)]);
  }
  return values;
}

template <typename T>
T Combine(T a, T b, ReduceOp op) {
  switch (op) {
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return a + b;
  }
  return a;
}

// In the order of the ranks of each node, and then of the nodes (CM-2).
template <typename T>
std::vector<T> Expected(const std::vector<int>& nodes, size_t count,
                        ReduceOp op, uint64_t salt = 0) {
  const int world = std::accumulate(nodes.begin(), nodes.end(), 0);
  std::vector<T> result;
  int rank = 0;
  for (const int size : nodes) {
    std::vector<T> node = Input<T>(rank++, count, salt);
    for (int local = 1; local < size; ++local) {
      const std::vector<T> other = Input<T>(rank++, count, salt);
      for (size_t i = 0; i < count; ++i) {
        node[i] = Combine(node[i], other[i], op);
      }
    }
    if (op == ReduceOp::kAverage) {
      for (T& value : node) value /= static_cast<T>(world);
    }
    if (rank == size) result.assign(count, T{});
    for (size_t i = 0; i < count; ++i) {
      result[i] = rank == size ? node[i] : Combine(result[i], node[i], op);
    }
  }
  return result;
}

template <typename T>
bool SameBits(std::span<const T> a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

template <typename T>
void CheckAllReduce(Comm& comm, const std::vector<int>& nodes, size_t count,
                    ReduceOp op) {
  SCOPED_TRACE(absl::StrCat("rank ", comm.rank(), " count ", count, " op ",
                            ToString(op)));
  const std::vector<T> expected = Expected<T>(nodes, count, op);
  std::vector<T> own = Input<T>(comm.rank(), count);
  EXPECT_THAT(comm.AllReduce(Buffer::Of(std::span(own)), op, kLong), IsOk());
  EXPECT_TRUE(SameBits<T>(own, expected)) << "in memory of its own";

  auto memory = comm.Allocate(count * sizeof(T));
  ASSERT_THAT(memory, IsOk());
  const std::span<T> shared(reinterpret_cast<T*>(memory->data()), count);
  std::ranges::copy(Input<T>(comm.rank(), count), shared.begin());
  EXPECT_THAT(comm.AllReduce(Buffer::Of(shared), op, kLong), IsOk());
  EXPECT_TRUE(SameBits<T>(shared, expected)) << "in allocated memory";
}

// CM-2: bit for bit what adding in rank order gives.
TEST_P(CommTest, AllReducesEverySizeAndTypeInRankOrder) {
  Run([this](Comm& comm) {
    for (const size_t count : kSizes) {
      CheckAllReduce<float>(comm, nodes(), count, ReduceOp::kSum);
      CheckAllReduce<double>(comm, nodes(), count, ReduceOp::kSum);
      CheckAllReduce<int32_t>(comm, nodes(), count, ReduceOp::kSum);
      CheckAllReduce<int64_t>(comm, nodes(), count, ReduceOp::kSum);
    }
  });
}

TEST_P(CommTest, AllReducesWithEveryOperation) {
  Run([this](Comm& comm) {
    for (const size_t count : {size_t{7}, size_t{5003}}) {
      for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
        CheckAllReduce<float>(comm, nodes(), count, op);
        CheckAllReduce<double>(comm, nodes(), count, op);
        CheckAllReduce<int32_t>(comm, nodes(), count, op);
        CheckAllReduce<int64_t>(comm, nodes(), count, op);
      }
      CheckAllReduce<float>(comm, nodes(), count, ReduceOp::kAverage);
      CheckAllReduce<double>(comm, nodes(), count, ReduceOp::kAverage);
    }
  });
}

// CM-2's mean of numbers whose sum is too large for their type.
TEST_P(CommTest, AMeanIsFiniteWhereItsValuesAre) {
  Run([](Comm& comm) {
    std::vector<float> large(5003, comm.rank() == 0 ? 2e38f : 3e38f);
    EXPECT_THAT(
        comm.AllReduce(Buffer::Of(std::span(large)), ReduceOp::kAverage, kLong),
        IsOk());
    const double mean = 3e38 - 1e38 / comm.world();
    EXPECT_FLOAT_EQ(large[5002], static_cast<float>(mean));
  });
}

// Small numbers, so that no step rounds.
template <typename T>
void CheckSixteenBits(Comm& comm, DType dtype, T (*narrow)(float)) {
  const float world = static_cast<float>(comm.world());
  for (const size_t count : {size_t{5}, size_t{4001}}) {
    for (const auto& [op, expected] :
         {std::pair(ReduceOp::kSum, world * (world + 1) / 2),
          std::pair(ReduceOp::kMax, world), std::pair(ReduceOp::kMin, 1.0f),
          std::pair(ReduceOp::kAverage, (world + 1) / 2)}) {
      std::vector<T> values(count, narrow(static_cast<float>(comm.rank() + 1)));
      EXPECT_THAT(comm.AllReduce(
                      {.data = values.data(), .count = count, .dtype = dtype},
                      op, kLong),
                  IsOk());
      for (const T value : values) {
        ASSERT_EQ(ToFloat(value), expected) << ToString(op) << ToString(dtype);
      }
    }
    std::vector<T> values(count, narrow(static_cast<float>(comm.rank())));
    EXPECT_THAT(
        comm.Broadcast({.data = values.data(), .count = count, .dtype = dtype},
                       comm.world() - 1, kLong),
        IsOk());
    ASSERT_EQ(ToFloat(values.back()), world - 1);
  }
}

TEST_P(CommTest, ReducesSixteenBitFloats) {
  Run([](Comm& comm) {
    CheckSixteenBits<Float16>(comm, DType::kF16, ToFloat16);
    CheckSixteenBits<BFloat16>(comm, DType::kBF16, ToBFloat16);
  });
}

// A block of `block` elements for each rank, whose numbers say whose it is.
template <typename T>
void CheckBlocks(Comm& comm, DType dtype, T (*narrow)(float), size_t block,
                 bool is_own) {
  SCOPED_TRACE(absl::StrCat("rank ", comm.rank(), " block ", block, " ",
                            ToString(dtype), is_own ? " own" : " allocated"));
  const int world = comm.world();
  const size_t count = block * static_cast<size_t>(world);
  const auto number = [&](int rank, size_t i) {
    return narrow(static_cast<float>(rank * 3 + static_cast<int>(i % 5)));
  };
  std::vector<T> own(count);
  auto memory = comm.Allocate(count * sizeof(T));
  ASSERT_THAT(memory, IsOk());
  const std::span<T> values =
      is_own ? std::span(own)
             : std::span(reinterpret_cast<T*>(memory->data()), count);
  const Buffer buffer{.data = values.data(), .count = count, .dtype = dtype};
  const size_t begin = block * static_cast<size_t>(comm.rank());

  for (size_t i = 0; i < block; ++i) {
    values[begin + i] = number(comm.rank(), i);
  }
  EXPECT_THAT(comm.AllGather(buffer, kLong), IsOk());
  for (size_t k = 0; k < count; ++k) {
    const T expected = number(static_cast<int>(k / block), k % block);
    ASSERT_EQ(0, std::memcmp(&values[k], &expected, sizeof(T))) << k;
  }

  for (size_t k = 0; k < count; ++k) values[k] = number(comm.rank(), k);
  EXPECT_THAT(comm.ReduceScatter(buffer, ReduceOp::kSum, kLong), IsOk());
  for (size_t k = begin; k < begin + block; ++k) {
    // Small numbers, so that no step rounds.
    const T expected = narrow(static_cast<float>(
        world * (world - 1) / 2 * 3 + world * static_cast<int>(k % 5)));
    ASSERT_EQ(0, std::memcmp(&values[k], &expected, sizeof(T))) << k;
  }
}

template <typename T>
T Cast(float value) {
  return static_cast<T>(value);
}

TEST_P(CommTest, GathersAndScattersBlocksOfEveryType) {
  Run([](Comm& comm) {
    for (const size_t block :
         {size_t{0}, size_t{1}, size_t{37}, size_t{40009}}) {
      for (const bool is_own : {true, false}) {
        CheckBlocks<float>(comm, DType::kF32, Cast<float>, block, is_own);
        CheckBlocks<double>(comm, DType::kF64, Cast<double>, block, is_own);
        CheckBlocks<int32_t>(comm, DType::kI32, Cast<int32_t>, block, is_own);
        CheckBlocks<int64_t>(comm, DType::kI64, Cast<int64_t>, block, is_own);
        CheckBlocks<Float16>(comm, DType::kF16, ToFloat16, block, is_own);
        CheckBlocks<BFloat16>(comm, DType::kBF16, ToBFloat16, block, is_own);
      }
    }
  });
}

TEST_P(CommTest, RefusesBlocksThatAreNotEqual) {
  if (world() == 1) return;
  Run([this](Comm& comm) {
    std::vector<float> values(static_cast<size_t>(world()) * 2 + 1);
    const Buffer buffer = Buffer::Of(std::span(values));
    EXPECT_THAT(comm.AllGather(buffer, kLong),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("blocks of equal size")));
    EXPECT_THAT(comm.ReduceScatter(buffer, ReduceOp::kSum, kLong),
                StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(comm.Barrier(kLong), IsOk());
  });
}

// In their order, and before what is called after them.
TEST_P(CommTest, DoesWorksThatWereStarted) {
  Run([](Comm& comm) {
    const size_t world = static_cast<size_t>(comm.world());
    std::vector<float> sums(1000, static_cast<float>(comm.rank() + 1));
    std::vector<int64_t> blocks(world * 3, comm.rank());
    std::vector<double> roots(2000, comm.rank());
    std::vector<float> parts(world * 500, 1.0f);
    CommWork sum = comm.StartAllReduce({Buffer::Of(std::span(sums))},
                                       ReduceOp::kSum, kLong);
    CommWork gather =
        comm.StartAllGather({Buffer::Of(std::span(blocks))}, kLong);
    CommWork scatter = comm.StartReduceScatter({Buffer::Of(std::span(parts))},
                                               ReduceOp::kSum, kLong);
    CommWork root = comm.StartBroadcast({Buffer::Of(std::span(roots))},
                                        comm.world() - 1, kLong);
    std::vector<float> called(10, 1.0f);
    EXPECT_THAT(
        comm.AllReduce(Buffer::Of(std::span(called)), ReduceOp::kSum, kLong),
        IsOk());
    EXPECT_TRUE(sum.IsOver());
    for (CommWork* work : {&root, &scatter, &gather, &sum}) {
      EXPECT_THAT(work->Wait(), IsOk());
      EXPECT_THAT(work->Wait(), IsOk());
    }
    const auto total = static_cast<float>(world * (world + 1) / 2);
    EXPECT_EQ(sums, std::vector<float>(1000, total));
    EXPECT_EQ(called[9], static_cast<float>(world));
    EXPECT_EQ(parts[static_cast<size_t>(comm.rank()) * 500],
              static_cast<float>(world));
    for (size_t i = 0; i < blocks.size(); ++i) {
      EXPECT_EQ(blocks[i], static_cast<int64_t>(i / 3));
    }
    EXPECT_EQ(roots[0], comm.world() - 1);
    EXPECT_THAT(comm.StartBarrier(kLong).Wait(), IsOk());
    EXPECT_THAT(
        comm.StartAllGather({{nullptr, world, DType::kF32}}, kLong).Wait(),
        StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(comm.Barrier(kLong), IsOk());
  });
}

TEST_P(CommTest, ZeroesMemory) {
  Run([](Comm& comm) {
    const auto memory = comm.Allocate(100);
    ASSERT_THAT(memory, IsOk());
    std::ranges::fill(*memory, std::byte{7});
    EXPECT_THAT(comm.Zero(memory->subspan(10, 80)), IsOk());
    EXPECT_EQ((*memory)[9], std::byte{7});
    EXPECT_EQ((*memory)[10], std::byte{0});
    EXPECT_EQ((*memory)[89], std::byte{0});
    EXPECT_EQ((*memory)[90], std::byte{7});
    // Nobody leaves before all are connected.
    EXPECT_THAT(comm.Barrier(kLong), IsOk());
  });
}

TEST_P(CommTest, ReducesSeveralBuffersInOneCall) {
  Run([this](Comm& comm) {
    // More than one round holds, of mixed types and places.
    std::vector<std::vector<double>> own;
    std::vector<Buffer> buffers;
    for (size_t i = 0; i < 37; ++i) {
      own.push_back(Input<double>(comm.rank(), i * 13, i));
    }
    for (auto& values : own) buffers.push_back(Buffer::Of(std::span(values)));
    auto memory = comm.Allocate(5000 * sizeof(float));
    ASSERT_THAT(memory, IsOk());
    const std::span<float> shared(reinterpret_cast<float*>(memory->data()),
                                  5000);
    std::ranges::copy(Input<float>(comm.rank(), 5000), shared.begin());
    buffers.insert(buffers.begin() + 20, Buffer::Of(shared));

    EXPECT_THAT(comm.AllReduce(buffers, ReduceOp::kSum, kLong), IsOk());
    for (size_t i = 0; i < own.size(); ++i) {
      EXPECT_TRUE(SameBits<double>(
          own[i], Expected<double>(nodes(), i * 13, ReduceOp::kSum, i)))
          << i;
    }
    EXPECT_TRUE(SameBits<float>(
        shared, Expected<float>(nodes(), 5000, ReduceOp::kSum)));
  });
}

TEST_P(CommTest, ReducesSmallBuffersOfMixedTypesInOneCall) {
  Run([](Comm& comm) {
    std::vector<float> floats = {1.5f, 2.5f, 3.5f};
    std::vector<int64_t> counts = {comm.rank() + 1};
    const Buffer buffers[] = {Buffer::Of(std::span(floats)),
                              Buffer::Of(std::span(counts))};
    EXPECT_THAT(comm.AllReduce(buffers, ReduceOp::kSum, kLong), IsOk());
    const float world = static_cast<float>(comm.world());
    EXPECT_EQ(floats[2], 3.5f * world);
    EXPECT_EQ(counts[0], comm.world() * (comm.world() + 1) / 2);
  });
}

TEST_P(CommTest, LetsNanAndInfinityPropagate) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  Run([](Comm& comm) {
    const bool last = comm.rank() == comm.world() - 1;
    for (const ReduceOp op :
         {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kAverage}) {
      for (const size_t count : {size_t{4}, size_t{4000}}) {
        std::vector<float> values(count, 1.0f);
        values[0] = last ? kNan : 1.0f;
        values[1] = comm.rank() == 0 ? kNan : 1.0f;
        values[2] = op == ReduceOp::kMin ? -kInf : kInf;
        EXPECT_THAT(comm.AllReduce(Buffer::Of(std::span(values)), op, kLong),
                    IsOk());
        EXPECT_TRUE(std::isnan(values[0])) << ToString(op);
        EXPECT_TRUE(std::isnan(values[1])) << ToString(op);
        EXPECT_TRUE(std::isinf(values[2])) << ToString(op);
        EXPECT_FALSE(std::isnan(values[3])) << ToString(op);
      }
    }
  });
}

TEST_P(CommTest, BroadcastsFromEveryRoot) {
  Run([](Comm& comm) {
    for (int root = 0; root < comm.world(); ++root) {
      for (const size_t count : kSizes) {
        std::vector<float> values = Input<float>(comm.rank(), count);
        EXPECT_THAT(comm.Broadcast(Buffer::Of(std::span(values)), root, kLong),
                    IsOk());
        EXPECT_TRUE(SameBits<float>(values, Input<float>(root, count)))
            << "rank " << comm.rank() << " root " << root;
      }
    }
  });
}

TEST_P(CommTest, NumbersOperationsAlikeOnAllRanks) {
  Run([](Comm& comm) {
    EXPECT_EQ(comm.epoch(), kEpoch);
    EXPECT_EQ(comm.sequence(), 0u);
    for (int i = 0; i < 50; ++i) EXPECT_THAT(comm.Barrier(kLong), IsOk());
    EXPECT_EQ(comm.sequence(), 50u);
  });
}

TEST_P(CommTest, GivesTheSameResultThroughManyMixedOperations) {
  Run([](Comm& comm) {
    SeededRandom random(42);  // the same choices on every rank
    std::vector<double> values(3000);
    double expected = 1.0;
    std::ranges::fill(values, expected);
    for (int i = 0; i < 200; ++i) {
      const size_t count = random.Below(2) == 0 ? 3 : values.size();
      const auto part = std::span(values).first(count);
      switch (random.Below(3)) {
        case 0:
          ASSERT_THAT(comm.Barrier(kLong), IsOk());
          break;
        case 1:
          ASSERT_THAT(comm.Broadcast(Buffer::Of(part),
                                     random.Below(comm.world()), kLong),
                      IsOk());
          break;
        default:
          ASSERT_THAT(
              comm.AllReduce(Buffer::Of(part), ReduceOp::kAverage, kLong),
              IsOk());
      }
      for (const double value : part) ASSERT_NEAR(value, expected, 1e-9);
    }
  });
}

TEST_P(CommTest, RefusesArgumentsThatCannotWork) {
  Run([](Comm& comm) {
    std::vector<int32_t> ints(3);
    const auto invalid = StatusIs(absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(
        comm.AllReduce(Buffer::Of(std::span(ints)), ReduceOp::kAverage, kLong),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("i32")));
    EXPECT_THAT(
        comm.Broadcast(Buffer::Of(std::span(ints)), comm.world(), kLong),
        invalid);
    EXPECT_THAT(comm.AllReduce(Buffer{.data = nullptr, .count = 1},
                               ReduceOp::kSum, kLong),
                invalid);
    EXPECT_THAT(comm.AllReduce(Buffer{.data = ints.data(),
                                      .count = 1,
                                      .dtype = static_cast<DType>(99)},
                               ReduceOp::kSum, kLong),
                invalid);
    EXPECT_EQ(comm.sequence(), 0u);
    EXPECT_THAT(comm.Barrier(kLong), IsOk());
  });
}

TEST_P(CommTest, TellsAllRanksWhenTheyBringDifferentSizes) {
  if (world() == 1) GTEST_SKIP() << "one rank cannot differ";
  for (const size_t count : {size_t{10}, size_t{10000}}) {
    Run([count](Comm& comm) {
      std::vector<float> values(comm.rank() == 1 ? count + 1 : count, 1.0f);
      EXPECT_THAT(
          comm.AllReduce(Buffer::Of(std::span(values)), ReduceOp::kSum, kLong),
          StatusIs(absl::StatusCode::kInvalidArgument,
                   HasSubstr(absl::StrCat(count))));
      EXPECT_EQ(values[0], 1.0f);
      EXPECT_THAT(comm.Barrier(kLong), IsOk()) << "still usable";
    });
  }
}

TEST_P(CommTest, TellsAllRanksWhenTheyDifferInTypeOrOperation) {
  if (world() == 1) GTEST_SKIP() << "one rank cannot differ";
  Run([](Comm& comm) {
    std::vector<double> doubles(2000, 1.0);
    std::vector<int64_t> ints(2000, 1);
    const auto invalid = StatusIs(absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(comm.rank() == 0
                    ? comm.AllReduce(Buffer::Of(std::span(doubles)),
                                     ReduceOp::kSum, kLong)
                    : comm.AllReduce(Buffer::Of(std::span(ints)),
                                     ReduceOp::kSum, kLong),
                invalid);
    EXPECT_THAT(comm.AllReduce(
                    Buffer::Of(std::span(doubles)),
                    comm.rank() == 0 ? ReduceOp::kSum : ReduceOp::kMax, kLong),
                invalid);
    EXPECT_THAT(comm.rank() == 0
                    ? comm.Barrier(kLong)
                    : comm.Broadcast(Buffer::Of(std::span(ints)), 0, kLong),
                invalid);
    EXPECT_THAT(comm.Barrier(kLong), IsOk());
  });
}

// CM-1.
TEST_P(CommTest, NamesTheRanksThatDidNotArriveByTheDeadline) {
  if (world() == 1) GTEST_SKIP() << "one rank waits for nobody";
  const auto backend = MakeBackend(std::get<0>(GetParam()), world());
  std::latch given_up(world() - 1);
  RunRanks(world(), [&](int rank) {
    auto comm = backend->Join(rank);
    ASSERT_THAT(comm, IsOk());
    ASSERT_THAT((*comm)->Barrier(kLong), IsOk());
    std::vector<float> values(10);
    if (rank == 1) {
      // Alive, connected and late.
      given_up.wait();
      return;
    }
    // Over nodes the steps of an operation share it, and two seconds between
    // them are enough for a slow machine.
    const bool is_stepped = nodes().size() > 1 && world() > 2;
    (*comm)->LimitDeadlines(is_stepped ? absl::Seconds(8)
                                       : absl::Milliseconds(100));
    EXPECT_THAT(
        (*comm)->AllReduce(Buffer::Of(std::span(values)), ReduceOp::kSum,
                           kLong),
        StatusIs(absl::StatusCode::kDeadlineExceeded,
                 AllOf(HasSubstr("AllReduce #2 (sum)"),
                       HasSubstr(is_stepped ? "8s" : "100ms"),
                       HasSubstr("rank(s) 1"), Not(HasSubstr("rank(s) 1, ")))));
    given_up.count_down();
    EXPECT_THAT((*comm)->Barrier(kLong),
                StatusIs(absl::StatusCode::kAborted,
                         HasSubstr("is over since: AllReduce #2")));
    given_up.wait();
  });
}

// CM-1: from another thread, while ranks wait and work.
TEST_P(CommTest, EndsPendingAndLaterWorkWhenRevoked) {
  const auto backend = MakeBackend(std::get<0>(GetParam()), world());
  std::latch met(world());
  RunRanks(world(), [&](int rank) {
    auto comm = backend->Join(rank);
    ASSERT_THAT(comm, IsOk());
    ASSERT_THAT((*comm)->Barrier(kLong), IsOk());
    met.arrive_and_wait();
    std::vector<float> values(100'000);
    std::thread revoker([&] { (*comm)->Revoke(); });
    absl::Status status;
    while (status.ok()) {
      status = (*comm)->AllReduce(Buffer::Of(std::span(values)), ReduceOp::kSum,
                                  kLong);
    }
    revoker.join();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted));
    EXPECT_THAT((*comm)->Barrier(kLong),
                StatusIs(absl::StatusCode::kAborted,
                         HasSubstr(absl::StrCat("epoch ", kEpoch))));
  });
}

}  // namespace
}  // namespace cohort::trainer

// All-reduce between four processes: on one node, and two on each of two nodes
// that are network namespaces of this machine, joined by a veth pair.  See
// README.md for what the figures mean.

#include <arpa/inet.h>
#include <fcntl.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "bench/report.h"
#include "common/status_macros.h"
#include "shm/arena.h"
#include "trainer/comm/comm.h"
#include "trainer/comm/nodes_comm.h"
#include "trainer/comm/shm_comm.h"
#include "trainer/comm/testing/exchange_over.h"

namespace cohort::bench {
namespace {

using Clock = std::chrono::steady_clock;
using trainer::Buffer;
using trainer::Comm;
using trainer::ReduceOp;

constexpr int kWorld = 4;
constexpr int kPerNode = 2;
constexpr uint64_t kEpoch = 1;
constexpr absl::Duration kDeadline = absl::Seconds(60);
constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;

double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start)
      .count();
}

std::string SizeName(size_t bytes) {
  return bytes >= kMiB ? absl::StrCat(bytes / kMiB, "MiB")
                       : absl::StrCat(bytes / kKiB, "KiB");
}

// Small whole numbers, so that every sum is exact.
float Input(int rank, size_t index) {
  return static_cast<float>((rank + 1) * (index % 1021 + 1));
}
float SumOfInputs(size_t index) {
  float sum = 0;
  for (int rank = 0; rank < kWorld; ++rank) sum += Input(rank, index);
  return sum;
}

// Two network namespaces, which end with the processes of this bench.
class Nodes {
 public:
  // Moves this process into the second.  False where this account may not.
  bool Make() {
    for (int& fd : fds_) {
      if (unshare(CLONE_NEWNET) != 0) return false;
      fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
      if (fd < 0) return false;
    }
    if (!Ip(absl::StrCat(
            "link add veth0 type veth peer name veth0 netns /proc/", getpid(),
            "/fd/", fds_[0]))) {
      return false;
    }
    for (int node = 0; node < 2; ++node) {
      if (!Enter(node).ok() ||
          !Ip(absl::StrCat("addr add ", AddressOf(node), "/24 dev veth0")) ||
          !Ip("link set veth0 up") || !Ip("link set lo up")) {
        return false;
      }
    }
    return true;
  }

  static std::string AddressOf(int node) {
    return absl::StrCat("10.77.0.", node + 1);
  }

  // Moves this process there.
  absl::Status Enter(int node) const {
    return setns(fds_[node], CLONE_NEWNET) == 0
               ? absl::OkStatus()
               : absl::ErrnoToStatus(errno, "entering a network namespace");
  }

 private:
  static bool Ip(const std::string& command) {
    return std::system(absl::StrCat("ip ", command, " >/dev/null").c_str()) ==
           0;
  }

  int fds_[2] = {-1, -1};
};

struct Contender {
  std::string name;
  std::span<float> values;
  std::function<absl::Status()> all_reduce;
};

// One of the four processes.
class Rank {
 public:
  Rank(int rank, std::string directory, const Nodes* nodes)
      : rank_(rank), directory_(std::move(directory)), nodes_(nodes) {}

  absl::Status Join() {
    if (nodes_ != nullptr) COHORT_RETURN_IF_ERROR(nodes_->Enter(node()));
    COHORT_ASSIGN_OR_RETURN(place_,
                            shm::ArenaPlace::Claim(directory_ + "/all", rank_));
    COHORT_ASSIGN_OR_RETURN(all_, trainer::ShmComm::Create(*place_, kEpoch));
    COHORT_RETURN_IF_ERROR(all_->Barrier(kDeadline));
    trainer::Exchange exchange = trainer::ExchangeOver(*all_);
    const trainer::GlooCommOptions options = {
        .rank = rank_, .world = kWorld, .epoch = kEpoch, .hostname = host()};
    COHORT_ASSIGN_OR_RETURN(flat_, trainer::ConnectGloo(options, exchange));
    if (nodes_ != nullptr) {
      COHORT_ASSIGN_OR_RETURN(
          node_place_,
          shm::ArenaPlace::Claim(absl::StrCat(directory_, "/node", node()),
                                 rank_ % kPerNode));
      COHORT_ASSIGN_OR_RETURN(
          trainer::NodesComm connected,
          trainer::ConnectNodes(
              options, {.node = node(), .local_rank = rank_ % kPerNode},
              *node_place_, exchange));
      hierarchical_ = std::move(connected.comm);
    }
    return JoinGloo();
  }

  absl::Status Run(const Flags& flags) {
    Report report("allreduce_gang", flags);
    const size_t sizes[] = {kKiB, 64 * kKiB, kMiB, 4 * kMiB, 25 * kMiB};
    own_.resize(25 * kMiB / sizeof(float));
    copy_.resize(own_.size());
    Comm& ours = nodes_ != nullptr ? *hierarchical_ : *all_;
    COHORT_ASSIGN_OR_RETURN(const std::span<std::byte> memory,
                            ours.Allocate(own_.size() * sizeof(float)));
    shared_ = {reinterpret_cast<float*>(memory.data()), own_.size()};
    for (const size_t bytes : sizes) {
      COHORT_RETURN_IF_ERROR(Measure(bytes, ours, flags, report));
    }
    return absl::OkStatus();
  }

 private:
  int node() const { return rank_ / kPerNode; }
  std::string host() const {
    return nodes_ != nullptr ? Nodes::AddressOf(node()) : "127.0.0.1";
  }

  absl::Status JoinGloo() {
    gloo::transport::tcp::attr attr;
    attr.hostname = host();
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(attr);
    gloo::rendezvous::FileStore store(directory_ + "/gloo");
    gloo_ = std::make_shared<gloo::rendezvous::Context>(rank_, kWorld);
    gloo_->connectFullMesh(store, device);
    return absl::OkStatus();
  }

  std::vector<Contender> Contenders(size_t count, Comm& ours) {
    const auto of = [](Comm& comm, std::span<float> values) {
      return [&comm, values] {
        return comm.AllReduce(Buffer::Of(values), ReduceOp::kSum, kDeadline);
      };
    };
    const std::span<float> shared = shared_.first(count);
    const std::span<float> own = std::span(own_).first(count);
    std::vector<Contender> all;
    const std::string place = nodes_ != nullptr ? "2x2" : "4";
    all.push_back({absl::StrCat(nodes_ != nullptr ? "nodes/" : "shm/", place),
                   shared, of(ours, shared)});
    all.push_back({absl::StrCat("gloo_comm/", place), own, of(*flat_, own)});
    using Algorithm = gloo::AllreduceOptions::Algorithm;
    for (const auto& [name, algorithm] :
         {std::pair{"gloo-ring", Algorithm::RING},
          std::pair{"gloo-bcube", Algorithm::BCUBE}}) {
      all.push_back({name, own, [this, own, algorithm = algorithm] {
                       gloo::AllreduceOptions options(gloo_);
                       options.setAlgorithm(algorithm);
                       options.setOutput(own.data(), own.size());
                       void (*sum)(void*, const void*, const void*, size_t) =
                           &gloo::sum<float>;
                       options.setReduceFunction(sum);
                       gloo::allreduce(options);
                       return absl::OkStatus();
                     }});
    }
    using Halving = gloo::AllreduceHalvingDoubling<float>;
    const auto halving = std::make_shared<Halving>(
        gloo_, std::vector<float*>{own.data()}, static_cast<int>(own.size()));
    all.push_back({"gloo-halving", own, [halving] {
                     halving->run();
                     return absl::OkStatus();
                   }});
    return all;
  }

  absl::Status Measure(size_t bytes, Comm& ours, const Flags& flags,
                       Report& report) {
    std::vector<Contender> contenders = Contenders(bytes / sizeof(float), ours);
    std::vector<Samples> samples(contenders.size());
    Samples floor;
    const int runs = flags.quick ? 5 : 15;
    for (int run = -1; run < runs; ++run) {  // the first one warms up
      for (size_t i = 0; i < contenders.size(); ++i) {
        COHORT_ASSIGN_OR_RETURN(const double us, TimeRun(contenders[i]));
        if (run >= 0) samples[i].values.push_back(us);
      }
      COHORT_ASSIGN_OR_RETURN(const double us, TimeFloor(bytes));
      if (run >= 0) floor.values.push_back(us);
    }
    if (rank_ != 0) return absl::OkStatus();
    Figure figure;
    for (size_t i = 2; i < contenders.size(); ++i) {
      const double median = samples[i].median();
      if (figure.peer_value && *figure.peer_value <= median) continue;
      figure.peer_value = median;
      figure.peer = contenders[i].name;
    }
    for (size_t i = 0; i < 2; ++i) {
      figure.name = absl::StrCat(contenders[i].name, "/hot/", SizeName(bytes));
      figure.samples = samples[i];
      figure.unit = "us";
      figure.floor = floor.median();
      report.Add(figure);
    }
    return absl::OkStatus();
  }

  // Each operation makes four times the sum; floats bear forty of them.
  static int Operations(size_t bytes) { return bytes <= kMiB ? 40 : 4; }

  // Microseconds an operation, of the slowest rank.
  absl::StatusOr<double> TimeRun(const Contender& contender) {
    const std::span<float> values = contender.values;
    const int operations = Operations(values.size_bytes());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = std::ldexp(Input(rank_, i), -90);
    }
    COHORT_RETURN_IF_ERROR(all_->Barrier(kDeadline));
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < operations; ++i) {
      COHORT_RETURN_IF_ERROR(contender.all_reduce());
    }
    const double us = MicrosecondsSince(start);
    for (size_t i = 0; i < values.size(); ++i) {
      const float sum = std::ldexp(SumOfInputs(i), 2 * (operations - 1) - 90);
      if (values[i] == sum) continue;
      return absl::DataLossError(absl::StrCat(
          contender.name, ": element ", i, " is ", values[i], ", not ", sum));
    }
    return Slowest(us / operations);
  }

  // What no all-reduce can be faster than.  On one node each rank's memory is
  // read and written once; between two, as many bytes cross each way.
  absl::StatusOr<double> TimeFloor(size_t bytes) {
    Samples each;
    for (int i = 0; i < Operations(bytes); ++i) {
      COHORT_RETURN_IF_ERROR(all_->Barrier(kDeadline));
      const Clock::time_point start = Clock::now();
      if (nodes_ == nullptr) {
        std::memcpy(copy_.data(), own_.data(), bytes);
        asm volatile("" : : "r"(copy_.data()) : "memory");
      } else if (rank_ % kPerNode == 0) {
        COHORT_RETURN_IF_ERROR(CrossNodes(bytes));
      }
      each.values.push_back(MicrosecondsSince(start));
    }
    return Slowest(each.median());
  }

  // Sends so many bytes to the other node over a connection, and takes as many.
  absl::Status CrossNodes(size_t bytes) {
    if (wire_ < 0) COHORT_RETURN_IF_ERROR(ConnectWire());
    const char* const from = reinterpret_cast<const char*>(own_.data());
    char* const to = reinterpret_cast<char*>(copy_.data());
    for (size_t sent = 0, taken = 0; sent < bytes || taken < bytes;) {
      pollfd wait = {
          wire_, static_cast<short>(POLLIN | (sent < bytes ? POLLOUT : 0)), 0};
      poll(&wait, 1, -1);
      if ((wait.revents & POLLOUT) != 0) {
        const ssize_t n =
            send(wire_, from + sent, bytes - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) sent += static_cast<size_t>(n);
      }
      if ((wait.revents & POLLIN) == 0) continue;
      const ssize_t n = recv(wire_, to + taken, bytes - taken, MSG_DONTWAIT);
      if (n == 0) return absl::UnavailableError("the other node is gone");
      if (n > 0) taken += static_cast<size_t>(n);
    }
    return absl::OkStatus();
  }

  absl::Status ConnectWire();

  absl::StatusOr<double> Slowest(double us) {
    COHORT_RETURN_IF_ERROR(all_->AllReduce(Buffer::Of(std::span(&us, 1)),
                                           ReduceOp::kMax, kDeadline));
    return us;
  }

  const int rank_;
  const std::string directory_;
  const Nodes* const nodes_;  // null on one
  std::unique_ptr<shm::ArenaPlace> place_;
  std::unique_ptr<shm::ArenaPlace> node_place_;
  std::unique_ptr<trainer::ShmComm> all_;
  std::unique_ptr<Comm> flat_;
  std::unique_ptr<Comm> hierarchical_;
  std::shared_ptr<gloo::rendezvous::Context> gloo_;
  std::span<float> shared_;
  std::vector<float> own_;
  std::vector<float> copy_;
  int wire_ = -1;
};

absl::Status Rank::ConnectWire() {
  constexpr uint16_t kPort = 7799;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(kPort);
  inet_pton(AF_INET, Nodes::AddressOf(0).c_str(), &address.sin_addr);
  auto* const to = reinterpret_cast<sockaddr*>(&address);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (rank_ == 0) {
    if (bind(fd, to, sizeof(address)) != 0 || listen(fd, 1) != 0) {
      return absl::ErrnoToStatus(errno, "listening");
    }
    wire_ = accept(fd, nullptr, nullptr);
    close(fd);
  } else {
    const Clock::time_point until = Clock::now() + std::chrono::seconds(10);
    while (connect(fd, to, sizeof(address)) != 0 && Clock::now() < until) {
      sched_yield();
    }
    wire_ = fd;
  }
  const int on = 1;
  setsockopt(wire_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return absl::OkStatus();
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "bench_allreduce_gang: %s\n", status.ToString().c_str());
  return 125;
}

absl::Status MakeArena(const std::string& directory, int world) {
  std::filesystem::create_directory(directory);
  return shm::Arena::Create(
             directory,
             {.attempt = "bench", .epoch = kEpoch, .local_world = world})
      .status();
}

// Four processes, of which this is not one.
int RunGang(const Nodes* nodes, const Flags& flags) {
  std::string directory = "/dev/shm/cohort-bench-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) {
    return Fail(absl::InternalError("no directory in /dev/shm"));
  }
  std::filesystem::create_directory(directory + "/gloo");
  absl::Status made = MakeArena(directory + "/all", kWorld);
  for (int node = 0; node < 2 && made.ok(); ++node) {
    made = MakeArena(absl::StrCat(directory, "/node", node), kPerNode);
  }
  int code = made.ok() ? 0 : Fail(made);
  for (int rank = 0; rank < kWorld && code == 0; ++rank) {
    if (fork() != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    absl::Status done;
    {
      Rank self(rank, directory, nodes);
      done = self.Join();
      if (done.ok()) done = self.Run(flags);
    }
    std::fflush(stdout);
    _exit(done.ok() ? 0 : Fail(done));
  }
  for (int status = 0; wait(&status) > 0;) {
    if (status != 0) code = 125;
  }
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  return code;
}

int Main(int argc, char** argv) {
  const Flags flags = ParseFlags(argc, argv);
  if (const int code = RunGang(nullptr, flags); code != 0) return code;
  Nodes nodes;
  if (!nodes.Make()) {
    return Skip("allreduce_gang",
                "no network namespaces (run it as root, with ip)");
  }
  return RunGang(&nodes, flags);
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) { return cohort::bench::Main(argc, argv); }

#include "bench/swarm.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/channel_arguments.h"
#include "grpcpp/support/client_callback.h"

#include "common/latch.h"
#include "common/mutex.h"
#include "rpc/certificate.h"

namespace cohort::bench {
namespace {

using Stub = grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>;

grpc::ByteBuffer ToBuffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

std::string ToBytes(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  buffer.Dump(&slices);
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

// A connection of its own: channels with equal arguments share one.
std::shared_ptr<grpc::Channel> Connect(const SwarmOptions& options,
                                       int number) {
  grpc::ChannelArguments arguments;
  arguments.SetInt("cohort.bench.connection", number);
  if (options.authority.empty()) {
    return grpc::CreateCustomChannel(
        options.address, grpc::InsecureChannelCredentials(), arguments);
  }
  arguments.SetSslTargetNameOverride(rpc::kServerName);
  return grpc::CreateCustomChannel(
      options.address,
      grpc::SslCredentials({.pem_root_certs = options.authority}), arguments);
}

}  // namespace

// Reads and drops what comes; writes one message at a time.
class Swarm::Stream final
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Stream(Swarm& swarm, int number, std::shared_ptr<Stub> stub)
      : swarm_(swarm), number_(number), stub_(std::move(stub)) {
    const SwarmOptions& options = swarm_.options_;
    if (!options.authorization.empty()) {
      context_.AddMetadata("authorization", options.authorization);
    }
    stub_->PrepareBidiStreamingCall(&context_, options.path, {}, this);
    write_ = ToBuffer(options.first(number_));
    writing_ = true;
    StartRead(&read_);
    StartWrite(&write_);
    StartCall();
  }

  void Beat() {
    MutexLock lock(mutex_);
    if (writing_ || answer_.empty() || ended_) return;
    write_ = ToBuffer(swarm_.options_.beat(number_, answer_));
    writing_ = true;
    ++swarm_.beats_;
    StartWrite(&write_);
  }

  void Cancel() { context_.TryCancel(); }
  void AwaitEnd() { done_.Wait(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    {
      MutexLock lock(mutex_);
      if (answer_.empty()) {
        answer_ = ToBytes(read_);
        ++swarm_.answered_;
      }
    }
    StartRead(&read_);
  }

  void OnWriteDone(bool /*ok*/) override {
    MutexLock lock(mutex_);
    writing_ = false;
  }

  void OnDone(const grpc::Status& /*status*/) override {
    {
      MutexLock lock(mutex_);
      ended_ = true;
    }
    if (!swarm_.ending_) ++swarm_.lost_;
    done_.Open();
  }

 private:
  Swarm& swarm_;
  const int number_;
  const std::shared_ptr<Stub> stub_;  // Shared: the streams of a connection.
  grpc::ClientContext context_;
  grpc::ByteBuffer read_;
  grpc::ByteBuffer write_;
  Latch done_;
  Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::string answer_ ABSL_GUARDED_BY(mutex_);
};

Swarm::Swarm(SwarmOptions options) : options_(std::move(options)) {
  std::shared_ptr<Stub> stub;
  for (int number = 0; number < options_.streams; ++number) {
    if (number % options_.streams_per_connection == 0) {
      stub = std::make_shared<Stub>(Connect(options_, number));
    }
    streams_.push_back(std::make_unique<Stream>(*this, number, stub));
  }
  beater_ = std::thread([this] { Beat(); });
}

Swarm::~Swarm() {
  ending_ = true;
  beater_.join();
  for (const auto& stream : streams_) stream->Cancel();
  for (const auto& stream : streams_) stream->AwaitEnd();
}

void Swarm::Beat() {
  // Each tick the part of the streams that is due.
  constexpr int kTicks = 100;
  absl::Time next = absl::Now();
  for (int tick = 0; !ending_; tick = (tick + 1) % kTicks) {
    for (size_t i = static_cast<size_t>(tick); i < streams_.size() && !paused_;
         i += kTicks) {
      streams_[i]->Beat();
    }
    next += options_.period / kTicks;
    absl::SleepFor(next - absl::Now());
  }
}

absl::Status Swarm::AwaitAnswers(absl::Duration timeout) {
  const absl::Time late = absl::Now() + timeout;
  while (answered_ < options_.streams) {
    if (lost_ > 0 || absl::Now() > late) {
      return absl::DeadlineExceededError(
          absl::StrCat(answered_.load(), " of ", options_.streams,
                       " streams were answered, ", lost_.load(), " ended"));
    }
    absl::SleepFor(absl::Milliseconds(5));
  }
  return absl::OkStatus();
}

}  // namespace cohort::bench

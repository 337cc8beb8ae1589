#include "bench/target.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/client_callback.h"

#include "client/wire.h"
#include "common/latch.h"
#include "common/status_macros.h"

namespace cohort::bench {
namespace {

// A protobuf field of bytes: tag, length, bytes.
std::string BytesField(int number, const std::string& bytes) {
  std::string field(1, static_cast<char>(number << 3 | 2));
  size_t length = bytes.size();
  for (; length >= 0x80; length >>= 7) {
    field.push_back(static_cast<char>((length & 0x7f) | 0x80));
  }
  field.push_back(static_cast<char>(length));
  return field + bytes;
}

}  // namespace

JobSpec FullSpec(int number) {
  JobSpec spec;
  spec.command = {"./train", "--epochs",          "10", "--batch", "64",
                  "--seed",  absl::StrCat(number)};
  spec.environment = {{"OMP_NUM_THREADS", "2"}, {"PATH", "/usr/bin:/bin"}};
  spec.scaling_config = {.num_workers = 2,
                         .use_gpu = true,
                         .resources_per_worker = *ParseResources("CPU=4,GPU=1"),
                         .placement_strategy = PlacementStrategy::kStrictPack};
  spec.run_config = {.name = absl::StrCat("bench-", number),
                     .storage_path = "/data/results",
                     .failure_config = {.max_failures = 3},
                     .checkpoint_config = {.num_to_keep = 2}};
  return spec;
}

absl::Status Target::CallAndWait(int number) {
  Latch answered;
  absl::Status result;
  Call(number, [&](absl::Status status) {
    result = std::move(status);
    answered.Open();
  });
  answered.Wait();
  return result;
}

void HeadTarget::Call(int number, Done done) {
  cluster_.SubmitAsync(
      FullSpec(number), {},
      [this, done = std::move(done)](absl::StatusOr<JobId> job) {
        done(Note(std::move(job)));
      });
}

absl::Status HeadTarget::Note(absl::StatusOr<JobId> job) {
  COHORT_RETURN_IF_ERROR(job.status());
  MutexLock lock(mutex_);
  return jobs_.insert(*job).second
             ? absl::OkStatus()
             : absl::InternalError("two submissions got one job");
}

int64_t HeadTarget::acknowledged() const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(jobs_.size());
}

struct StubTarget::Stub {
  explicit Stub(const std::string& address)
      : method(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials())) {}

  // Lives until its reply; gRPC's threads free it.
  struct OneCall {
    grpc::ClientContext context;
    grpc::ByteBuffer request;
    grpc::ByteBuffer response;
  };

  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> method;
};

StubTarget::StubTarget(const std::string& address, std::string path,
                       Request request)
    : stub_(std::make_unique<Stub>(address)),
      path_(std::move(path)),
      request_(std::move(request)) {}

StubTarget::~StubTarget() = default;

void StubTarget::Call(int number, Done done) {
  auto* const call = new Stub::OneCall();
  const grpc::Slice slice(request_(number));
  call->request = grpc::ByteBuffer(&slice, 1);
  stub_->method.UnaryCall(
      &call->context, path_, {}, &call->request, &call->response,
      [call, done = std::move(done)](const grpc::Status& status) {
        delete call;
        done(status.ok() ? absl::OkStatus()
                         : absl::UnavailableError(status.error_message()));
      });
}

std::unique_ptr<Target> EtcdTarget(const std::string& address, int64_t bytes) {
  const std::string value(static_cast<size_t>(bytes), 'x');
  return std::make_unique<StubTarget>(
      address, "/etcdserverpb.KV/Put", [value](int number) {
        static std::atomic<int64_t> unique = 0;
        return BytesField(1, absl::StrFormat("job-%d-%d", number, ++unique)) +
               BytesField(2, value);
      });
}

std::unique_ptr<Target> FloorTarget(const std::string& address) {
  return std::make_unique<StubTarget>(address, "/Floor/Submit", [](int number) {
    return client::ToWire(FullSpec(number)).SerializeAsString();
  });
}

}  // namespace cohort::bench

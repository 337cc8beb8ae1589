// The floor of `transitions` and `nodes`: gRPC and a disk, and nothing else.
//
//   floor-server LOG BYTES READY
//
// Submit: each call appends BYTES to LOG and is answered once they are synced,
// by one committer thread that joins all that wait into one write.  Stream:
// answers the first message and reads the rest.  The address goes to READY.

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/impl/rpc_method.h"
#include "grpcpp/impl/rpc_service_method.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/server_callback.h"

#include "common/check.h"
#include "common/file.h"
#include "common/mutex.h"

namespace cohort::bench {
namespace {

// What SubmitJob answers is about as long.
constexpr size_t kAnswerBytes = 40;

// Group commit of opaque bytes.  Thread-safe.
class Committer {
 public:
  Committer(const char* path, size_t bytes)
      : fd_(open(path, O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600)),
        row_(bytes, 'x') {
    COHORT_CHECK(fd_ >= 0) << path;
  }

  void Add(grpc::ServerUnaryReactor* reactor) {
    MutexLock lock(mutex_);
    waiting_.push_back(reactor);
    changed_.Signal();
  }

  [[noreturn]] void Run() {
    for (;;) {
      const std::vector<grpc::ServerUnaryReactor*> group = Take();
      std::string bytes;
      for (size_t i = 0; i < group.size(); ++i) bytes += row_;
      COHORT_CHECK(write(fd_, bytes.data(), bytes.size()) ==
                   static_cast<ssize_t>(bytes.size()));
      COHORT_CHECK(fdatasync(fd_) == 0);
      for (grpc::ServerUnaryReactor* reactor : group) {
        reactor->Finish(grpc::Status::OK);
      }
    }
  }

 private:
  std::vector<grpc::ServerUnaryReactor*> Take() {
    MutexLock lock(mutex_);
    while (waiting_.empty()) changed_.Wait(mutex_);
    return std::exchange(waiting_, {});
  }

  const int fd_;
  const std::string row_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<grpc::ServerUnaryReactor*> waiting_ ABSL_GUARDED_BY(mutex_);
};

class Call final : public grpc::ServerUnaryReactor {
 public:
  void OnDone() override { delete this; }
};

class Stream final
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Stream() {
    const grpc::Slice answer(std::string(kAnswerBytes, 'a'));
    answer_ = grpc::ByteBuffer(&answer, 1);
    StartRead(&read_);
    StartWrite(&answer_);
  }
  void OnReadDone(bool ok) override {
    if (ok) {
      StartRead(&read_);
    } else {
      Finish(grpc::Status::OK);
    }
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer read_;
  grpc::ByteBuffer answer_;
};

class Service final : public grpc::Service {
 public:
  explicit Service(Committer& committer) {
    AddMethod(new grpc::internal::RpcServiceMethod(
        "/Floor/Submit", grpc::internal::RpcMethod::NORMAL_RPC, nullptr));
    MarkMethodRawCallback(
        0, new grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer,
                                                    grpc::ByteBuffer>(
               [&committer](grpc::CallbackServerContext* /*context*/,
                            const grpc::ByteBuffer* /*request*/,
                            grpc::ByteBuffer* response) {
                 const grpc::Slice answer(std::string(kAnswerBytes, 'a'));
                 *response = grpc::ByteBuffer(&answer, 1);
                 auto* const call = new Call();
                 committer.Add(call);
                 return call;
               }));
    AddMethod(new grpc::internal::RpcServiceMethod(
        "/Floor/Stream", grpc::internal::RpcMethod::BIDI_STREAMING, nullptr));
    MarkMethodRawCallback(
        1, new grpc::internal::CallbackBidiHandler<grpc::ByteBuffer,
                                                   grpc::ByteBuffer>(
               [](grpc::CallbackServerContext* /*context*/) {
                 return new Stream();
               }));
  }
};

int Main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: floor-server LOG BYTES READY\n");
    return 2;
  }
  Committer committer(argv[1], std::strtoul(argv[2], nullptr, 10));
  Service service(committer);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  COHORT_CHECK(server != nullptr) << "no port";
  const absl::Status ready = WriteFileAtomically(
      argv[3], absl::StrCat("127.0.0.1:", port, "\n"), 0600);
  COHORT_CHECK(ready.ok()) << ready.ToString();
  committer.Run();
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) { return cohort::bench::Main(argc, argv); }

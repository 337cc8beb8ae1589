// Calls into each library that our programs link: one gRPC call over a unix
// socket with a protobuf message, one synced RocksDB write, one digest.  Exit
// status 0 says that the link is whole.

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <openssl/evp.h>
#include <rocksdb/db.h>
#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <future>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "google/protobuf/wrappers.pb.h"

namespace {

// Answers any unary call with its own request.
class Echo final : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* /*context*/) override {
    return new Reactor;
  }

 private:
  class Reactor final : public grpc::ServerGenericBidiReactor {
   public:
    Reactor() { StartRead(&buffer_); }
    void OnReadDone(bool ok) override {
      if (ok) {
        StartWriteAndFinish(&buffer_, grpc::WriteOptions(), grpc::Status::OK);
      } else {
        Finish(grpc::Status::CANCELLED);
      }
    }
    void OnDone() override { delete this; }

   private:
    grpc::ByteBuffer buffer_;
  };
};

absl::Status CallOverSocket(const std::string& directory) {
  const std::string address = absl::StrCat("unix:", directory, "/socket");
  Echo echo;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterCallbackGenericService(&echo);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    return absl::UnavailableError(absl::StrCat("no server on ", address));
  }
  google::protobuf::StringValue sent;
  sent.set_value("light");
  google::protobuf::StringValue received;
  {
    grpc::TemplatedGenericStub<google::protobuf::StringValue,
                               google::protobuf::StringValue>
        stub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    std::promise<grpc::Status> done;
    stub.UnaryCall(&context, "/probe/Echo", grpc::StubOptions(), &sent,
                   &received,
                   [&done](grpc::Status status) { done.set_value(status); });
    const grpc::Status status = done.get_future().get();
    if (!status.ok()) return absl::UnavailableError(status.error_message());
  }
  server->Shutdown();
  return received.value() == sent.value()
             ? absl::OkStatus()
             : absl::DataLossError("the echo differs");
}

absl::Status WriteStore(const std::string& directory) {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.compression = rocksdb::kZSTD;
  rocksdb::DB* opened = nullptr;
  rocksdb::Status status = rocksdb::DB::Open(options, directory, &opened);
  const std::unique_ptr<rocksdb::DB> db(opened);
  rocksdb::WriteOptions synced;
  synced.sync = true;
  if (status.ok()) status = db->Put(synced, "job", std::string(10000, 'x'));
  if (status.ok()) status = db->Flush(rocksdb::FlushOptions());
  std::string value;
  if (status.ok()) status = db->Get(rocksdb::ReadOptions(), "job", &value);
  if (!status.ok()) return absl::DataLossError(status.ToString());
  return value.size() == 10000 ? absl::OkStatus()
                               : absl::DataLossError("the row differs");
}

absl::Status Digest() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  return EVP_Digest("x", 1, digest, &size, EVP_sha256(), nullptr) == 1 &&
                 size == 32
             ? absl::OkStatus()
             : absl::InternalError("no SHA-256");
}

}  // namespace

int main() {
  std::string directory = "/var/tmp/cohort-linkage-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) {
    std::perror(directory.c_str());
    return 1;
  }
  const absl::flat_hash_map<std::string, absl::Status> results = {
      {"grpc", CallOverSocket(directory)},
      {"rocksdb", WriteStore(absl::StrCat(directory, "/store"))},
      {"openssl", Digest()},
  };
  std::filesystem::remove_all(directory);
  bool whole = true;
  for (const auto& [library, status] : results) {
    std::printf("%s: %s\n", library.c_str(), status.ToString().c_str());
    whole = whole && status.ok();
  }
  return whole ? 0 : 1;
}

#pragma once

namespace cohort::rpc {

// Names a call and fixes its message types.  Immutable.
//
//   inline constexpr UnaryMethod<v1::SubmitJobRequest, v1::SubmitJobResponse>
//       kSubmitJob{"/cohort.v1.ClusterService/SubmitJob"};
//
// The path is gRPC's, so that a stock gRPC client of the proto's service meets
// the handler.  Servers and clients use the same constant.
template <typename Req, typename Resp>
struct UnaryMethod {
  const char* path;
};

// A stream of Up from the client and of Down from the server.  Server streaming
// is the same with a client that half-closes after its one message.
template <typename Up, typename Down>
struct StreamMethod {
  const char* path;
};

}  // namespace cohort::rpc

#pragma once

#include "cohort/v1/actor.pb.h"
#include "cohort/v1/autoscaler.pb.h"
#include "cohort/v1/cluster.pb.h"
#include "cohort/v1/node.pb.h"
#include "cohort/v1/run.pb.h"
#include "rpc/method.h"

// Every call of the wire, once: servers and clients use these constants, and
// methods_test holds them against the services in proto/.
namespace cohort::rpc {

// ClusterService: clients and workers to the head.
inline constexpr UnaryMethod<v1::SubmitJobRequest, v1::SubmitJobResponse>
    kSubmitJob{"/cohort.v1.ClusterService/SubmitJob"};
inline constexpr UnaryMethod<v1::StopJobRequest, v1::StopJobResponse> kStopJob{
    "/cohort.v1.ClusterService/StopJob"};
inline constexpr UnaryMethod<v1::HoldJobRequest, v1::HoldJobResponse> kHoldJob{
    "/cohort.v1.ClusterService/HoldJob"};
inline constexpr UnaryMethod<v1::ReleaseJobRequest, v1::ReleaseJobResponse>
    kReleaseJob{"/cohort.v1.ClusterService/ReleaseJob"};
inline constexpr UnaryMethod<v1::RemoveJobRequest, v1::RemoveJobResponse>
    kRemoveJob{"/cohort.v1.ClusterService/RemoveJob"};
inline constexpr UnaryMethod<v1::ResizeJobRequest, v1::ResizeJobResponse>
    kResizeJob{"/cohort.v1.ClusterService/ResizeJob"};
inline constexpr UnaryMethod<v1::GetJobRequest, v1::GetJobResponse> kGetJob{
    "/cohort.v1.ClusterService/GetJob"};
inline constexpr UnaryMethod<v1::ListJobsRequest, v1::ListJobsResponse>
    kListJobs{"/cohort.v1.ClusterService/ListJobs"};
inline constexpr UnaryMethod<v1::ListNodesRequest, v1::ListNodesResponse>
    kListNodes{"/cohort.v1.ClusterService/ListNodes"};
inline constexpr UnaryMethod<v1::GetNodeRequest, v1::GetNodeResponse> kGetNode{
    "/cohort.v1.ClusterService/GetNode"};
inline constexpr UnaryMethod<v1::DrainNodeRequest, v1::DrainNodeResponse>
    kDrainNode{"/cohort.v1.ClusterService/DrainNode"};
inline constexpr UnaryMethod<v1::UndrainNodeRequest, v1::UndrainNodeResponse>
    kUndrainNode{"/cohort.v1.ClusterService/UndrainNode"};
inline constexpr UnaryMethod<v1::GetResourcesRequest, v1::GetResourcesResponse>
    kGetResources{"/cohort.v1.ClusterService/GetResources"};
inline constexpr UnaryMethod<v1::GetStatusRequest, v1::GetStatusResponse>
    kGetStatus{"/cohort.v1.ClusterService/GetStatus"};
inline constexpr UnaryMethod<v1::ExplainJobRequest, v1::ExplainJobResponse>
    kExplainJob{"/cohort.v1.ClusterService/ExplainJob"};
inline constexpr UnaryMethod<v1::WaitJobRequest, v1::WaitJobResponse> kWaitJob{
    "/cohort.v1.ClusterService/WaitJob", Load::kWaiting};
inline constexpr StreamMethod<v1::ReadLogRequest, v1::ReadLogResponse> kReadLog{
    "/cohort.v1.ClusterService/ReadLog"};
inline constexpr StreamMethod<v1::ReadRunFileRequest, v1::ReadRunFileResponse>
    kReadRunFile{"/cohort.v1.ClusterService/ReadRunFile"};
inline constexpr UnaryMethod<v1::GetStackRequest, v1::GetStackResponse>
    kGetStack{"/cohort.v1.ClusterService/GetStack", Load::kWaiting};
inline constexpr UnaryMethod<v1::GetServedCallsRequest,
                             v1::GetServedCallsResponse>
    kGetServedCalls{"/cohort.v1.ClusterService/GetServedCalls", Load::kWaiting};
inline constexpr UnaryMethod<v1::BeginPackageRequest, v1::BeginPackageResponse>
    kBeginPackage{"/cohort.v1.ClusterService/BeginPackage"};
inline constexpr UnaryMethod<v1::UploadPackageRequest,
                             v1::UploadPackageResponse>
    kUploadPackage{"/cohort.v1.ClusterService/UploadPackage", Load::kBulk};
inline constexpr UnaryMethod<v1::FinishPackageRequest,
                             v1::FinishPackageResponse>
    kFinishPackage{"/cohort.v1.ClusterService/FinishPackage"};
inline constexpr UnaryMethod<v1::FetchPackageRequest, v1::FetchPackageResponse>
    kFetchPackage{"/cohort.v1.ClusterService/FetchPackage", Load::kBulk};
inline constexpr UnaryMethod<v1::BackupStoreRequest, v1::BackupStoreResponse>
    kBackupStore{"/cohort.v1.ClusterService/BackupStore", Load::kWaiting};
inline constexpr UnaryMethod<v1::ListEventsRequest, v1::ListEventsResponse>
    kListEvents{"/cohort.v1.ClusterService/ListEvents", Load::kWaiting};
inline constexpr UnaryMethod<v1::AdoptAttemptRequest, v1::AdoptAttemptResponse>
    kAdoptAttempt{"/cohort.v1.ClusterService/AdoptAttempt"};
inline constexpr UnaryMethod<v1::EndAttemptRequest, v1::EndAttemptResponse>
    kEndAttempt{"/cohort.v1.ClusterService/EndAttempt"};

// AutoscalerService: clients to the head.
inline constexpr UnaryMethod<v1::ApplyClusterFileRequest,
                             v1::ApplyClusterFileResponse>
    kApplyClusterFile{"/cohort.v1.AutoscalerService/ApplyClusterFile"};
inline constexpr UnaryMethod<v1::RequestCapacityRequest,
                             v1::RequestCapacityResponse>
    kRequestCapacity{"/cohort.v1.AutoscalerService/RequestCapacity"};
inline constexpr UnaryMethod<v1::WithdrawCapacityRequest,
                             v1::WithdrawCapacityResponse>
    kWithdrawCapacity{"/cohort.v1.AutoscalerService/WithdrawCapacity"};
inline constexpr UnaryMethod<v1::GetAutoscalerRequest, v1::Autoscaling>
    kGetAutoscaler{"/cohort.v1.AutoscalerService/GetAutoscaler"};

// DriverService: programs that own actors, to the head.
inline constexpr StreamMethod<v1::DriverMessage, v1::DriverUpdate> kDrive{
    "/cohort.v1.DriverService/Drive"};
inline constexpr UnaryMethod<v1::ListDriversRequest, v1::ListDriversResponse>
    kListDrivers{"/cohort.v1.DriverService/ListDrivers"};

// ActorService: callers to an actor's process.
inline constexpr StreamMethod<v1::ActorCalls, v1::ActorResults> kCallActor{
    "/cohort.v1.ActorService/Call"};

// NodeService: workers to the head.
inline constexpr StreamMethod<v1::WorkerMessage, v1::HeadMessage> kConnect{
    "/cohort.v1.NodeService/Connect", Load::kNode};
inline constexpr StreamMethod<v1::LogMessage, v1::NextLogPiece> kSendLog{
    "/cohort.v1.NodeService/SendLog", Load::kNodeLog};

// RunService: ranks to their worker.
inline constexpr StreamMethod<v1::WatchRequest, v1::WatchResponse> kWatchRun{
    "/cohort.v1.RunService/Watch"};
inline constexpr UnaryMethod<v1::ExchangeRequest, v1::ExchangeResponse>
    kExchange{"/cohort.v1.RunService/Exchange", Load::kWaiting};
inline constexpr UnaryMethod<v1::CommitCheckpointRequest,
                             v1::CommitCheckpointResponse>
    kCommitCheckpoint{"/cohort.v1.RunService/CommitCheckpoint"};
inline constexpr UnaryMethod<v1::ReportPreflightRequest,
                             v1::ReportPreflightResponse>
    kReportPreflight{"/cohort.v1.RunService/ReportPreflight"};
inline constexpr UnaryMethod<v1::ReportGpuEndRequest, v1::ReportGpuEndResponse>
    kReportGpuEnd{"/cohort.v1.RunService/ReportGpuEnd"};

}  // namespace cohort::rpc

#pragma once

#include "cohort/v1/actor.pb.h"
#include "cohort/v1/autoscaler.pb.h"
#include "cohort/v1/cluster.pb.h"
#include "cohort/v1/node.pb.h"
#include "cohort/v1/run.pb.h"
#include "cohort/v1/security.pb.h"
#include "rpc/method.h"

// Every call of the wire, once, and who may make it: servers and clients use
// these constants, and methods_test holds them against the services in proto/
// and the table in docs/security.md.
namespace cohort::rpc {

// ClusterService: clients and workers to the head.
inline constexpr UnaryMethod<v1::SubmitJobRequest, v1::SubmitJobResponse>
    kSubmitJob{"/cohort.v1.ClusterService/SubmitJob", kWritersAndRanks};
inline constexpr UnaryMethod<v1::StopJobRequest, v1::StopJobResponse> kStopJob{
    "/cohort.v1.ClusterService/StopJob", kWritersAndRanks};
inline constexpr UnaryMethod<v1::HoldJobRequest, v1::HoldJobResponse> kHoldJob{
    "/cohort.v1.ClusterService/HoldJob", kWriters};
inline constexpr UnaryMethod<v1::ReleaseJobRequest, v1::ReleaseJobResponse>
    kReleaseJob{"/cohort.v1.ClusterService/ReleaseJob", kWriters};
inline constexpr UnaryMethod<v1::RemoveJobRequest, v1::RemoveJobResponse>
    kRemoveJob{"/cohort.v1.ClusterService/RemoveJob", kWriters};
inline constexpr UnaryMethod<v1::ResizeJobRequest, v1::ResizeJobResponse>
    kResizeJob{"/cohort.v1.ClusterService/ResizeJob", kWriters};
inline constexpr UnaryMethod<v1::GetJobRequest, v1::GetJobResponse> kGetJob{
    "/cohort.v1.ClusterService/GetJob", kEverybodyInside};
inline constexpr UnaryMethod<v1::ListJobsRequest, v1::ListJobsResponse>
    kListJobs{"/cohort.v1.ClusterService/ListJobs", kReaders};
inline constexpr UnaryMethod<v1::ListNodesRequest, v1::ListNodesResponse>
    kListNodes{"/cohort.v1.ClusterService/ListNodes", kReaders};
inline constexpr UnaryMethod<v1::GetNodeRequest, v1::GetNodeResponse> kGetNode{
    "/cohort.v1.ClusterService/GetNode", kReaders};
inline constexpr UnaryMethod<v1::DrainNodeRequest, v1::DrainNodeResponse>
    kDrainNode{"/cohort.v1.ClusterService/DrainNode", kWorkers};
inline constexpr UnaryMethod<v1::UndrainNodeRequest, v1::UndrainNodeResponse>
    kUndrainNode{"/cohort.v1.ClusterService/UndrainNode"};
inline constexpr UnaryMethod<v1::GetResourcesRequest, v1::GetResourcesResponse>
    kGetResources{"/cohort.v1.ClusterService/GetResources", kReaders};
inline constexpr UnaryMethod<v1::GetStatusRequest, v1::GetStatusResponse>
    kGetStatus{"/cohort.v1.ClusterService/GetStatus", kReadersAndRanks};
inline constexpr UnaryMethod<v1::ExplainJobRequest, v1::ExplainJobResponse>
    kExplainJob{"/cohort.v1.ClusterService/ExplainJob", kReadersAndRanks};
inline constexpr UnaryMethod<v1::WaitJobRequest, v1::WaitJobResponse> kWaitJob{
    "/cohort.v1.ClusterService/WaitJob", kReadersAndRanks, Load::kWaiting};
inline constexpr StreamMethod<v1::ReadLogRequest, v1::ReadLogResponse> kReadLog{
    "/cohort.v1.ClusterService/ReadLog", kReadersAndRanks};
inline constexpr StreamMethod<v1::ReadRunFileRequest, v1::ReadRunFileResponse>
    kReadRunFile{"/cohort.v1.ClusterService/ReadRunFile", kReaders};
inline constexpr UnaryMethod<v1::GetStackRequest, v1::GetStackResponse>
    kGetStack{"/cohort.v1.ClusterService/GetStack", kWriters, Load::kWaiting};
inline constexpr UnaryMethod<v1::GetServedCallsRequest,
                             v1::GetServedCallsResponse>
    kGetServedCalls{"/cohort.v1.ClusterService/GetServedCalls", kReaders,
                    Load::kWaiting};
inline constexpr UnaryMethod<v1::BeginPackageRequest, v1::BeginPackageResponse>
    kBeginPackage{"/cohort.v1.ClusterService/BeginPackage", kWritersAndRanks,
                  Load::kBrief, Audit::kNever};
inline constexpr UnaryMethod<v1::UploadPackageRequest,
                             v1::UploadPackageResponse>
    kUploadPackage{"/cohort.v1.ClusterService/UploadPackage", kWritersAndRanks,
                   Load::kBulk, Audit::kNever};
inline constexpr UnaryMethod<v1::FinishPackageRequest,
                             v1::FinishPackageResponse>
    kFinishPackage{"/cohort.v1.ClusterService/FinishPackage", kWritersAndRanks};
inline constexpr UnaryMethod<v1::FetchPackageRequest, v1::FetchPackageResponse>
    kFetchPackage{"/cohort.v1.ClusterService/FetchPackage", kWorkers,
                  Load::kBulk, Audit::kNever};
inline constexpr UnaryMethod<v1::BackupStoreRequest, v1::BackupStoreResponse>
    kBackupStore{"/cohort.v1.ClusterService/BackupStore", kAdmins,
                 Load::kWaiting};
inline constexpr UnaryMethod<v1::ListEventsRequest, v1::ListEventsResponse>
    kListEvents{"/cohort.v1.ClusterService/ListEvents", kReaders,
                Load::kWaiting};
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
    kRequestCapacity{"/cohort.v1.AutoscalerService/RequestCapacity", kWriters};
inline constexpr UnaryMethod<v1::WithdrawCapacityRequest,
                             v1::WithdrawCapacityResponse>
    kWithdrawCapacity{"/cohort.v1.AutoscalerService/WithdrawCapacity",
                      kWriters};
inline constexpr UnaryMethod<v1::GetAutoscalerRequest, v1::Autoscaling>
    kGetAutoscaler{"/cohort.v1.AutoscalerService/GetAutoscaler", kReaders};

// DriverService: programs that own actors, to the head.
inline constexpr StreamMethod<v1::DriverMessage, v1::DriverUpdate> kDrive{
    "/cohort.v1.DriverService/Drive", kWritersAndRanks};
inline constexpr UnaryMethod<v1::ListDriversRequest, v1::ListDriversResponse>
    kListDrivers{"/cohort.v1.DriverService/ListDrivers", kReaders};

// ActorService: callers to an actor's process.
inline constexpr StreamMethod<v1::ActorCalls, v1::ActorResults> kCallActor{
    "/cohort.v1.ActorService/Call"};

// NodeService: workers to the head.
inline constexpr StreamMethod<v1::WorkerMessage, v1::HeadMessage> kConnect{
    "/cohort.v1.NodeService/Connect", kWorkers, Load::kNode};
inline constexpr StreamMethod<v1::LogMessage, v1::NextLogPiece> kSendLog{
    "/cohort.v1.NodeService/SendLog", kWorkers, Load::kNodeLog};

// SecurityService: admins to the head, and machines that are to be nodes.
inline constexpr UnaryMethod<v1::CreateTokenRequest, v1::CreateTokenResponse>
    kCreateToken{"/cohort.v1.SecurityService/CreateToken"};
inline constexpr UnaryMethod<v1::ListTokensRequest, v1::ListTokensResponse>
    kListTokens{"/cohort.v1.SecurityService/ListTokens", kAdmins, Load::kBrief,
                Audit::kNever};
inline constexpr UnaryMethod<v1::RevokeTokenRequest, v1::RevokeTokenResponse>
    kRevokeToken{"/cohort.v1.SecurityService/RevokeToken"};
inline constexpr UnaryMethod<v1::ListAuditRequest, v1::ListAuditResponse>
    kListAudit{"/cohort.v1.SecurityService/ListAudit", kAdmins, Load::kWaiting,
               Audit::kNever};
inline constexpr UnaryMethod<v1::ListAuthoritiesRequest, v1::Authorities>
    kListAuthorities{"/cohort.v1.SecurityService/ListAuthorities", kAdmins,
                     Load::kBrief, Audit::kNever};
inline constexpr UnaryMethod<v1::RotateAuthorityRequest, v1::Authorities>
    kRotateAuthority{"/cohort.v1.SecurityService/RotateAuthority"};
inline constexpr UnaryMethod<v1::FinishRotationRequest, v1::Authorities>
    kFinishRotation{"/cohort.v1.SecurityService/FinishRotation"};
inline constexpr UnaryMethod<v1::JoinRequest, v1::JoinResponse> kJoin{
    "/cohort.v1.SecurityService/Join", kJoiners};

// RunService: ranks to their worker.
inline constexpr StreamMethod<v1::WatchRequest, v1::WatchResponse> kWatchRun{
    "/cohort.v1.RunService/Watch", kRanks};
inline constexpr UnaryMethod<v1::ExchangeRequest, v1::ExchangeResponse>
    kExchange{"/cohort.v1.RunService/Exchange", kRanks, Load::kWaiting,
              Audit::kNever};
inline constexpr UnaryMethod<v1::CommitCheckpointRequest,
                             v1::CommitCheckpointResponse>
    kCommitCheckpoint{"/cohort.v1.RunService/CommitCheckpoint", kRanks,
                      Load::kBrief, Audit::kNever};
inline constexpr UnaryMethod<v1::ReportPreflightRequest,
                             v1::ReportPreflightResponse>
    kReportPreflight{"/cohort.v1.RunService/ReportPreflight", kRanks,
                     Load::kBrief, Audit::kNever};
inline constexpr UnaryMethod<v1::ReportGpuEndRequest, v1::ReportGpuEndResponse>
    kReportGpuEnd{"/cohort.v1.RunService/ReportGpuEnd", kRanks, Load::kBrief,
                  Audit::kNever};

}  // namespace cohort::rpc

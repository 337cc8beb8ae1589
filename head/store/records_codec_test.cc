#include "head/store/records_codec.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "cohort/v1/storage.pb.h"
#include "common/hash.h"
#include "common/random.h"
#include "common/status_util.h"
#include "common/testing/seed.h"
#include "common/testing/status_matchers.h"
#include "head/store/memory_store.h"
#include "head/testing/job_specs.h"
#include "head/testing/messages.h"

namespace cohort::head {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <typename Id>
Id IdAll(char fill) {
  return *Id::FromBytes(std::string(Id::kBytes, fill));
}

absl::Time At(int64_t micros) { return absl::FromUnixMicros(micros); }

Origin SomeOrigin() {
  Origin origin;
  origin.set_namespace_("default");
  origin.set_principal("alice");
  origin.set_request_id("r1");
  origin.set_cause(7);
  return origin;
}

ExitStatus SomeExit() {
  return ExitOf({.code = 3, .signal = 9, .oom_killed = true, .detail = "oom"});
}

// One record of each kind with every field set.

ClusterRecord SomeCluster() {
  ClusterRecord cluster = NewCluster();
  cluster.set_cluster_id(IdBytes(IdAll<ClusterId>('c')));
  cluster.set_generation(IdBytes(IdAll<GenerationId>('g')));
  cluster.set_term(3);
  cluster.set_next_event(12);
  cluster.set_next_incarnation(5);
  cluster.set_next_job_sequence(9);
  cluster.set_settling(true);
  cluster.set_rowless_orphans(true);
  cluster.add_ended_orphans(IdBytes(IdAll<AttemptId>('a')));
  HeadLife& life = *cluster.add_lives();
  life.set_term(2);
  life.set_nonce(0x1122);
  life.set_first_incarnation(4);
  return cluster;
}

NodeRecord SomeNode() {
  NodeRecord record;
  record.id = IdAll<NodeId>('n');
  record.node.set_name("node-1");
  record.state = v1::NODE_STATE_DEAD;
  record.node.set_incarnation(4);
  record.node.set_host("10.0.0.1");
  record.node.set_pid(321);
  SetResources(record.node, *ParseResources("CPU=4,GPU=2,memory=1GiB"));
  AddDevice(record.node, {.id = "GPU-a",
                          .kind = "gpu",
                          .model = "H100",
                          .memory_bytes = 80,
                          .simulated = true});
  SetLabels(record.node, {{"rack", "r1"}, {"zone", "z"}, {"a", "b"}});
  AddTaint(record.node, "gpu", "only");
  AddTaint(record.node, "bare");
  Drain& drain = *record.node.mutable_drain();
  drain.set_reason("fan");
  drain.set_principal("bob");
  *drain.mutable_asked_at() = rpc::ToWire(At(8));
  *drain.mutable_deadline() = rpc::ToWire(At(9));
  record.node.set_build("0.1.0");
  *record.node.mutable_since() = rpc::ToWire(At(10));
  record.node.set_not_ready("no room");
  record.cause = 7;
  return record;
}

// As one whose worker watches its devices.
NodeRecord SomeNodeWithASickDevice() {
  NodeRecord record;
  record.id = IdAll<NodeId>('n');
  AddDevice(record.node, {.id = "GPU-a",
                          .model = "H100",
                          .memory_bytes = 80,
                          .state = v1::DEVICE_STATE_FENCED});
  Device& device = *record.node.mutable_devices(0);
  device.set_pci_bus_id("0:3b:0.0");
  device.set_numa_node(0);
  device.add_nvlink_peers("GPU-b");
  device.set_parent("GPU-p");
  device.set_reason("Xid 79");
  *device.mutable_since() = rpc::ToWire(At(11));
  return record;
}

SpecRecord SomeSpec() {
  JobSpec spec;
  spec.set_name("mnist");
  SetCommand(spec, {"./train", "--epochs", "3"});
  (*spec.mutable_launch()->mutable_environment())["B"] = "2";
  (*spec.mutable_launch()->mutable_environment())["A"] = "1";
  spec.mutable_scaling()->set_num_workers(4);
  SetResources(spec, *ParseResources("CPU=1,GPU=0.5"));
  spec.mutable_scaling()->set_placement_strategy(
      v1::PLACEMENT_STRATEGY_STRICT_SPREAD);
  spec.mutable_run()->set_storage_path("/results");
  spec.mutable_run()->set_max_failures(-1);
  spec.mutable_run()->set_num_to_keep(2);
  spec.mutable_launch()->set_package_hash(std::string(32, 'h'));
  (*spec.mutable_labels())["team"] = "vision";
  spec.set_priority(-5);
  spec.set_hold(true);
  spec.mutable_run()->set_time_limit_us(
      absl::ToInt64Microseconds(absl::Minutes(5)));
  spec.mutable_run()->set_grace_us(absl::ToInt64Microseconds(absl::Seconds(3)));
  spec.mutable_run()->set_retry_delay_us(
      absl::ToInt64Microseconds(absl::Milliseconds(250)));
  spec.mutable_scaling()->add_selectors("zone in (a,b)");
  for (const char* each : {"gpu=only", "bare"}) {
    *spec.mutable_scaling()->add_tolerations() =
        rpc::ToWire(*Toleration::Parse(each));
  }
  spec.mutable_scaling()->set_accelerator_type("H100");
  SetTopology(spec, "rack", true);
  AddAfter(spec, IdAll<JobId>('k'), v1::DEPENDENCY_KIND_ANY);
  AddAfter(spec, IdAll<JobId>('l').Element(7));
  spec.set_array("0-9%2");
  spec.mutable_run()->set_preflight(true);
  spec.mutable_run()->set_restart(v1::RESTART_POLICY_ALL);
  return {.id = IdAll<JobId>('j'), .spec = std::move(spec)};
}

JobRecord SomeJob() {
  JobRecord record(IdAll<JobId>('j'));
  storage::v1::JobRow& row = record.row;
  *row.mutable_origin() = SomeOrigin();
  row.set_sequence(8);
  row.set_state(v1::JOB_STATE_RUNNING);
  row.set_reason("because");
  row.set_attempts(2);
  row.set_epoch(6);
  row.set_incarnations(9);
  row.set_num_workers(4);
  row.set_failures(1);
  row.set_infra_restarts(1);
  *row.mutable_exit() = SomeExit();
  row.set_failed_rank(3);
  row.set_stderr_tail("Traceback");
  row.set_submitted_at_us(1);
  row.set_started_at_us(2);
  row.set_ended_at_us(3);
  row.set_metrics_json(R"({"loss":0.5})");
  row.set_metrics_count(11);
  *row.add_checkpoints() = CheckpointOf("/results/step-5", 5, 6);
  row.add_retired("/results/step-1");
  for (const auto failure : {v1::FAILURE_CLASS_USER, v1::FAILURE_CLASS_INFRA}) {
    v1::ClassCount& count = *row.add_failures_by_class();
    count.set_failure_class(failure);
    count.set_count(1);
  }
  row.set_held(true);
  row.set_held_by("cluster");
  row.set_ran_us(7'000'000);
  row.set_failure_class(v1::FAILURE_CLASS_OOM);
  row.add_causes("node-1 was out of memory");
  row.add_causes("rank 3 was killed");
  for (const auto kind : {v1::WAIT_KIND_HELD, v1::WAIT_KIND_ORPHAN}) {
    JobPhase& phase = *row.add_phases();
    phase.set_kind(kind);
    phase.set_since_us(row.phases_size());
  }
  Preflight& preflight = *row.mutable_preflight();
  preflight.set_attempt(2);
  *preflight.mutable_report() =
      PreflightOf(v1::PREFLIGHT_VERDICT_SLOW, "ranks 0 and 1", "{}");
  *preflight.mutable_at() = rpc::ToWire(At(3));
  return record;
}

Process SomeProcess(int slot) {
  return {.slot = slot,
          .incarnation = 9,
          .node = IdAll<NodeId>('n'),
          .local_rank = 1,
          .devices = {{"GPU-a", Amount::FromTenThousandths(5000)}},
          .state = v1::PROCESS_STATE_EXITED,
          .exit = SomeExit(),
          .ran = absl::Seconds(6),
          .failures = 2,
          .moves = 1,
          .again = true,
          .leaving = true,
          .retired = true};
}

AttemptRecord SomeAttempt() {
  AttemptRecord record;
  record.id = IdAll<AttemptId>('a');
  record.job = IdAll<JobId>('j');
  record.number = 2;
  record.epoch = 6;
  record.state = v1::ATTEMPT_STATE_ENDING;
  record.places = {{.node = IdAll<NodeId>('m')},
                   {.node = IdAll<NodeId>('n'),
                    .phase = v1::PLACE_PHASE_ENDED,
                    .master_port = 29500}};
  record.processes = {{.slot = 0}, SomeProcess(1)};
  record.master_address = "10.0.0.1";
  record.master_port = 29500;
  record.cause = v1::ATTEMPT_CAUSE_RANK_FAILED;
  record.detail = "rank 2";
  record.exit = SomeExit();
  record.failed_rank = 2;
  record.causes = {"rank 2"};
  record.gpu_abort_levels = 12;
  record.origin = SomeOrigin();
  record.orphaned_since = At(8);
  return record;
}

ProcessRecord SomeProcessRecord() {
  return {
      .attempt = IdAll<AttemptId>('a'), .slot = 2, .process = SomeProcess(2)};
}

ArrayRecord SomeArray() {
  ArrayRecord record;
  record.id = IdAll<JobId>('j');
  storage::v1::ArrayRow& row = record.row;
  row.set_array_id(IdBytes(record.id));
  *row.mutable_origin() = SomeOrigin();
  row.set_submitted_at_us(1);
  ArrayEnd& end = *row.mutable_end();
  end.set_to(v1::JOB_STATE_FAILED);
  end.set_reason("it was to start after");
  end.add_causes("a");
  end.add_causes("b");
  end.set_failure_class(v1::FAILURE_CLASS_INFRA);
  end.set_spares_held(true);
  end.set_cause(7);
  row.mutable_hold()->set_held(true);
  row.mutable_hold()->set_by("alice");
  row.mutable_hold()->set_cause(8);
  row.set_first_sequence(9);
  return record;
}

RequestRecord SomeRequest() {
  RequestRecord record;
  record.set_principal("alice");
  record.set_request_id("r1");
  record.set_body_hash(std::string(32, 'b'));
  record.set_answer("answer");
  record.set_at_us(absl::ToUnixMicros(At(4)));
  return record;
}

InstanceRecord SomeInstance() {
  InstanceRecord record;
  record.set_instance_id(std::string(16, 'i'));
  record.set_node_type("gpu");
  record.set_state(v1::INSTANCE_STATE_JOINED);
  record.set_node_id(std::string(16, 'n'));
  return record;
}

MetricsRecord SomeMetrics() {
  MetricsRecord record;
  record.set_job_id(IdBytes(IdAll<JobId>('j')));
  record.mutable_history()->add_names("loss");
  record.mutable_history()->set_gap(2);
  v1::MetricsHistory::Point& point = *record.mutable_history()->add_points();
  point.set_step(7);
  point.add_names(0);
  point.add_values(0.25);
  return record;
}

PackageRecord SomePackage() {
  PackageRecord record;
  record.set_hash(std::string(32, 'h'));
  record.set_size_bytes(1000);
  record.set_completed_at_us(absl::ToUnixMicros(At(5)));
  record.set_unpinned_at_us(absl::ToUnixMicros(At(6)));
  return record;
}

EventRecord SomeEvent() {
  EventRecord event;
  event.set_number(258);
  *event.mutable_at() = rpc::ToWire(At(7));
  event.set_kind("job_submitted");
  event.set_namespace_("default");
  event.set_principal("alice");
  event.set_request_id("r1");
  event.set_cause(7);
  event.set_job_id(IdBytes(IdAll<JobId>('j')));
  event.set_attempt_id(IdBytes(IdAll<AttemptId>('a')));
  event.set_node_id(IdBytes(IdAll<NodeId>('n')));
  event.set_text("mnist");
  event.add_node_ids(IdBytes(IdAll<NodeId>('o')));
  event.add_node_ids(IdBytes(IdAll<NodeId>('p')));
  return event;
}

WaitReasonRecord SomeWaitReason() {
  WaitReasonRecord record;
  record.set_number(259);
  record.set_shape_key(std::string(16, 's'));
  record.mutable_reason()->set_since_us(absl::ToUnixMicros(At(8)));
  record.mutable_reason()->set_until_us(absl::ToUnixMicros(At(9)));
  v1::Blocker& blocker = *record.mutable_reason()->mutable_blocker();
  blocker.set_kind("resources");
  blocker.set_text("no room");
  blocker.set_shape("1 x {GPU 8} (PACK)");
  blocker.set_num_workers(1);
  blocker.set_nodes(3);
  blocker.set_nodes_that_fit(1);
  blocker.set_workers_that_fit(2);
  blocker.set_never_fits(true);
  v1::NodeFailure& failure = *blocker.add_failures();
  failure.set_by("resource");
  failure.set_what("GPU");
  failure.set_nodes(2);
  failure.set_nodes_in_all(3);
  failure.set_short_least(Amount::FromUnits(4).ten_thousandths());
  failure.set_short_median(Amount::FromUnits(7).ten_thousandths());
  failure.set_closest("n1");
  v1::Holder& holder = *blocker.add_holders();
  holder.set_resource("GPU");
  holder.set_job_id(IdAll<JobId>('j').bytes());
  holder.set_amount(Amount::FromUnits(5).ten_thousandths());
  holder.set_nodes(1);
  return record;
}

template <typename Record>
void ExpectRoundTrip(const Record& record) {
  const Write write = ToWrite(record);
  SCOPED_TRACE(TableName(write.table));
  ASSERT_TRUE(write.value.has_value());
  EXPECT_THAT(FromRow<Record>(write.key, *write.value), IsOkAndHolds(record));
}

TEST(RecordsCodecTest, RecordsComeBackAsTheyWere) {
  ExpectRoundTrip(SomeCluster());
  ExpectRoundTrip(SomeNode());
  ExpectRoundTrip(SomeJob());
  ExpectRoundTrip(SomeAttempt());
  AttemptRecord last_cause = SomeAttempt();
  last_cause.cause = v1::ATTEMPT_CAUSE_PREFLIGHT_FAILED;
  ExpectRoundTrip(last_cause);
  ExpectRoundTrip(SomeProcessRecord());
  ExpectRoundTrip(SomeArray());
  ExpectRoundTrip(SomeRequest());
  ExpectRoundTrip(SomePackage());
  ExpectRoundTrip(SomeEvent());
  ExpectRoundTrip(SomeWaitReason());
  ExpectRoundTrip(SomeSpec());
}

// The end of a program's stderr is whatever it wrote.
TEST(RecordsCodecTest, TextNeedNotBeUtf8) {
  const std::string odd("\xff\0\xc3(", 4);
  JobRecord job = SomeJob();
  job.row.set_stderr_tail(odd);
  job.row.mutable_checkpoints(0)->set_path(odd);
  job.row.mutable_exit()->set_detail(odd);
  ExpectRoundTrip(job);
  SpecRecord record = SomeSpec();
  record.spec.Own().set_name(odd);
  SetCommand(record.spec.Own(), {odd});
  (*record.spec.Own().mutable_launch()->mutable_environment())["A"] = odd;
  ExpectRoundTrip(record);
}

TEST(RecordsCodecTest, EmptyRecordsComeBackAsTheyWere) {
  ExpectRoundTrip(NewCluster());
  ExpectRoundTrip(NodeRecord());
  ExpectRoundTrip(SomeNodeWithASickDevice());
  ExpectRoundTrip(ArrayRecord());
  ExpectRoundTrip(JobRecord());
  ExpectRoundTrip(AttemptRecord());
  ExpectRoundTrip(ProcessRecord());
  ExpectRoundTrip(RequestRecord());
  ExpectRoundTrip(PackageRecord());
  ExpectRoundTrip(ClusterFile());
  ExpectRoundTrip(SomeInstance());
  ExpectRoundTrip(SomeMetrics());
  ExpectRoundTrip(CapacityRecord());
  ExpectRoundTrip(TokenRecord());
  ExpectRoundTrip(AuditRecord());
  ExpectRoundTrip(EventRecord());
  ExpectRoundTrip(WaitReasonRecord());
  ExpectRoundTrip(SpecRecord());
}

// What is on disk stays readable: these bytes never change.  A new field makes
// the record above richer, the schema version higher and its line longer.
template <typename Record>
void ExpectGolden(const Record& record, absl::string_view key,
                  absl::string_view value) {
  const Write write = ToWrite(record);
  SCOPED_TRACE(TableName(write.table));
  EXPECT_EQ(absl::BytesToHexString(write.key), key);
  EXPECT_EQ(absl::BytesToHexString(*write.value), value);
}

TEST(RecordsCodecTest, BytesOnDiskNeverChange) {
  ExpectGolden(
      SomeCluster(), "636c7573746572",
      "cfd3a02008011210636363636363636363636363636363631a10676767676767676767"
      "676767676767672003280c30053809a00101aa01106161616161616161616161616161"
      "6161c00101ca010d08021122110000000000001804");
  ExpectGolden(
      SomeNode(), "6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e",
      "ae9668d50a106e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e1002180722ba0112066e6f6465"
      "2d31200428c10232280a090a0343505510c0b8020a090a0347505510a09c010a100a06"
      "6d656d6f72791080808080c0b80242060a0161120162420a0a047261636b1202723142"
      "090a047a6f6e6512017a4a180a054750552d6112036770751a04483130302050280150"
      "01520b0a0367707512046f6e6c7952060a04626172655a140a0366616e1203626f621a"
      "0310c03e220310a8466205302e312e306a0831302e302e302e31720310904e7a076e6f"
      "20726f6f6d");
  ExpectGolden(
      SomeNodeWithASickDevice(), "6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e",
      "a42f56160a106e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e1001223f4a3d0a054750552d61"
      "12036770751a044831303020503208303a33623a302e30380042054750552d624a0547"
      "50552d7050035a06586964203739620310f855");
  ExpectGolden(
      SomeJob(), "6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a",
      "a710d7240a106a6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a12160a0764656661756c741205"
      "616c6963651a027231200720082803320762656361757365380240014801520b080310"
      "09180122036f6f6d58036001680270037a0c7b226c6f7373223a302e357d80010b8a01"
      "150a0f2f726573756c74732f737465702d351005180692010f2f726573756c74732f73"
      "7465702d319a010954726163656261636ba00106aa010408011001aa010408021001b0"
      "0101b801c09fab03c00104ca01186e6f64652d3120776173206f7574206f66206d656d"
      "6f7279ca011172616e6b203320776173206b696c6c6564d20107636c7573746572da01"
      "0408021001da010408061002e2011e080212150802120d72616e6b73203020616e6420"
      "311a027b7d1a0310b817e80109f00104");
  ExpectGolden(
      SomeAttempt(), "61616161616161616161616161616161",
      "7aef78590a106161616161616161616161616161616112106a6a6a6a6a6a6a6a6a6a6a"
      "6a6a6a6a6a18022006280332140a106d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d10013218"
      "0a106e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e100418bce6013a0831302e302e302e3140"
      "bce6014802520672616e6b20325a160a0764656661756c741205616c6963651a027231"
      "2007620b08031009180122036f6f6d6802720672616e6b2032780c8201023001820132"
      "08011009180220012a0a0a054750552d6110882730043a0b08031009180122036f6f6d"
      "40809bee0248025001580160016801a00108");
  ExpectGolden(
      SomeProcessRecord(), "616161616161616161616161616161610000000000000002",
      "92832cc60a106161616161616161616161616161616112300802100920012a0a0a0547"
      "50552d6110882730043a0b08031009180122036f6f6d40809bee024802500158016001"
      "68011a106e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e");
  ExpectGolden(
      SomeArray(), "6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a",
      "946198640a106a6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a12160a0764656661756c7412"
      "05616c6963651a027231200720012a250806121569742077617320746f2073746172"
      "742061667465721a01611a0162200228013007320b08011205616c69636518083809");
  ExpectGolden(
      SomeSpec(), "6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a",
      "8b00728e0a106a6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a12a1020a056d6e6973741a0e0a"
      "047465616d1206766973696f6e20fbffffffffffffffff012a480a072e2f747261696e"
      "0a082d2d65706f6368730a013312060a014112013112060a01421201321a2068686868"
      "68686868686868686868686868686868686868686868686868686868324e080412140a"
      "080a0343505510904e0a080a034750551088271804220d7a6f6e6520696e2028612c62"
      "292a0b0a0367707512046f6e6c792a080a046261726518013204483130303a04726163"
      "6b40013a2a0a082f726573756c747310ffffffffffffffffff0118022090a10f2880c6"
      "868f0130c08db7013801400142140a106b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b100242"
      "180a146c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c0000000710014a05302d3925325001");
  ExpectGolden(
      SomeRequest(), "00000005616c6963657231",
      "258b246a0a05616c696365120272311a20626262626262626262626262626262626262"
      "62626262626262626262626262622206616e737765722804");
  ExpectGolden(
      SomePackage(),
      "6868686868686868686868686868686868686868686868686868686868686868",
      "61a0e11c0a206868686868686868686868686868686868686868686868686868686868"
      "68686810e80718052006");
  ExpectGolden(
      SomeEvent(), "0000000000000102",
      "4342d940088202120310d8361a0d6a6f625f7375626d697474656422106a6a6a6a6a6a"
      "6a6a6a6a6a6a6a6a6a6a2a106161616161616161616161616161616132106e6e6e6e6e"
      "6e6e6e6e6e6e6e6e6e6e6e4205616c6963654a0764656661756c745202723158076205"
      "6d6e6973746a106f6f6f6f6f6f6f6f6f6f6f6f6f6f6f6f6a1070707070707070707070"
      "707070707070");
  ExpectGolden(
      SomeWaitReason(), "0000000000000103",
      "b8a87d6a0883021210737373737373737373737373737373731a78080810091a720a09"
      "7265736f757263657312076e6f20726f6f6d1a12312078207b47505520387d20285041"
      "434b292001280330013802421f0a087265736f7572636512034750551802200328c0b8"
      "0230f0a2043a026e314a1d0a0347505512106a6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a18"
      "d0860320015801");
}

template <typename Record>
void ExpectUnknown(const Record& record) {
  const Write write = ToWrite(record);
  EXPECT_THAT(FromRow<Record>(write.key, *write.value),
              StatusIs(absl::StatusCode::kDataLoss));
}

// A head calls a row damaged whose value it does not know, so an older one must
// refuse the store: who adds a value raises the schema version with it.
TEST(RecordsCodecTest, TheValuesOfEnumsBelongToTheSchema) {
  static_assert(kSchemaVersion == 1);
  NodeRecord node = SomeNode();
  node.state = NodeState(4);
  ExpectUnknown(node);
  node = SomeNode();
  node.node.mutable_devices(0)->set_state(DeviceState(4));
  ExpectUnknown(node);
  const auto spoil_job = [](auto spoil) {
    JobRecord job = SomeJob();
    spoil(job);
    ExpectUnknown(job);
  };
  spoil_job([](JobRecord& job) { job.row.set_state(JobState(8)); });
  spoil_job([](JobRecord& job) { job.row.set_failure_class(FailureClass(7)); });
  spoil_job([](JobRecord& job) {
    job.row.mutable_phases(0)->set_kind(WaitKind(99));
  });
  spoil_job([](JobRecord& job) {
    job.row.mutable_preflight()->mutable_report()->set_verdict(
        PreflightVerdict(4));
  });
  SpecRecord spec = SomeSpec();
  spec.spec.Own().mutable_scaling()->set_placement_strategy(
      PlacementStrategy(5));
  ExpectUnknown(spec);
  spec = SomeSpec();
  spec.spec.Own().mutable_after(0)->set_kind(DependencyKind(3));
  ExpectUnknown(spec);
  const auto spoil_attempt = [](auto spoil) {
    AttemptRecord attempt = SomeAttempt();
    spoil(attempt);
    ExpectUnknown(attempt);
  };
  spoil_attempt([](AttemptRecord& a) { a.state = AttemptState(5); });
  spoil_attempt([](AttemptRecord& a) { a.cause = AttemptCause(15); });
  spoil_attempt([](AttemptRecord& a) { a.places[0].phase = PlacePhase(6); });
  spoil_attempt(
      [](AttemptRecord& a) { a.processes[0].state = ProcessState(6); });
  ProcessRecord process = SomeProcessRecord();
  process.process.state = ProcessState(6);
  ExpectUnknown(process);
  spec = SomeSpec();
  spec.spec.Own().mutable_run()->set_restart(RestartPolicy(4));
  ExpectUnknown(spec);
}

TEST(RecordsCodecTest, EqualRecordsAreEqualBytesWhateverTheOrder) {
  NodeRecord forward = SomeNode();
  NodeRecord backward = SomeNode();
  auto& forwards = *forward.node.mutable_labels();
  auto& backwards = *backward.node.mutable_labels();
  forwards.clear();
  backwards.clear();
  for (int i = 0; i < 100; ++i) {
    forwards[absl::StrCat("k", i)] = "v";
    backwards[absl::StrCat("k", 99 - i)] = "v";
  }
  EXPECT_EQ(ToWrite(forward).value, ToWrite(backward).value);
}

TEST(RecordsCodecTest, EventKeysSortByNumber) {
  EXPECT_LT(RowKey(255), RowKey(256));
  EXPECT_LT(RowKey(256), RowKey(uint64_t{1} << 40));
}

TEST(RecordsCodecTest, RequestKeysDoNotRunTogether) {
  EXPECT_NE(RowKey("a", "bc"), RowKey("ab", "c"));
}

// RS-2: whatever bit of a row flips, it is found.
TEST(RecordsCodecTest, EveryFlippedBitIsDataLoss) {
  const Write write = ToWrite(SomeAttempt());
  for (size_t bit = 0; bit < 8 * write.value->size(); ++bit) {
    std::string value = *write.value;
    value[bit / 8] = static_cast<char>(value[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_THAT(FromRow<AttemptRecord>(write.key, value),
                StatusIs(absl::StatusCode::kDataLoss))
        << "bit " << bit;
  }
}

TEST(RecordsCodecTest, ATruncatedRowIsDataLoss) {
  const Write write = ToWrite(SomeJob());
  for (size_t size = 0; size < write.value->size(); ++size) {
    ASSERT_THAT(FromRow<JobRecord>(write.key, write.value->substr(0, size)),
                StatusIs(absl::StatusCode::kDataLoss))
        << "size " << size;
  }
}

TEST(RecordsCodecTest, DamageNamesTableAndKey) {
  EXPECT_THAT(FromRow<JobRecord>("\x01\x02", "nonsense"),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("0102"), HasSubstr("table jobs"),
                             HasSubstr("backup"))));
}

TEST(RecordsCodecTest, AValueUnderAnotherKeyIsDataLoss) {
  const Write write = ToWrite(SomeJob());
  EXPECT_THAT(FromRow<JobRecord>(RowKey(IdAll<JobId>('x')), *write.value),
              StatusIs(absl::StatusCode::kDataLoss));
}

// `row` as the store would hold it, its checksum right.
template <typename Row>
std::string Sealed(absl::string_view key, const Row& row) {
  const std::string bytes = row.SerializeAsString();
  const uint32_t crc = Crc32c(bytes, Crc32c(key));
  std::string sealed;
  for (int shift = 24; shift >= 0; shift -= 8) {
    sealed.push_back(static_cast<char>((crc >> shift) & 0xff));
  }
  return sealed + bytes;
}

TEST(RecordsCodecTest, AStateOfNoMeaningIsDataLoss) {
  storage::v1::JobRow row;
  const JobId id = IdAll<JobId>('j');
  row.set_job_id(std::string(id.bytes()));
  row.set_state(static_cast<JobState>(99));
  EXPECT_THAT(FromRow<JobRecord>(RowKey(id), Sealed(RowKey(id), row)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("its state")));
}

TEST(RecordsCodecTest, SlotsOutOfOrderOrOfNoPlaceAreDataLoss) {
  const AttemptId id = IdAll<AttemptId>('a');
  storage::v1::AttemptRow whole;
  whole.set_attempt_id(std::string(id.bytes()));
  whole.set_state(v1::ATTEMPT_STATE_RUNNING);
  storage::v1::Place& place = *whole.add_places();
  place.set_node_id(std::string(IdAll<NodeId>('n').bytes()));
  place.set_phase(v1::PLACE_PHASE_RUNNING);
  storage::v1::Process& process = *whole.add_processes();
  process.set_place(1);
  process.set_state(v1::PROCESS_STATE_RUNNING);
  const auto read = [&](const storage::v1::AttemptRow& row) {
    return FromRow<AttemptRecord>(RowKey(id), Sealed(RowKey(id), row)).status();
  };
  COHORT_EXPECT_OK(read(whole));
  for (const int of : {-1, 2}) {
    storage::v1::AttemptRow row = whole;
    row.mutable_processes(0)->set_place(of);
    EXPECT_THAT(read(row), StatusIs(absl::StatusCode::kDataLoss)) << of;
  }
  storage::v1::AttemptRow row = whole;
  row.mutable_processes(0)->set_slot(1);
  EXPECT_THAT(read(row), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(RecordsCodecTest, UnknownFieldsAreDataLoss) {
  storage::v1::PackageRow row;
  row.set_hash("h");
  row.GetReflection()->MutableUnknownFields(&row)->AddVarint(99, 1);
  EXPECT_THAT(
      FromRow<PackageRecord>("h", Sealed("h", row)),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("unknown fields")));
}

TEST(RecordsCodecTest, ANewerSchemaIsRefused) {
  storage::v1::ClusterRow row;
  row.set_schema_version(kSchemaVersion + 1);
  row.set_term(4);
  row.GetReflection()->MutableUnknownFields(&row)->AddVarint(99, 1);
  const std::string value = Sealed(RowKey(), row);

  const auto record = FromRow<ClusterRecord>(RowKey(), value);
  EXPECT_THAT(record, StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr("from the future")));
  EXPECT_EQ(GetReason(record.status()), "store_from_the_future");
  const auto stamp = ReadClusterStamp(value);
  COHORT_ASSERT_OK(stamp);
  EXPECT_EQ(stamp->schema_version, kSchemaVersion + 1);
  EXPECT_EQ(stamp->term, 4u);
}

TEST(RecordsCodecTest, GarbageIsNeverARecord) {
  SeededRandom random(TestSeed());
  for (int i = 0; i < 20'000; ++i) {
    const std::string value = random.Bytes(random.Below(64));
    EXPECT_FALSE(FromRow<JobRecord>("0123456789abcdef", value).ok());
  }
}

TEST(RecordsCodecTest, LoadRecordsComesInKeyOrderAndStopsAtDamage) {
  MemoryDisk disk;
  MemoryStore store(disk);
  Batch batch;
  for (const uint64_t number : {300, 2, 70000}) {
    EventRecord event = SomeEvent();
    event.set_number(number);
    batch.push_back(ToWrite(event));
  }
  COHORT_ASSERT_OK(store.Append(0, batch));

  const auto events = LoadRecords<EventRecord>(store);
  COHORT_ASSERT_OK(events);
  ASSERT_EQ(events->size(), 3u);
  EXPECT_EQ((*events)[0].number(), 2u);
  EXPECT_EQ((*events)[2].number(), 70000u);

  disk.Corrupt(Table::kEvents, RowKey(300), "x");
  EXPECT_THAT(LoadRecords<EventRecord>(store),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("events")));
}

}  // namespace
}  // namespace cohort::head

#include "client/message_text.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "client/job_file.h"
#include "common/job_id.h"
#include "rpc/wire_values.h"

namespace cohort {

std::string IdText(absl::string_view bytes) {
  const absl::StatusOr<JobId> id = JobId::FromBytes(bytes);
  return id.ok() ? id->ToText() : absl::BytesToHexString(bytes);
}

std::string TimeText(absl::Time time) {
  const absl::Time cut = absl::FromUnixMillis(absl::ToUnixMillis(time));
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", cut, absl::UTCTimeZone());
}

std::string TimeText(const google::protobuf::Timestamp& time) {
  if (time.seconds() == 0 && time.nanos() == 0) return "-";
  return TimeText(rpc::FromWire(time));
}

ResourceSet ResourcesOf(const v1::ResourceSet& wire) {
  ResourceSet resources;
  for (const v1::ResourceSet::Amount& amount : wire.amounts()) {
    resources.Set(amount.name(),
                  Amount::FromTenThousandths(amount.ten_thousandths()));
  }
  return resources;
}

std::string GoneText(const JobFiles& files) {
  return absl::StrCat(
      "node ", absl::StrJoin(files.nodes_gone, ", node "),
      files.nodes_gone.size() == 1 ? " has" : " have", " ended, and ",
      files.shared_directory.empty()
          ? "what it had of the job is lost with it (--storage-path DIR keeps "
            "it elsewhere)"
          : absl::StrCat("no node that was asked has ", files.shared_directory,
                         ": where that outlives nodes, what the job wrote is "
                         "there"));
}

}  // namespace cohort

#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "head/services/revocations.h"

namespace cohort::head {

// Revocations in a file: an id a line, in hex, added at its end.  No backup has
// it, and `cohort head restore --keys` takes it along.
class RevocationFile final : public Revocations {
 public:
  // None where there is no file yet; a last line that was cut counts not.
  // DataLoss: it is damaged; errors of the disk.
  static absl::StatusOr<std::unique_ptr<RevocationFile>> Open(
      const std::string& path);

  // Revocations.
  const std::vector<std::string>& ids() const override { return ids_; }
  absl::Status Add(const std::string& id) override;

 private:
  RevocationFile(std::string path, std::vector<std::string> ids)
      : path_(std::move(path)), ids_(std::move(ids)) {}

  const std::string path_;
  std::vector<std::string> ids_;
};

}  // namespace cohort::head

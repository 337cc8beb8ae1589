// A package: refused, or all of its names lie below the directory (TR-1).

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "absl/strings/match.h"

#include "client/tar_writer.h"
#include "common/check.h"
#include "common/unique_fd.h"
#include "tests/fuzz/fuzz.h"
#include "worker/tar_reader.h"

namespace {

cohort::UniqueFd Memory() {
  cohort::UniqueFd fd(memfd_create("tar_fuzz", MFD_CLOEXEC));
  COHORT_CHECK(fd.get() >= 0);
  return fd;
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  cohort::client::TarWriter writer(Memory(), 1 << 20);
  COHORT_CHECK(writer.AddDirectory("dir").ok());
  COHORT_CHECK(writer.AddFile("dir/run.sh", 600, true).ok());
  COHORT_CHECK(writer.AddBytes(std::string(600, 'r')).ok());
  COHORT_CHECK(writer.EndFile().ok());
  COHORT_CHECK(writer.AddFile(std::string(300, 'n'), 0, false).ok());
  COHORT_CHECK(writer.EndFile().ok());
  COHORT_CHECK(writer.AddLink("dir/link", "../" + std::string(200, 't')).ok());
  COHORT_CHECK(writer.Finish().ok());
  std::string bytes(static_cast<size_t>(writer.size_bytes()), '\0');
  const cohort::UniqueFd fd = writer.TakeFile();
  COHORT_CHECK(pread(fd.get(), bytes.data(), bytes.size(), 0) ==
               static_cast<ssize_t>(bytes.size()));
  return {bytes};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cohort::UniqueFd fd = Memory();
  COHORT_CHECK(write(fd.get(), data, size) == static_cast<ssize_t>(size));
  COHORT_CHECK(lseek(fd.get(), 0, SEEK_SET) == 0);
  cohort::worker::TarReader reader(std::move(fd), "fuzz.tar");
  std::string buffer(4096, '\0');
  int64_t bytes_read = 0;
  for (;;) {
    const auto entry = reader.Next();
    if (!entry.ok() || !entry->has_value()) return 0;
    const std::string& name = (*entry)->name;
    COHORT_CHECK(!name.empty() && name[0] != '/' && name != "..");
    COHORT_CHECK(!absl::StartsWith(name, "../"));
    COHORT_CHECK(!absl::StrContains(name, "/../"));
    COHORT_CHECK(!absl::EndsWith(name, "/.."));
    COHORT_CHECK((*entry)->link.empty() || (*entry)->link[0] != '/');
    for (;;) {
      const auto got = reader.Read(buffer.data(), buffer.size());
      if (!got.ok()) return 0;
      if (*got == 0) break;
      bytes_read += static_cast<int64_t>(*got);
      COHORT_CHECK(bytes_read <= static_cast<int64_t>(size));
    }
  }
}

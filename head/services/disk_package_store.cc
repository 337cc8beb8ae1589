#include "head/services/disk_package_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/file.h"
#include "common/hash.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/unique_fd.h"

namespace cohort::head {
namespace {

constexpr char kUploadAgain[] =
    "; submit the job again, which uploads its package";

// Bytes in the file; -1 when there is none.
int64_t SizeOf(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? info.st_size : -1;
}

absl::Status CheckHash(const std::string& hash) {
  return Digest::FromBytes(hash).status();
}

absl::Status WriteAt(const std::string& path, int64_t offset,
                     absl::string_view data) {
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return ErrnoStatus(errno, absl::StrCat("open ", path));
  while (!data.empty()) {
    const ssize_t n = pwrite(fd.get(), data.data(), data.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == ENOSPC) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the head's disk is full: no room for ", path));
    }
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("write ", path));
    offset += n;
    data.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

// Reads at most `bytes_max` bytes from `offset`.
absl::StatusOr<std::string> ReadAt(int fd, int64_t offset, int64_t bytes_max) {
  std::string data(static_cast<size_t>(bytes_max), '\0');
  const ssize_t n = pread(fd, data.data(), data.size(), offset);
  if (n < 0) return ErrnoStatus(errno, "read a package");
  data.resize(static_cast<size_t>(n));
  return data;
}

// When the file was written last; InfinitePast when it cannot be told.
absl::Time WrittenAt(int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0) return absl::InfinitePast();
  return absl::TimeFromTimespec(info.st_mtim);
}

absl::StatusOr<Digest> HashOf(int fd) {
  Sha256 sha;
  for (int64_t offset = 0;;) {
    COHORT_ASSIGN_OR_RETURN(const std::string data,
                            ReadAt(fd, offset, PackageStore::kChunkBytesMax));
    if (data.empty()) return sha.Finish();
    sha.Update(data);
    offset += static_cast<int64_t>(data.size());
  }
}

}  // namespace

DiskPackageStore::DiskPackageStore(DiskPackageStoreOptions options,
                                   Executor& strand, Executor& disk,
                                   const Clock& clock)
    : options_(std::move(options)),
      strand_(strand),
      disk_(disk),
      clock_(clock) {}

template <typename Work, typename Result>
void DiskPackageStore::OnDisk(Work work, Done<Result> done) {
  disk_.Post([this, work = std::move(work), done = std::move(done)]() mutable {
    Result result = work();
    strand_.Post(
        [done = std::move(done), result = std::move(result)]() mutable {
          std::move(done)(std::move(result));
        });
  });
}

void DiskPackageStore::Begin(const std::string& hash, int64_t size_bytes,
                             Done<absl::StatusOr<int64_t>> done) {
  OnDisk([this, hash, size_bytes] { return BeginNow(hash, size_bytes); },
         std::move(done));
}

void DiskPackageStore::Upload(const std::string& hash, int64_t offset,
                              std::string data,
                              Done<absl::StatusOr<int64_t>> done) {
  OnDisk([this, hash, offset,
          data = std::move(data)] { return UploadNow(hash, offset, data); },
         std::move(done));
}

void DiskPackageStore::Finish(const std::string& hash, int64_t size_bytes,
                              Done<absl::Status> done) {
  OnDisk([this, hash, size_bytes] { return FinishNow(hash, size_bytes); },
         std::move(done));
}

void DiskPackageStore::Look(const std::string& hash, int64_t size_bytes,
                            Done<absl::Status> done) {
  OnDisk([this, hash, size_bytes] { return LookNow(hash, size_bytes); },
         std::move(done));
}

void DiskPackageStore::Fetch(const std::string& hash, int64_t offset,
                             Done<absl::StatusOr<PackageChunk>> done) {
  OnDisk([this, hash, offset] { return FetchNow(hash, offset); },
         std::move(done));
}

void DiskPackageStore::Remove(const std::string& hash) {
  disk_.Post([this, hash] {
    checked_.erase(hash);
    unlink(Path(hash).c_str());
    unlink(PartPath(hash).c_str());
  });
}

void DiskPackageStore::KeepOnly(std::vector<std::string> known) {
  disk_.Post([this, known = std::move(known)] {
    RemoveOldParts(options_.part_kept);
    std::set<std::string> names;
    for (const std::string& hash : known) {
      names.insert(absl::BytesToHexString(hash));
    }
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(options_.directory, error)) {
      const std::string name = entry.path().filename().string();
      if (!absl::EndsWith(name, ".part") && names.count(name) == 0) {
        unlink(entry.path().c_str());
      }
    }
  });
}

absl::StatusOr<int64_t> DiskPackageStore::BeginNow(const std::string& hash,
                                                   int64_t size) {
  COHORT_RETURN_IF_ERROR(CheckHash(hash));
  if (size <= 0 || size > options_.package_bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("a package of ", size, " bytes: 1 to ",
                     options_.package_bytes_max, " are allowed"));
  }
  if (SizeOf(Path(hash)) == size && CheckNow(hash).ok()) return size;
  const int64_t have = std::max<int64_t>(SizeOf(PartPath(hash)), 0);
  if (have > size) {
    // Another size was announced under this hash: one of the two was wrong.
    unlink(PartPath(hash).c_str());
    return 0;
  }
  RemoveOldParts(options_.part_kept);
  if (!CheckRoom(size - have).ok()) {
    RemoveOldParts(options_.part_kept_without_room);
    COHORT_RETURN_IF_ERROR(
        CheckRoom(size - std::max<int64_t>(SizeOf(PartPath(hash)), 0)));
  }
  return std::max<int64_t>(SizeOf(PartPath(hash)), 0);
}

absl::Status DiskPackageStore::CheckRoom(int64_t bytes) const {
  struct statvfs space;
  if (statvfs(options_.directory.c_str(), &space) != 0) return absl::OkStatus();
  const int64_t free = static_cast<int64_t>(space.f_bavail) *
                       static_cast<int64_t>(space.f_frsize);
  if (free - bytes >= options_.bytes_kept_free) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "no room for ", bytes, " bytes of a package in ", options_.directory,
      ": ", free, " are free, ", options_.bytes_kept_free,
      " stay free for the control store"));
}

void DiskPackageStore::RemoveOldParts(absl::Duration age) const {
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(options_.directory, error)) {
    const std::string path = entry.path().string();
    struct stat info;
    if (!absl::EndsWith(path, ".part") || stat(path.c_str(), &info) != 0 ||
        clock_.Wall() - absl::TimeFromTimespec(info.st_mtim) < age) {
      continue;
    }
    unlink(path.c_str());
  }
}

absl::StatusOr<int64_t> DiskPackageStore::UploadNow(
    const std::string& hash, int64_t offset, const std::string& data) const {
  COHORT_RETURN_IF_ERROR(CheckHash(hash));
  if (static_cast<int64_t>(data.size()) > kChunkBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a chunk of ", data.size(), " bytes; at most ", kChunkBytesMax));
  }
  const int64_t have = std::max<int64_t>(SizeOf(PartPath(hash)), 0);
  if (offset != have) {
    return absl::FailedPreconditionError(
        absl::StrCat("the upload is at offset ", have, ", not ", offset,
                     ": ask with BeginPackage"));
  }
  const int64_t next = offset + static_cast<int64_t>(data.size());
  if (next > options_.package_bytes_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a package has at most ", options_.package_bytes_max, " bytes"));
  }
  // Others upload too, each with what was free when it began.
  COHORT_RETURN_IF_ERROR(CheckRoom(static_cast<int64_t>(data.size())));
  COHORT_RETURN_IF_ERROR(WriteAt(PartPath(hash), offset, data));
  return next;
}

absl::Status DiskPackageStore::FinishNow(const std::string& hash,
                                         int64_t size) {
  COHORT_RETURN_IF_ERROR(CheckHash(hash));
  if (SizeOf(Path(hash)) == size && CheckNow(hash).ok()) {
    return absl::OkStatus();
  }
  const std::string part = PartPath(hash);
  if (SizeOf(part) != size) {
    return absl::FailedPreconditionError(
        absl::StrCat("the upload has ", std::max<int64_t>(SizeOf(part), 0),
                     " of ", size, " bytes: go on with UploadPackage"));
  }
  const UniqueFd fd(open(part.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return ErrnoStatus(errno, absl::StrCat("open ", part));
  COHORT_ASSIGN_OR_RETURN(const Digest digest, HashOf(fd.get()));
  if (digest.bytes() != hash) {
    unlink(part.c_str());
    return absl::DataLossError(absl::StrCat(
        "the uploaded bytes have the hash ", digest.ToHex(), ", not ",
        absl::BytesToHexString(hash), ": they were dropped, upload again"));
  }
  if (fsync(fd.get()) != 0 || rename(part.c_str(), Path(hash).c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("keep ", Path(hash)));
  }
  COHORT_RETURN_IF_ERROR(SyncDirectory(options_.directory));
  NoteChecked(hash, fd.get());
  return absl::OkStatus();
}

void DiskPackageStore::NoteChecked(const std::string& hash, int fd) {
  checked_[hash] = WrittenAt(fd);
}

absl::Status DiskPackageStore::CheckNow(const std::string& hash) {
  COHORT_RETURN_IF_ERROR(CheckHash(hash));
  const std::string path = Path(hash);
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) {
    if (errno != ENOENT) return ErrnoStatus(errno, absl::StrCat("open ", path));
    checked_.erase(hash);
    return absl::NotFoundError(
        absl::StrCat("the head has no file ", path, kUploadAgain));
  }
  const auto known = checked_.find(hash);
  if (known != checked_.end() && known->second == WrittenAt(fd.get())) {
    return absl::OkStatus();
  }
  const absl::StatusOr<Digest> digest = HashOf(fd.get());
  if (digest.ok() && digest->bytes() == hash) {
    NoteChecked(hash, fd.get());
    return absl::OkStatus();
  }
  checked_.erase(hash);
  unlink(path.c_str());
  return absl::DataLossError(
      absl::StrCat(path, " was damaged and is removed: ",
                   digest.ok() ? absl::StrCat("its hash is ", digest->ToHex())
                               : std::string(digest.status().message()),
                   kUploadAgain));
}

absl::Status DiskPackageStore::LookNow(const std::string& hash,
                                       int64_t size) const {
  COHORT_RETURN_IF_ERROR(CheckHash(hash));
  const std::string path = Path(hash);
  const int64_t have = SizeOf(path);
  if (have == size) return absl::OkStatus();
  // A disk that cannot be asked has lost nothing yet.
  if (have < 0 && errno != ENOENT) {
    return ErrnoStatus(errno, absl::StrCat("look at ", path));
  }
  if (have < 0) {
    return absl::NotFoundError(
        absl::StrCat("the head has no file ", path, kUploadAgain));
  }
  return absl::DataLossError(
      absl::StrCat(path, " has ", have, " bytes, not ", size, kUploadAgain));
}

absl::StatusOr<PackageChunk> DiskPackageStore::FetchNow(const std::string& hash,
                                                        int64_t offset) {
  COHORT_RETURN_IF_ERROR(CheckNow(hash));
  const UniqueFd fd(open(Path(hash).c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return ErrnoStatus(errno, absl::StrCat("open ", Path(hash)));
  PackageChunk chunk;
  chunk.size_bytes = SizeOf(Path(hash));
  if (offset < 0 || offset > chunk.size_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "offset ", offset, " of a package of ", chunk.size_bytes, " bytes"));
  }
  COHORT_ASSIGN_OR_RETURN(chunk.data, ReadAt(fd.get(), offset, kChunkBytesMax));
  return chunk;
}

std::string DiskPackageStore::Path(const std::string& hash) const {
  return absl::StrCat(options_.directory, "/", absl::BytesToHexString(hash));
}

std::string DiskPackageStore::PartPath(const std::string& hash) const {
  return Path(hash) + ".part";
}

}  // namespace cohort::head

#include "worker/package_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/file.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/unique_fd.h"
#include "rpc/methods.h"
#include "worker/process_host.h"
#include "worker/shared_programs.h"
#include "worker/tar_reader.h"

namespace cohort::worker {
namespace {

// One chunk of 1 MiB takes this long only if the head is in trouble.
constexpr absl::Duration kChunkDeadline = absl::Seconds(30);
// Between two tries while the head is away or has too much to do.
constexpr absl::Duration kRetryDelay = absl::Seconds(1);
// Beside an archive.
constexpr char kPartSuffix[] = ".part";
constexpr char kProgramsSuffix[] = ".programs";
constexpr char kElfMagic[] =
    "\x7f"
    "ELF";
// How old the time of an archive's last use may be.
constexpr time_t kUseSeconds = 60;

absl::Status AppendAt(const std::string& path, int64_t offset,
                      absl::string_view data) {
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (fd.get() < 0) return ErrnoStatus(errno, absl::StrCat("open ", path));
  while (!data.empty()) {
    const ssize_t n = pwrite(fd.get(), data.data(), data.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("write ", path));
    offset += n;
    data.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::StatusOr<Digest> DigestOf(int fd, const std::string& path) {
  Sha256 sha;
  std::string buffer(1 << 20, '\0');
  for (;;) {
    const ssize_t n = read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
    if (n == 0) return sha.Finish();
    sha.Update(absl::string_view(buffer).substr(0, static_cast<size_t>(n)));
  }
}

// The clock that file systems take their times from.
timespec FileTime() {
  timespec now = {};
  // NOLINT(cohort-clock): compared with times of files alone.
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return now;
}

// Renames `part` to `path` if its bytes have the hash; removes it otherwise.
absl::Status Complete(const std::string& part, const std::string& path,
                      const Digest& hash) {
  const UniqueFd fd(open(part.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return ErrnoStatus(errno, absl::StrCat("open ", part));
  COHORT_ASSIGN_OR_RETURN(const Digest found, DigestOf(fd.get(), part));
  if (found != hash) {
    unlink(part.c_str());
    return absl::DataLossError(absl::StrCat(
        "the package that came from the head does not have the hash ",
        hash.ToHex(), "; submit the job again, which uploads it"));
  }
  if (fsync(fd.get()) != 0 || rename(part.c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("keep ", path));
  }
  return absl::OkStatus();
}

// Whether asking later is all there is to do.
bool IsAway(const absl::Status& status) {
  return IsRetryable(status) || absl::IsDeadlineExceeded(status);
}

// What the head says of a package that it lost, marked as that.
absl::Status MarkLoss(absl::Status status) {
  if (!absl::IsNotFound(status) && !absl::IsDataLoss(status)) return status;
  return SetReason(std::move(status), kPackageLost);
}

// The rest of the entry, after its first bytes.
absl::Status WriteFrom(TarReader& reader, std::string first, size_t size,
                       int file, const std::string& what) {
  while (size > 0) {
    COHORT_RETURN_IF_ERROR(
        WriteAll(file, what, absl::string_view(first).substr(0, size)));
    COHORT_ASSIGN_OR_RETURN(size, reader.Read(first.data(), first.size()));
  }
  return absl::OkStatus();
}

// "libnet.so", "libnet.so.3".
bool IsLibrary(absl::string_view name) {
  return absl::EndsWith(name, ".so") || absl::StrContains(name, ".so.");
}

// The `number`th entry, a plain file, as `name` in the open directory `place`.
absl::Status UnpackFile(TarReader& reader, const TarReader::Entry& entry,
                        int number, SharedPrograms& programs,
                        const UniqueFd& place, const std::string& name,
                        const std::string& what) {
  if (entry.is_executable && programs.Has(number, entry.size_bytes)) {
    return Annotate(programs.Give(number, place, name), what);
  }
  std::string first(
      static_cast<size_t>(std::clamp<int64_t>(entry.size_bytes, 1, 1 << 20)),
      '\0');
  COHORT_ASSIGN_OR_RETURN(const size_t size,
                          reader.Read(first.data(), first.size()));
  // The kernel lets nobody write to one that runs, and it is most of what
  // actors need.  All else a rank may write to, libraries included.
  if (entry.is_executable && absl::StartsWith(first, kElfMagic) &&
      !IsLibrary(name)) {
    COHORT_RETURN_IF_ERROR(programs.Add(number, [&](int file) {
      return WriteFrom(reader, std::move(first), size, file, what);
    }));
    return Annotate(programs.Give(number, place, name), what);
  }
  const UniqueFd file(
      openat(place.get(), name.c_str(),
             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
             entry.is_executable ? 0755 : 0644));
  if (!file) return ErrnoStatus(errno, what);
  return WriteFrom(reader, std::move(first), size, file.get(), what);
}

// TR-1: through no link, since one of the package, or what an earlier attempt
// left, may be on the way.
absl::Status UnpackEntry(TarReader& reader, const TarReader::Entry& entry,
                         int number, SharedPrograms& programs,
                         const UniqueFd& top, const std::string& what) {
  const size_t slash = entry.name.rfind('/');
  const absl::string_view parent =
      entry.is_directory ? absl::string_view(entry.name)
      : slash == std::string::npos
          ? absl::string_view()
          : absl::string_view(entry.name).substr(0, slash);
  absl::StatusOr<UniqueFd> directory =
      OpenDirectoryBelow(top.get(), parent, 0755);
  if (!directory.ok()) return Annotate(directory.status(), what);
  if (entry.is_directory) return absl::OkStatus();
  const std::string name = entry.name.substr(slash + 1);  // npos + 1 is 0
  // A name that comes twice is damage, not a replacement: both refuse it.
  if (!entry.link.empty()) {
    return symlinkat(entry.link.c_str(), directory->get(), name.c_str()) == 0
               ? absl::OkStatus()
               : ErrnoStatus(errno, what);
  }
  return UnpackFile(reader, entry, number, programs, *directory, name, what);
}

absl::Status Unpack(const std::string& archive, const std::string& directory) {
  UniqueFd fd(open(archive.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return ErrnoStatus(errno, absl::StrCat("open ", archive));
  const UniqueFd top(
      open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!top) return ErrnoStatus(errno, absl::StrCat("open ", directory));
  TarReader reader(std::move(fd), archive);
  SharedPrograms programs(archive + kProgramsSuffix);
  for (int number = 0;; ++number) {
    COHORT_ASSIGN_OR_RETURN(const std::optional<TarReader::Entry> entry,
                            reader.Next());
    if (!entry) return absl::OkStatus();
    COHORT_RETURN_IF_ERROR(
        UnpackEntry(reader, *entry, number, programs, top,
                    absl::StrCat("unpack ", directory, "/", entry->name)));
  }
}

// Whether the package could be unpacked nowhere: what the reader refuses, a
// name that is too long or comes twice, a file where a directory is to be.
bool IsPackagesFault(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsAlreadyExists(status) ||
         absl::IsFailedPrecondition(status);
}

}  // namespace

PackageCache::PackageCache(std::string directory, rpc::Channel& head,
                           Executor& strand, Executor& disk)
    : directory_(std::move(directory)),
      head_(head),
      strand_(strand),
      disk_(disk) {}

PackageCache::Version PackageCache::VersionOf(const struct stat& archive) {
  return {static_cast<int64_t>(archive.st_ino), archive.st_size,
          archive.st_ctim.tv_sec, archive.st_ctim.tv_nsec};
}

std::string PackageCache::Path(const Digest& hash) const {
  return absl::StrCat(directory_, "/", hash.ToHex());
}
std::string PackageCache::PartPath(const Digest& hash) const {
  return Path(hash) + kPartSuffix;
}

bool PackageCache::IsWhole(const Digest& hash) {
  const std::string path = Path(hash);
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info;
  if (!fd || fstat(fd.get(), &info) != 0) return false;
  const auto seen = whole_.find(hash);
  if (seen == whole_.end() || seen->second != VersionOf(info)) {
    whole_.erase(hash);
    const absl::StatusOr<Digest> found = DigestOf(fd.get(), path);
    if (!found.ok() || *found != hash) {
      COHORT_LOG(kWarning, "package_damaged", {"path", path},
                 {"why", found.ok() ? absl::DataLossError("it lost its hash")
                                    : found.status()});
      unlink(path.c_str());
      RemoveTree(path + kProgramsSuffix).IgnoreError();
      return false;
    }
  }
  // Its time is when it was last used.
  const timespec now = FileTime();
  if (now.tv_sec >= info.st_mtim.tv_sec + kUseSeconds) {
    futimens(fd.get(), nullptr);
    if (fstat(fd.get(), &info) != 0) return false;
  }
  // A write within the same tick of the clock leaves no trace.
  if (std::tie(info.st_ctim.tv_sec, info.st_ctim.tv_nsec) <
      std::tie(now.tv_sec, now.tv_nsec)) {
    whole_[hash] = VersionOf(info);
  }
  return true;
}

void PackageCache::Fetch(const Digest& hash, Done done) {
  Transfer& transfer = transfers_[hash];
  transfer.waiting.push_back(std::move(done));
  if (transfer.waiting.size() > 1) return;
  disk_.Post([this, hash] {
    const bool whole = IsWhole(hash);
    struct stat info;
    const int64_t have =
        stat(PartPath(hash).c_str(), &info) == 0 ? info.st_size : 0;
    strand_.Post([this, hash, whole, have] {
      if (whole) return End(hash, Path(hash));
      transfers_[hash].offset = have;
      FetchNext(hash);
    });
  });
}

void PackageCache::FetchNext(const Digest& hash) {
  v1::FetchPackageRequest request;
  request.set_hash(std::string(hash.bytes()));
  request.set_offset(transfers_[hash].offset);
  rpc::Call(
      head_, rpc::kFetchPackage, request, {.deadline = kChunkDeadline}, strand_,
      [this, hash](absl::StatusOr<v1::FetchPackageResponse> response) {
        if (IsAway(response.status())) {
          return strand_.PostAfter(kRetryDelay,
                                   [this, hash] { FetchNext(hash); });
        }
        if (!response.ok()) {
          return End(hash,
                     Annotate(MarkLoss(response.status()),
                              absl::StrCat("fetching package ", hash.ToHex())));
        }
        Append(hash, std::move(*response->mutable_data()),
               response->size_bytes());
      });
}

void PackageCache::Append(const Digest& hash, std::string data, int64_t size) {
  const int64_t offset = transfers_[hash].offset;
  const int64_t next = offset + static_cast<int64_t>(data.size());
  if (data.empty() && offset < size) {
    return End(hash, MarkLoss(absl::DataLossError(absl::StrCat(
                         "the head sent nothing of package ", hash.ToHex(),
                         "; submit the job again, which uploads it"))));
  }
  disk_.Post([this, hash, data = std::move(data), offset, next, size] {
    const absl::Status written = AppendAt(PartPath(hash), offset, data);
    // It may be what filled the disk, and who wants it begins again.
    if (!written.ok()) unlink(PartPath(hash).c_str());
    strand_.Post([this, hash, written, next, size] {
      if (!written.ok()) return End(hash, NodeFault(written));
      transfers_[hash].offset = next;
      if (next < size) return FetchNext(hash);
      Finish(hash);
    });
  });
}

void PackageCache::Finish(const Digest& hash) {
  disk_.Post([this, hash] {
    absl::Status status = Complete(PartPath(hash), Path(hash), hash);
    if (status.ok()) Evict(hash);
    strand_.Post([this, hash, status = std::move(status)]() mutable {
      Transfer& transfer = transfers_[hash];
      if (absl::IsDataLoss(status) && !transfer.is_second) {
        // It may be the part from before a restart that was damaged here.
        transfer.is_second = true;
        transfer.offset = 0;
        return FetchNext(hash);
      }
      if (absl::IsDataLoss(status)) return End(hash, MarkLoss(status));
      if (!status.ok()) return End(hash, NodeFault(std::move(status)));
      End(hash, Path(hash));
    });
  });
}

void PackageCache::End(const Digest& hash, absl::StatusOr<std::string> result) {
  const auto found = transfers_.find(hash);
  std::vector<Done> waiting = std::move(found->second.waiting);
  transfers_.erase(found);
  const absl::StatusOr<Archive> archive =
      result.ok() ? absl::StatusOr<Archive>(Hold(hash)) : result.status();
  for (Done& done : waiting) std::move(done)(archive);
}

PackageCache::Archive PackageCache::Hold(const Digest& hash) {
  MutexLock lock(mutex_);
  std::weak_ptr<const std::string>& held = held_[hash];
  Archive archive = held.lock();
  if (archive == nullptr) {
    archive = std::make_shared<const std::string>(Path(hash));
    held = archive;
  }
  return archive;
}

bool PackageCache::IsHeld(const Digest& hash) const {
  MutexLock lock(mutex_);
  const auto held = held_.find(hash);
  return held != held_.end() && !held->second.expired();
}

void PackageCache::Evict(const Digest& newest) {
  namespace fs = std::filesystem;
  std::vector<std::pair<fs::file_time_type, fs::path>> archives;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory_, error)) {
    if (entry.path().extension().empty()) {
      archives.emplace_back(entry.last_write_time(error), entry.path());
    }
  }
  std::sort(archives.begin(), archives.end());
  for (size_t i = 0; i + kArchivesMax < archives.size(); ++i) {
    const fs::path& archive = archives[i].second;
    const auto hash = Digest::FromHex(archive.filename().string());
    if (hash.ok() && (IsHeld(*hash) || *hash == newest)) continue;
    // First: without its archive nobody would find them.
    fs::remove_all(archive.string() + kProgramsSuffix, error);
    fs::remove(archive, error);
    if (!hash.ok()) continue;
    whole_.erase(*hash);
    MutexLock lock(mutex_);
    held_.erase(*hash);
  }
}

absl::Status UnpackPackage(const std::string& archive,
                           const std::string& directory) {
  absl::Status status = Unpack(archive, directory);
  return IsPackagesFault(status) ? status : NodeFault(std::move(status));
}

}  // namespace cohort::worker

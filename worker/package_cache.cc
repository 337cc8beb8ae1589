#include "worker/package_cache.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "common/file.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/unique_fd.h"
#include "rpc/methods.h"

namespace cohort::worker {
namespace {

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

// Renames `part` to `path` if its bytes have the hash; removes it otherwise.
absl::Status Complete(const std::string& part, const std::string& path,
                      const Digest& hash) {
  const UniqueFd fd(open(part.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return ErrnoStatus(errno, absl::StrCat("open ", part));
  Sha256 sha;
  std::string buffer(1 << 20, '\0');
  for (;;) {
    const ssize_t n = read(fd.get(), buffer.data(), buffer.size());
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("read ", part));
    if (n == 0) break;
    sha.Update(absl::string_view(buffer).substr(0, static_cast<size_t>(n)));
  }
  if (sha.Finish() != hash) {
    unlink(part.c_str());
    return absl::DataLossError(absl::StrCat(
        "the package that came from the head does not have the hash ",
        hash.ToHex()));
  }
  if (fsync(fd.get()) != 0 || rename(part.c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("keep ", path));
  }
  return absl::OkStatus();
}

absl::Status CheckEntry(const std::string& archive,
                        struct archive_entry* entry) {
  const char* name = archive_entry_pathname(entry);
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("package ", archive, ": entry \"",
                     name == nullptr ? "" : name, "\" ", why));
  };
  if (name == nullptr || *name == '\0') return refuse("has no name");
  if (*name == '/') return refuse("is absolute");
  for (absl::string_view part : absl::StrSplit(name, '/')) {
    if (part == "..") return refuse("leads outside of the package");
  }
  const auto type = archive_entry_filetype(entry);
  if (archive_entry_hardlink(entry) != nullptr || type == AE_IFLNK) {
    return refuse("is a link; packages hold plain files and directories");
  }
  if (type != AE_IFREG && type != AE_IFDIR) {
    return refuse("is neither a plain file nor a directory");
  }
  return absl::OkStatus();
}

absl::Status ArchiveStatus(struct archive* a, const std::string& archive) {
  const std::string message = absl::StrCat(
      "package ", archive, ": ",
      archive_error_string(a) == nullptr ? "?" : archive_error_string(a));
  return archive_errno(a) == ENOSPC ? absl::ResourceExhaustedError(message)
                                    : absl::InvalidArgumentError(message);
}

}  // namespace

PackageCache::PackageCache(PackageCacheOptions options, rpc::Channel& head,
                           Executor& strand, Executor& disk)
    : options_(std::move(options)), head_(head), strand_(strand), disk_(disk) {}

std::string PackageCache::Path(const Digest& hash) const {
  return absl::StrCat(options_.directory, "/", hash.ToHex());
}
std::string PackageCache::PartPath(const Digest& hash) const {
  return Path(hash) + ".part";
}

void PackageCache::Fetch(const Digest& hash, Done done) {
  Transfer& transfer = transfers_[hash];
  transfer.waiting.push_back(std::move(done));
  if (transfer.waiting.size() > 1) return;
  disk_.Post([this, hash] {
    const std::string path = Path(hash);
    struct stat info;
    const bool whole = stat(path.c_str(), &info) == 0;
    // Its time is when it was last used.
    if (whole) utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
    const int64_t have =
        stat(PartPath(hash).c_str(), &info) == 0 ? info.st_size : 0;
    strand_.Post([this, hash, whole, have, path] {
      if (whole) return End(hash, path);
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
      head_, rpc::kFetchPackage, request, {.deadline = options_.chunk_deadline},
      strand_, [this, hash](absl::StatusOr<v1::FetchPackageResponse> response) {
        if (!response.ok()) {
          return End(hash,
                     Annotate(response.status(),
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
    return End(hash, absl::DataLossError(absl::StrCat(
                         "the head sent nothing of package ", hash.ToHex())));
  }
  disk_.Post([this, hash, data = std::move(data), offset, next, size] {
    const absl::Status written = AppendAt(PartPath(hash), offset, data);
    strand_.Post([this, hash, written, next, size] {
      if (!written.ok()) return End(hash, written);
      transfers_[hash].offset = next;
      if (next < size) return FetchNext(hash);
      Finish(hash);
    });
  });
}

void PackageCache::Finish(const Digest& hash) {
  disk_.Post([this, hash] {
    absl::Status status = Complete(PartPath(hash), Path(hash), hash);
    if (status.ok()) Evict();
    strand_.Post([this, hash, status = std::move(status)] {
      if (!status.ok()) return End(hash, status);
      End(hash, Path(hash));
    });
  });
}

void PackageCache::End(const Digest& hash, absl::StatusOr<std::string> result) {
  const auto found = transfers_.find(hash);
  std::vector<Done> waiting = std::move(found->second.waiting);
  transfers_.erase(found);
  for (Done& done : waiting) std::move(done)(result);
}

void PackageCache::Evict() {
  namespace fs = std::filesystem;
  std::vector<std::pair<fs::file_time_type, fs::path>> archives;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(options_.directory, error)) {
    if (entry.path().extension() != ".part") {
      archives.emplace_back(entry.last_write_time(error), entry.path());
    }
  }
  std::sort(archives.begin(), archives.end());
  const size_t keep = static_cast<size_t>(options_.archives_max);
  for (size_t i = 0; i + keep < archives.size(); ++i) {
    fs::remove(archives[i].second, error);
  }
}

absl::Status UnpackPackage(const std::string& archive,
                           const std::string& directory) {
  const std::unique_ptr<struct archive, int (*)(struct archive*)> reader(
      archive_read_new(), archive_read_free);
  const std::unique_ptr<struct archive, int (*)(struct archive*)> writer(
      archive_write_disk_new(), archive_write_free);
  archive_read_support_format_tar(reader.get());
  archive_read_support_filter_all(reader.get());
  archive_write_disk_set_options(
      writer.get(), ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_SECURE_NODOTDOT |
                        ARCHIVE_EXTRACT_SECURE_SYMLINKS);
  if (archive_read_open_filename(reader.get(), archive.c_str(), 1 << 16) !=
      ARCHIVE_OK) {
    return ArchiveStatus(reader.get(), archive);
  }
  for (;;) {
    struct archive_entry* entry = nullptr;
    const int next = archive_read_next_header(reader.get(), &entry);
    if (next == ARCHIVE_EOF) return absl::OkStatus();
    if (next != ARCHIVE_OK) return ArchiveStatus(reader.get(), archive);
    COHORT_RETURN_IF_ERROR(CheckEntry(archive, entry));
    const std::string target =
        absl::StrCat(directory, "/", archive_entry_pathname(entry));
    archive_entry_set_pathname(entry, target.c_str());
    if (archive_write_header(writer.get(), entry) != ARCHIVE_OK) {
      return ArchiveStatus(writer.get(), archive);
    }
    const void* block = nullptr;
    size_t size = 0;
    la_int64_t offset = 0;
    int read = ARCHIVE_OK;
    while ((read = archive_read_data_block(reader.get(), &block, &size,
                                           &offset)) == ARCHIVE_OK) {
      if (archive_write_data_block(writer.get(), block, size, offset) < 0) {
        return ArchiveStatus(writer.get(), archive);
      }
    }
    if (read != ARCHIVE_EOF) return ArchiveStatus(reader.get(), archive);
    if (archive_write_finish_entry(writer.get()) != ARCHIVE_OK) {
      return ArchiveStatus(writer.get(), archive);
    }
  }
}

}  // namespace cohort::worker

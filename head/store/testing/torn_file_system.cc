#include "head/store/testing/torn_file_system.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/check.h"

namespace cohort::head {
namespace {

namespace fs = std::filesystem;

using ::rocksdb::IODebugContext;
using ::rocksdb::IOOptions;
using ::rocksdb::IOStatus;
using ::rocksdb::Slice;

constexpr uint64_t kSectorBytes = 512;

template <typename Names>
void Apply(const Names& change, Names& names) {
  for (const auto& [name, inode] : change) {
    if (inode == nullptr) {
      names.erase(name);
    } else {
      names[name] = inode;
    }
  }
}

IOStatus Off() { return IOStatus::IOError("the power is off"); }

}  // namespace

// An open file: reports what it does to the file system.
class TornFileSystem::File final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  File(TornFileSystem& system, std::shared_ptr<Inode> inode,
       std::unique_ptr<rocksdb::FSWritableFile> target)
      : FSWritableFileOwnerWrapper(std::move(target)),
        system_(system),
        inode_(std::move(inode)) {}

  IOStatus Append(const Slice& data, const IOOptions& options,
                  IODebugContext* debug) override {
    MutexLock lock(system_.mutex_);
    if (IOStatus status = system_.Change(); !status.ok()) return status;
    if (system_.full_) return IOStatus::NoSpace("the disk is full");
    inode_->size += data.size();
    return FSWritableFileOwnerWrapper::Append(data, options, debug);
  }
  IOStatus Append(const Slice& data, const IOOptions& options,
                  const rocksdb::DataVerificationInfo&,
                  IODebugContext* debug) override {
    return Append(data, options, debug);
  }
  // A truncation counts as durable at once: what a crash brings back is bytes
  // that the store has judged before.
  IOStatus Truncate(uint64_t size, const IOOptions& options,
                    IODebugContext* debug) override {
    MutexLock lock(system_.mutex_);
    if (IOStatus status = system_.Change(); !status.ok()) return status;
    inode_->size = size;
    inode_->synced = std::min(inode_->synced, size);
    return FSWritableFileOwnerWrapper::Truncate(size, options, debug);
  }
  // The real sync is left out: no test pulls the plug of this machine.
  IOStatus Sync(const IOOptions&, IODebugContext*) override {
    MutexLock lock(system_.mutex_);
    if (IOStatus status = system_.Change(); !status.ok()) return status;
    inode_->synced = inode_->size;
    return IOStatus::OK();
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return Sync(options, debug);
  }

 private:
  TornFileSystem& system_;
  const std::shared_ptr<Inode> inode_;
};

// A file whose bytes are overwritten, never added to.
class TornFileSystem::OverwrittenFile final
    : public rocksdb::FSRandomRWFileOwnerWrapper {
 public:
  OverwrittenFile(TornFileSystem& system, std::shared_ptr<Inode> inode,
                  std::unique_ptr<rocksdb::FSRandomRWFile> target)
      : FSRandomRWFileOwnerWrapper(std::move(target)),
        system_(system),
        inode_(std::move(inode)) {}

  IOStatus Write(uint64_t offset, const Slice& data, const IOOptions& options,
                 IODebugContext* debug) override {
    MutexLock lock(system_.mutex_);
    if (IOStatus status = system_.Change(); !status.ok()) return status;
    COHORT_CHECK(offset + data.size() <= inode_->size);
    std::string buffer(data.size(), '\0');
    Slice old;
    IOStatus status =
        Read(offset, data.size(), options, &old, buffer.data(), debug);
    if (!status.ok()) return status;
    inode_->overwritten.emplace_back(offset, old.ToString());
    return FSRandomRWFileOwnerWrapper::Write(offset, data, options, debug);
  }
  IOStatus Sync(const IOOptions&, IODebugContext*) override {
    MutexLock lock(system_.mutex_);
    if (IOStatus status = system_.Change(); !status.ok()) return status;
    inode_->overwritten.clear();
    return IOStatus::OK();
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return Sync(options, debug);
  }

 private:
  TornFileSystem& system_;
  const std::shared_ptr<Inode> inode_;
};

class TornFileSystem::Directory final : public rocksdb::FSDirectoryWrapper {
 public:
  Directory(TornFileSystem& system, std::string path,
            std::unique_ptr<rocksdb::FSDirectory> target)
      : FSDirectoryWrapper(std::move(target)),
        system_(system),
        path_(std::move(path)) {}

  IOStatus Fsync(const IOOptions&, IODebugContext*) override {
    return system_.SyncDirectory(path_);
  }
  IOStatus FsyncWithDirOptions(const IOOptions&, IODebugContext*,
                               const rocksdb::DirFsyncOptions&) override {
    return system_.SyncDirectory(path_);
  }

 private:
  TornFileSystem& system_;
  const std::string path_;
};

TornFileSystem::TornFileSystem(std::string root)
    : FileSystemWrapper(rocksdb::FileSystem::Default()),
      root_(std::move(root)),
      inodes_(root_ + ".inodes") {
  fs::create_directory(inodes_);
}

TornFileSystem::~TornFileSystem() {
  std::error_code ignored;
  fs::remove_all(inodes_, ignored);
}

void TornFileSystem::FailAfter(int changes) {
  MutexLock lock(mutex_);
  changes_left_ = changes;
}

void TornFileSystem::FillUp(uint64_t free) {
  MutexLock lock(mutex_);
  full_ = free;
}

void TornFileSystem::MakeRoom() {
  MutexLock lock(mutex_);
  full_.reset();
}

bool TornFileSystem::is_off() const {
  MutexLock lock(mutex_);
  return off_;
}

int TornFileSystem::bytes_forgotten() const {
  MutexLock lock(mutex_);
  return bytes_forgotten_;
}

int TornFileSystem::names_forgotten() const {
  MutexLock lock(mutex_);
  return names_forgotten_;
}

IOStatus TornFileSystem::Change() {
  if (changes_left_ == 0) off_ = true;
  if (off_) return Off();
  if (changes_left_ > 0) --changes_left_;
  return IOStatus::OK();
}

bool TornFileSystem::Follows(const std::string& path) const {
  return absl::StartsWith(path, root_ + "/");
}

IOStatus TornFileSystem::NewWritableFile(
    const std::string& path, const rocksdb::FileOptions& options,
    std::unique_ptr<rocksdb::FSWritableFile>* file, IODebugContext* debug) {
  if (!Follows(path)) {
    return FileSystemWrapper::NewWritableFile(path, options, file, debug);
  }
  MutexLock lock(mutex_);
  if (IOStatus status = Change(); !status.ok()) return status;
  // A new file under the name; the old one may come back.
  fs::remove(path);
  std::unique_ptr<rocksdb::FSWritableFile> target;
  IOStatus status =
      FileSystemWrapper::NewWritableFile(path, options, &target, debug);
  if (!status.ok()) return status;
  auto inode = std::make_shared<Inode>();
  inode->link = absl::StrCat(inodes_, "/", next_inode_++);
  fs::create_hard_link(path, inode->link);
  ChangeNames({{path, inode}});
  *file = std::make_unique<File>(*this, std::move(inode), std::move(target));
  return status;
}

IOStatus TornFileSystem::ReopenWritableFile(
    const std::string& path, const rocksdb::FileOptions& options,
    std::unique_ptr<rocksdb::FSWritableFile>* file, IODebugContext* debug) {
  MutexLock lock(mutex_);
  const auto known = live_.find(path);
  if (known == live_.end()) return IOStatus::PathNotFound(path);
  if (IOStatus status = Change(); !status.ok()) return status;
  std::unique_ptr<rocksdb::FSWritableFile> target;
  IOStatus status =
      FileSystemWrapper::ReopenWritableFile(path, options, &target, debug);
  if (!status.ok()) return status;
  *file = std::make_unique<File>(*this, known->second, std::move(target));
  return status;
}

IOStatus TornFileSystem::ReuseWritableFile(
    const std::string& path, const std::string&, const rocksdb::FileOptions&,
    std::unique_ptr<rocksdb::FSWritableFile>*, IODebugContext*) {
  return IOStatus::NotSupported("overwriting", path);
}

IOStatus TornFileSystem::NewRandomRWFile(
    const std::string& path, const rocksdb::FileOptions& options,
    std::unique_ptr<rocksdb::FSRandomRWFile>* file, IODebugContext* debug) {
  MutexLock lock(mutex_);
  const auto known = live_.find(path);
  if (known == live_.end()) return IOStatus::PathNotFound(path);
  std::unique_ptr<rocksdb::FSRandomRWFile> target;
  IOStatus status =
      FileSystemWrapper::NewRandomRWFile(path, options, &target, debug);
  if (!status.ok()) return status;
  *file = std::make_unique<OverwrittenFile>(*this, known->second,
                                            std::move(target));
  return status;
}

IOStatus TornFileSystem::NewDirectory(
    const std::string& path, const IOOptions& options,
    std::unique_ptr<rocksdb::FSDirectory>* directory, IODebugContext* debug) {
  std::unique_ptr<rocksdb::FSDirectory> target;
  IOStatus status =
      FileSystemWrapper::NewDirectory(path, options, &target, debug);
  if (!status.ok()) return status;
  *directory = std::make_unique<Directory>(*this, path, std::move(target));
  return status;
}

IOStatus TornFileSystem::DeleteFile(const std::string& path,
                                    const IOOptions& options,
                                    IODebugContext* debug) {
  MutexLock lock(mutex_);
  if (live_.count(path) != 0) {
    if (IOStatus status = Change(); !status.ok()) return status;
    ChangeNames({{path, nullptr}});
  }
  return FileSystemWrapper::DeleteFile(path, options, debug);
}

IOStatus TornFileSystem::GetFreeSpace(const std::string& path,
                                      const IOOptions& options, uint64_t* free,
                                      IODebugContext* debug) {
  {
    MutexLock lock(mutex_);
    if (full_.has_value()) {
      *free = *full_;
      return IOStatus::OK();
    }
  }
  return FileSystemWrapper::GetFreeSpace(path, options, free, debug);
}

IOStatus TornFileSystem::RenameFile(const std::string& from,
                                    const std::string& to,
                                    const IOOptions& options,
                                    IODebugContext* debug) {
  MutexLock lock(mutex_);
  const auto moved = live_.find(from);
  if (moved != live_.end()) {
    if (IOStatus status = Change(); !status.ok()) return status;
    ChangeNames({{to, moved->second}, {from, nullptr}});
  }
  return FileSystemWrapper::RenameFile(from, to, options, debug);
}

IOStatus TornFileSystem::SyncDirectory(const std::string& path) {
  MutexLock lock(mutex_);
  if (IOStatus status = Change(); !status.ok()) return status;
  // Changes in other directories stay as loose as they were.
  const auto in_other = [&path](const NameChange& change) {
    return fs::path(change.begin()->first).parent_path() != fs::path(path);
  };
  std::vector<NameChange> loose;
  for (NameChange& change : unsynced_) {
    if (in_other(change)) {
      loose.push_back(std::move(change));
    } else {
      Apply(change, durable_);
    }
  }
  unsynced_ = std::move(loose);
  return IOStatus::OK();
}

void TornFileSystem::ChangeNames(NameChange change) {
  Apply(change, live_);
  unsynced_.push_back(std::move(change));
}

// Undoes some of the last overwrites, of the first of those perhaps a half.
void TornFileSystem::Undo(Random& random, Inode& inode) {
  auto& overwritten = inode.overwritten;
  const size_t kept = random.Below(overwritten.size() + 1);
  if (kept < overwritten.size()) ++bytes_forgotten_;
  std::fstream file(inode.link,
                    std::ios::binary | std::ios::in | std::ios::out);
  for (size_t i = overwritten.size(); i > kept; --i) {
    const auto& [offset, bytes] = overwritten[i - 1];
    const size_t from =
        i == kept + 1 && random.Below(3) == 0 ? bytes.size() / 2 : 0;
    file.seekp(static_cast<std::streamoff>(offset + from));
    file.write(bytes.data() + from,
               static_cast<std::streamsize>(bytes.size() - from));
  }
  overwritten.clear();
}

void TornFileSystem::Tear(Random& random, Inode& inode) {
  if (!inode.overwritten.empty()) Undo(random, inode);
  const uint64_t loose = inode.size - inode.synced;
  if (loose == 0) return;
  const uint64_t kept = random.Below(4) == 0 ? 0 : random.Below(loose + 1);
  if (kept < loose) ++bytes_forgotten_;
  const uint64_t good = inode.synced + kept;
  fs::resize_file(inode.link, good);
  if (random.Below(3) == 0) {
    // The size reached the disk, some sectors did not.
    const uint64_t sector = good / kSectorBytes * kSectorBytes;
    fs::resize_file(inode.link, std::max(sector, inode.synced));
    fs::resize_file(inode.link, good + random.Below(loose - kept + 1));
  }
  inode.size = fs::file_size(inode.link);
  inode.synced = inode.size;
}

void TornFileSystem::Reboot(Random& random) {
  MutexLock lock(mutex_);
  Names survivors = durable_;
  const size_t kept = random.Below(unsynced_.size() + 1);
  for (size_t i = 0; i < kept; ++i) Apply(unsynced_[i], survivors);
  names_forgotten_ += static_cast<int>(unsynced_.size() - kept);
  unsynced_.clear();
  for (const auto& [name, inode] : live_) fs::remove(name);
  for (const auto& [name, inode] : survivors) {
    Tear(random, *inode);
    fs::remove(name);
    fs::create_hard_link(inode->link, name);
  }
  live_ = survivors;
  durable_ = std::move(survivors);
  off_ = false;
  changes_left_ = -1;
}

}  // namespace cohort::head
